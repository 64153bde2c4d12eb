//! Volumes with real containers: what the image has is in a new one, services that share one see the same, and what was
//! in one comes back from an archive.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, Service, image, is_root, lacks, skip, until};

/// What the image has below `/site`: another owner, a link, a private folder.
const SITE: &str = "mkdir -p $R/site/private; echo hello > $R/site/index.html; echo key > $R/site/private/key; \
    ln -s index.html $R/site/link; chown -R 1234:5678 $R/site/private; chmod 710 $R/site/private; chmod 751 $R/site";

fn site(image: &str, target: &str, more: &Value) -> Service {
    let mut mount = json!({ "type": "named", "name": "site", "target": target });
    for (key, value) in more.as_object().unwrap() {
        mount[key] = value.clone();
    }
    Service::shell("while :; do sleep 0.2; done")
        .with("image", json!(image))
        .with("runtime", json!("container"))
        .with("storage", json!([mount]))
        .with("stop", json!({ "grace": "0s" }))
}

fn inside(daemon: &Daemon, replica: &str, script: &str) -> String {
    let run = daemon.dhow(&["exec", replica, "--", "sh", "-c", script]);
    run.ends_with(0).stdout.trim().to_owned()
}

fn made(what: &str, daemon: &Daemon) -> Option<String> {
    if let Some(why) = lacks(&["busybox", "umoci"]) {
        skip(what, &why);
        return None;
    }
    match image(&daemon.scratch.path, "site", SITE, "") {
        Ok(image) => Some(image),
        Err(why) => {
            skip(what, &why);
            None
        }
    }
}

fn volumes(daemon: &Daemon) -> Vec<Value> {
    let listed = daemon.dhow(&["volume", "ls", "--json"]).ends_with(0).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    listed["volumes"].as_array().unwrap().clone()
}

#[test]
fn a_new_volume_has_what_the_image_has_and_who_shares_it_sees_the_same() {
    const WHAT: &str = "volumes that get what an image has";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let mut daemon = Daemon::start("volume-copy");
    let Some(image) = made(WHAT, &daemon) else {
        return daemon.finish();
    };
    let scratch = json!([{ "type": "ephemeral", "target": "/scratch" }]);
    daemon
        .deploy(
            "shop",
            &[
                ("web", site(&image, "/site", &json!({}))),
                (
                    "reader",
                    site(&image, "/from", &json!({ "read_only": true, "nocopy": true })),
                ),
                (
                    "alone",
                    Service::shell("while :; do sleep 0.2; done")
                        .with("image", json!(image))
                        .with("runtime", json!("container"))
                        .with("storage", scratch),
                ),
            ],
        )
        .ends_with(0);
    let seen = "stat -c '%a %u:%g' private private/key; cat index.html link";
    let web = |script: &str| inside(&daemon, "shop/web-default-0", &format!("cd /site; {script}"));
    assert_eq!(web(seen), "710 1234:5678\n644 1234:5678\nhello\nhello");
    assert_eq!(web("stat -c %a ."), "751");
    let reader = |script: &str| inside(&daemon, "shop/reader-default-0", &format!("cd /from; {script}"));
    assert_eq!(reader(seen), web(seen));
    web("echo changed > index.html; rm link");
    assert_eq!(reader("cat index.html; ls"), "changed\nindex.html\nprivate");
    reader("! touch x 2>/dev/null");

    // Another start brings nothing back that was taken away, also after the daemon was killed.
    inside(&daemon, "shop/alone-default-0", "echo mine > /scratch/file");
    daemon.kill9();
    daemon.restart();
    daemon.dhow(&["restart", "shop", "--wait"]).ends_with(0);
    assert_eq!(
        inside(&daemon, "shop/web-default-0", "cd /site; cat index.html; ls"),
        "changed\nindex.html\nprivate"
    );
    // What is ephemeral went with its replica.
    assert_eq!(inside(&daemon, "shop/alone-default-0", "ls /scratch"), "");
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    daemon.finish();
}

#[test]
fn a_volume_comes_back_from_its_archive_and_no_other_way() {
    const WHAT: &str = "archives of volumes";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let daemon = Daemon::start("volume-archive");
    let Some(image) = made(WHAT, &daemon) else {
        return daemon.finish();
    };
    let web = site(&image, "/site", &json!({})).manual();
    daemon.deploy("shop", &[("web", web)]).ends_with(0);
    daemon.dhow(&["scale", "shop/web=1", "--wait"]).ends_with(0);
    let seen = "cd /site; stat -c '%a %u:%g %h %n' * private/*; cat *.html";
    inside(
        &daemon,
        "shop/web-default-0",
        "cd /site; echo written > mine.html; ln mine.html again.html",
    );
    let before = inside(&daemon, "shop/web-default-0", seen);
    let archive = daemon.scratch.path.join("site.tar");
    let archive = archive.to_str().unwrap();
    daemon
        .dhow(&["volume", "backup", "shop/site", archive])
        .ends_with(0);
    assert!(!Path::new(&format!("{archive}.part")).exists());
    daemon
        .dhow(&["volume", "backup", "shop/site", archive])
        .ends_with(2)
        .says(&["is there already"]);

    // While it is used nothing is taken away or put back.
    for verb in [
        &["volume", "rm", "shop/site"][..],
        &["volume", "restore", "shop/site", archive],
    ] {
        daemon.dhow(verb).ends_with(4).says(&["web-default-0"]);
    }
    let listed = volumes(&daemon);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["replicas"], json!(["web-default-0"]), "{listed:?}");
    assert_eq!(listed[0]["services"], json!(["web"]), "{listed:?}");
    daemon.dhow(&["scale", "shop/web=0", "--wait"]).ends_with(0);
    until("nobody uses it", || {
        let listed = volumes(&daemon);
        (listed[0]["replicas"] == json!([]) && listed[0]["unused_since_unix_secs"].is_i64()).then_some(())
    });

    comes_back(&daemon, archive, (seen, &before));
    is_pruned(&daemon);
    daemon.finish();
}

/// What is not whole changes nothing, and what is brings everything back.
fn comes_back(daemon: &Daemon, archive: &str, (seen, before): (&str, &str)) {
    let whole = fs::read(archive).unwrap();
    for (name, bytes) in [
        ("cut", whole[..whole.len() - 1536].to_vec()),
        ("text", b"hello".repeat(400)),
    ] {
        let path = daemon.scratch.path.join(name);
        fs::write(&path, bytes).unwrap();
        daemon
            .dhow(&["volume", "restore", "shop/site", path.to_str().unwrap()])
            .ends_with(2)
            .says(&["the volume is as it was"]);
    }
    daemon.dhow(&["volume", "rm", "shop/site"]).ends_with(0);
    assert_eq!(volumes(daemon), Vec::<Value>::new());
    daemon.dhow(&["volume", "rm", "shop/site"]).ends_with(4);
    daemon
        .dhow_with_stdin(&["volume", "restore", "shop/site", "-"], &whole)
        .ends_with(0);
    daemon.dhow(&["scale", "shop/web=1", "--wait"]).ends_with(0);
    assert_eq!(inside(daemon, "shop/web-default-0", seen), before);
}

/// What no kept revision names is shown and pruned, and nothing else.
fn is_pruned(daemon: &Daemon) {
    daemon
        .dhow(&["volume", "prune", "--yes"])
        .ends_with(0)
        .says(&["every volume is named"]);
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    let asked = daemon.dhow_with_stdin(&["volume", "prune"], b"y\n").ends_with(2);
    assert!(asked.stdout.contains("shop/site"), "{}", asked.stdout);
    assert_eq!(volumes(daemon).len(), 1);
    daemon.dhow(&["volume", "prune", "--yes"]).ends_with(0);
    assert_eq!(volumes(daemon), Vec::<Value>::new());
}

#[test]
fn volumes_of_a_worker_are_reached_through_any_server() {
    let cluster = Cluster::worker_tier("volume-worker", 3, 1, &json!({}));
    let worker = &cluster.workers[0];
    let id = worker.node_id.unwrap().to_string();
    // As an older version left it.
    let folder = worker.data_dir().join("volumes/shop/data");
    fs::create_dir_all(folder.join("inner")).unwrap();
    // More than is on its way at a time, so that both ends wait for each other.
    let large: Vec<u8> = (0..6_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(folder.join("inner/large"), &large).unwrap();
    let follower = &cluster.nodes[cluster.follower()];
    let listed = volumes(follower);
    assert_eq!(
        (&listed[0]["node_id"].to_string(), &listed[0]["is_named"]),
        (&id, &json!(false))
    );
    assert!(
        listed[0]["used_bytes"].as_u64().unwrap() >= 6_000_000,
        "{listed:?}"
    );
    let archive = follower.scratch.path.join("data.tar");
    let file = archive.to_str().unwrap();
    follower
        .dhow(&["volume", "backup", "shop/data", file])
        .ends_with(0);
    fs::write(folder.join("later"), "gone").unwrap();
    let content = format!("/api/v1/volumes/shop/data/content?node={id}");
    let bytes = fs::read(&archive).unwrap();
    let put = |bytes: &[u8]| follower.ask("PUT", &content, "application/x-tar", bytes).unwrap();
    // What the worker refuses is told with its words, also behind megabytes that nobody wanted.
    let refused = put(&bytes[..bytes.len() - 1024]);
    assert_eq!(refused.status, 422, "{:?}", refused.json());
    assert!(folder.join("later").exists());
    let restored = put(&bytes);
    assert_eq!(restored.status, 200, "{:?}", restored.json());
    assert!(!folder.join("later").exists());
    assert_eq!(fs::read(folder.join("inner/large")).unwrap(), large);
    follower.dhow(&["volume", "rm", "shop/data"]).ends_with(0);
    assert!(!folder.exists());
    cluster.finish();
}
