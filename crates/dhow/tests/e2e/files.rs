//! Configs and secrets as files: in containers, and for host programs of an ordinary user.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Daemon, Scratch, Service, busybox_layout, container, is_root, skip, until};

/// Whom a daemon of an ordinary user runs as.
const NOBODY: u32 = 65_534;

/// A deployment with configs, in the test's folder.
fn file(daemon: &Daemon, configs: &Value, services: &[(&str, Service)]) -> String {
    let path = daemon.deployment("shop", services);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["configs"] = configs.clone();
    daemon.file("shop.dhow.json", &file.to_string())
}

fn inside(daemon: &Daemon, script: &str) -> String {
    let run = daemon.dhow(&["exec", "shop/web-default-0", "--", "sh", "-c", script]);
    run.ends_with(0).stdout
}

/// Says what it was told, and goes on.
const TOLD: &str = "trap 'echo told: $(cat /etc/app/app.conf)' HUP; echo up: $(cat /etc/app/app.conf); while :; do sleep 0.1; done";

fn said(daemon: &Daemon, line: &str) {
    until(line, || {
        let logs = daemon.dhow(&["logs", "shop/web", "--no-prefix"]).stdout;
        logs.lines().any(|found| found == line).then_some(())
    });
}

fn is_on_disk(dir: &Path, text: &str) -> bool {
    let found = std::process::Command::new("grep")
        .args(["-rlF", text])
        .arg(dir)
        .output();
    !found.unwrap().stdout.is_empty()
}

/// A container that is told of another `app.conf`, and of nothing else.
fn told_web(layout: &Path) -> Service {
    let app = json!({
        "source": "app.conf", "target": "/etc/app/app.conf", "on_change": "signal", "signal": "SIGHUP",
    });
    let logo = json!({ "source": "logo", "mode": "0400", "uid": 1000 });
    container(layout, TOLD)
        .with("configs", json!([app, "banner", logo]))
        .with("secrets", json!([{ "source": "key", "on_change": "none" }]))
        .with("rollout", json!({ "min_healthy": "0s" }))
}

fn configs(app: &str) -> Value {
    json!({ "app.conf": { "content": app }, "banner": { "content": "hello" }, "logo": { "file": "logo.bin" } })
}

/// The files are there with their modes, and cannot be changed from inside.
fn sees_all(daemon: &Daemon) {
    assert_eq!(inside(daemon, "cat /banner /run/secrets/key"), "hellos3cret-one");
    assert_eq!(
        inside(daemon, "stat -c %a:%u /logo; od -An -tx1 /logo")
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["400:1000", "ff", "00", "01", "02"]
    );
    inside(
        daemon,
        "! echo x > /etc/app/app.conf && ! echo x > /run/secrets/key",
    );
    assert!(inside(daemon, "grep /run/secrets /proc/mounts").contains("tmpfs"));
}

/// A secret that is set again is there without a word, and it is said who was told nothing.
fn sees_another_secret(daemon: &Daemon) {
    daemon
        .dhow_with_stdin(&["secret", "set", "key"], b"s3cret-two")
        .ends_with(0);
    until("the new secret is seen", || {
        (inside(daemon, "cat /run/secrets/key") == "s3cret-two").then_some(())
    });
    until("it is said who runs since before", || {
        let status = daemon.dhow(&["status", "shop"]).stdout;
        status
            .contains("1 of 1 replicas run since before their files changed")
            .then_some(())
    });
    daemon
        .dhow(&["secret", "rm", "key"])
        .ends_with(4)
        .says(&["shop/web"]);
}

/// These values stand in no file of the test's folder, in no answer and in no process's arguments.
fn is_nowhere(daemon: &Daemon, file: &str, values: &[&str]) {
    let backup = daemon.scratch.path.join("backup");
    let backup = backup.to_str().unwrap();
    let answers: Vec<String> = [
        &["cluster", "backup", backup][..],
        &["events"],
        &["events", "--json"],
        &["status", "shop", "--json"],
        &["ps", "--json"],
        &["history", "shop", "--json"],
        &["explain", "shop/web"],
        &["plan", file],
        &["secret", "ls", "--json"],
    ]
    .into_iter()
    .map(|verb| {
        let answer = daemon.dhow(verb).ends_with(0);
        answer.stdout + &answer.stderr
    })
    .collect();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments: Vec<Vec<u8>> = processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .collect();
    for value in values {
        assert!(!is_on_disk(&daemon.scratch.path, value), "{value} is on disk");
        let told = answers.iter().find(|answer| answer.contains(value));
        assert_eq!(told, None, "{value} is told");
        let shown = arguments.iter().find(|words| {
            words
                .windows(value.len())
                .any(|window| window == value.as_bytes())
        });
        assert!(shown.is_none(), "{value} is an argument");
    }
}

#[test]
fn containers_see_configs_and_secrets_and_are_told_of_others() {
    const WHAT: &str = "configs and secrets of containers";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let mut daemon = Daemon::start("files-told");
    let layout = match busybox_layout(&daemon.scratch.path) {
        Ok(layout) => layout,
        Err(why) => {
            daemon.finish();
            return skip(WHAT, &why);
        }
    };
    daemon
        .dhow_with_stdin(&["secret", "set", "key"], b"s3cret-one")
        .ends_with(0);
    daemon.file("logo.bin", "");
    std::fs::write(daemon.scratch.path.join("logo.bin"), [0xff, 0, 1, 2]).unwrap();
    let deploy = |app: &str| {
        let file = file(&daemon, &configs(app), &[("web", told_web(&layout))]);
        daemon.dhow(&["deploy", &file])
    };
    deploy("one").ends_with(0);
    sees_all(&daemon);
    let pid = daemon.replicas()[0].pid;
    // Another content, under the same process.
    deploy("two").ends_with(0);
    said(&daemon, "told: two");
    assert_eq!(daemon.replicas()[0].pid, pid);
    // The daemon is killed, and another content comes after its return.
    daemon.kill9();
    daemon.restart();
    let file = file(&daemon, &configs("three"), &[("web", told_web(&layout))]);
    daemon.dhow(&["deploy", &file]).ends_with(0);
    said(&daemon, "told: three");
    assert_eq!(daemon.replicas()[0].pid, pid);
    sees_another_secret(&daemon);
    // Back to the first content.
    daemon
        .dhow(&["rollback", "shop", "--to", "1", "--wait"])
        .ends_with(0);
    said(&daemon, "told: one");
    assert_eq!(daemon.replicas()[0].pid, pid);
    is_nowhere(&daemon, &file, &["s3cret-one", "s3cret-two"]);
    daemon.finish();
}

#[test]
fn a_content_that_is_not_borne_is_put_back() {
    const WHAT: &str = "configs of containers that fail";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let daemon = Daemon::start("files-bad");
    let layout = match busybox_layout(&daemon.scratch.path) {
        Ok(layout) => layout,
        Err(why) => {
            daemon.finish();
            return skip(WHAT, &why);
        }
    };
    let web = container(
        &layout,
        "grep -q good /app.conf && exec sleep 3600; echo bad config; exit 3",
    )
    .with("configs", json!(["app.conf"]))
    .with(
        "restart",
        json!({ "backoff": { "initial": "100ms", "max": "200ms" } }),
    )
    .with("rollout", json!({ "min_healthy": "500ms" }));
    let deploy = |app: &str| {
        let configs = json!({ "app.conf": { "content": app } });
        daemon.dhow(&["deploy", &file(&daemon, &configs, &[("web", web.clone())])])
    };
    deploy("good 1").ends_with(0);
    deploy("broken").ends_with(1).says(&["bad config"]);
    until("the good content is back", || {
        (inside(&daemon, "cat /app.conf") == "good 1").then_some(())
    });
    let history = daemon.dhow(&["history", "shop"]).ends_with(0);
    assert!(history.stdout.contains("brings back 1"), "{}", history.stdout);
    daemon.finish();
}

#[test]
fn host_programs_of_an_ordinary_user_have_folders_of_their_own() {
    let scratch = Scratch::new("files-user");
    let mut daemon = Daemon::at(scratch);
    if is_root() {
        daemon.run_as(NOBODY);
    }
    daemon.restart();
    daemon
        .dhow_with_stdin(&["secret", "set", "key"], b"s3cret")
        .ends_with(0);
    daemon.file("web.env", "# of the shop\nCOLOUR=blue\nSIZE=large\n");
    let script = "trap 'echo told: $(cat $DHOW_CONFIGS_DIR/app.conf)' HUP; while :; do sleep 0.1; done";
    let web = Service::shell(script)
        .with(
            "configs",
            json!([{ "source": "app.conf", "on_change": "signal", "signal": "SIGHUP" }]),
        )
        .with("secrets", json!(["key"]))
        .with("env_file", json!("web.env"))
        .with("rollout", json!({ "min_healthy": "0s" }))
        .env("SIZE", "${E2E_SIZE:-small}");
    let deploy = |app: &str| {
        let configs = json!({ "app.conf": { "content": app } });
        daemon.dhow(&["deploy", &file(&daemon, &configs, &[("web", web.clone())])])
    };
    deploy("one").ends_with(0);
    let seen = "echo $COLOUR $SIZE; cat $DHOW_CONFIGS_DIR/app.conf $DHOW_SECRETS_DIR/key; stat -c %a $DHOW_SECRETS_DIR";
    assert_eq!(inside(&daemon, seen), "blue small\nones3cret700\n");
    let folder = inside(&daemon, "echo $DHOW_SECRETS_DIR").trim().to_owned();
    deploy("two").ends_with(0);
    said(&daemon, "told: two");
    assert!(!is_on_disk(&daemon.data_dir(), "s3cret"), "a secret is on disk");
    // What was left for somebody's environment is refused with its place.
    let body =
        br#"{"version":"v1","deployment":"shop","services":{"web":{"command":["true"],"env":{"A":"${B}"}}}}"#;
    let refused = daemon
        .ask("POST", "/api/v1/deployments", "application/json", body)
        .unwrap();
    assert!(
        refused.json().to_string().contains("services.web.env.A"),
        "{}",
        refused.json()
    );
    daemon.finish();
    assert!(!Path::new(&folder).exists(), "its secrets are gone with it");
}

/// Whatever it does in its folder, it cannot lead the writes of root's daemon elsewhere: the folder is not its own.
#[test]
fn a_host_program_of_another_user_reads_its_files_and_changes_nothing_there() {
    const WHAT: &str = "files of host programs of other users";
    if !is_root() {
        return skip(WHAT, "only root runs programs as others");
    }
    let daemon = Daemon::start("files-other");
    daemon
        .dhow_with_stdin(&["secret", "set", "key"], b"s3cret")
        .ends_with(0);
    let web = Service::sleeper()
        .with("user", json!(NOBODY.to_string()))
        .with("configs", json!([{ "source": "app.conf", "on_change": "none" }]))
        .with("secrets", json!(["key"]))
        .with("rollout", json!({ "min_healthy": "0s" }));
    let deploy = |app: &str| {
        let configs = json!({ "app.conf": { "content": app } });
        daemon.dhow(&["deploy", &file(&daemon, &configs, &[("web", web.clone())])])
    };
    deploy("one").ends_with(0);
    let seen = "cat $DHOW_CONFIGS_DIR/app.conf $DHOW_SECRETS_DIR/key; stat -Lc ' %a:%u' $DHOW_SECRETS_DIR $DHOW_SECRETS_DIR/key";
    assert_eq!(inside(&daemon, seen), format!("ones3cret 750:0\n 400:{NOBODY}\n"));
    let tries = "! ln -s /etc $DHOW_CONFIGS_DIR/..making && ! mv $DHOW_CONFIGS_DIR/..data $DHOW_CONFIGS_DIR/x && ! rm $DHOW_SECRETS_DIR/key";
    inside(&daemon, tries);
    deploy("two").ends_with(0);
    assert_eq!(inside(&daemon, "cat $DHOW_CONFIGS_DIR/app.conf"), "two");
    daemon.finish();
}

#[test]
fn files_that_are_too_large_or_elsewhere_are_refused_with_their_place() {
    const MEBIBYTE: usize = 1024 * 1024;
    let daemon = Daemon::start("files-limits");
    let web = Service::sleeper().with("configs", json!(["big"]));
    let deploy = |config: Value| {
        daemon.dhow(&[
            "deploy",
            &file(&daemon, &json!({ "big": config }), &[("web", web.clone())]),
        ])
    };
    daemon.file("big.txt", &"\"".repeat(MEBIBYTE));
    deploy(json!({ "file": "big.txt" })).ends_with(0);
    let seen = inside(&daemon, "wc -c < $DHOW_CONFIGS_DIR/big");
    assert_eq!(seen.trim(), MEBIBYTE.to_string());
    daemon.file("big.txt", &"x".repeat(MEBIBYTE + 1));
    deploy(json!({ "file": "big.txt" }))
        .ends_with(2)
        .says(&["big.txt has more than 1024 KiB"]);
    deploy(json!({ "content": "x".repeat(MEBIBYTE + 1) }))
        .ends_with(2)
        .says(&["at most 1Mi"]);
    deploy(json!({ "file": "../big.txt" }))
        .ends_with(2)
        .says(&["leads out of the folder"]);
    deploy(json!({ "file": "/etc/passwd" }))
        .ends_with(2)
        .says(&["leads out of the folder"]);
    std::os::unix::fs::symlink("/etc/passwd", daemon.scratch.path.join("link")).unwrap();
    deploy(json!({ "file": "link" }))
        .ends_with(2)
        .says(&["out of the folder"]);
    deploy(json!({ "file": "none" })).ends_with(2).says(&["none"]);
    let history = daemon.dhow(&["history", "shop", "--json"]).json();
    assert_eq!(history.as_array().unwrap().len(), 1, "{history}");
    daemon.finish();
}
