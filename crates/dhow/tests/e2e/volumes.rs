//! Volumes with real containers: what the image has is in a new one, services that share one see the same, and what was
//! in one comes back from an archive.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Daemon, Service, image, is_root, lacks, skip, until};

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
