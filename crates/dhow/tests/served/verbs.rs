//! A deployment's life, verb by verb.

use dhow_server::net::node_door::ScriptedExec;
use dhow_wire::api::{ExecExit, ImageInfo, LogRecord, LogStream};
use serde_json::json;

use crate::daemon::Daemon;

const SHOP: &str = "\
version: v1
deployment: shop
services:
  web:
    image: nginx:1
    scale: { mode: manual }
    rollout: { min_healthy: 0s }
  api:
    image: api:1
    endpoints: [{ name: http, protocol: http, port: 8080 }]
    scale: { mode: fixed, replicas: 2 }
    rollout: { min_healthy: 0s, max_surge: 2 }
    env: { TOKEN: \"$S:token\" }
";

/// With its secret set, and deployed.
fn deployed(name: &str) -> Daemon {
    let daemon = Daemon::new(name);
    daemon
        .run_with_stdin(&["secret", "set", "token"], b"s3cret")
        .ends_with(0);
    let file = daemon.file("shop.yaml", SHOP);
    let done = daemon.run(&["deploy", &file, "--timeout", "20s"]).ends_with(0);
    let expected = "\
SERVICE  RUNNING  HEALTHY  ENDPOINTS
api      2/2      yes      http://localhost:8080
web      0/0      yes      -
";
    assert_eq!(done.stdout, expected, "{}", done.stderr);
    assert!(
        done.stderr.starts_with("`shop` is revision 1 now\n"),
        "{}",
        done.stderr
    );
    daemon
}

#[test]
fn a_deployment_is_listed_scaled_restarted_and_removed() {
    let daemon = deployed("life");
    let again = daemon
        .run(&["deploy", &daemon.file("shop.yaml", SHOP)])
        .ends_with(0);
    assert!(
        again.stderr.contains("unchanged, still revision 1"),
        "{}",
        again.stderr
    );
    let status = daemon.run(&["status", "shop", "--json"]).json();
    assert_eq!(
        (&status["state"], &status["revision"]),
        (&json!("stable"), &json!(1))
    );
    assert_eq!(daemon.run(&["ps", "--json"]).json().as_array().unwrap().len(), 2);
    let people = daemon.run(&["ps", "shop"]).ends_with(0).stdout;
    assert!(
        people.contains("shop/api-default-1  1     1         running  yes"),
        "{people}"
    );

    let scaled = daemon.run(&["scale", "shop/web=3", "--wait"]).ends_with(0);
    assert!(
        scaled.stdout.contains("web      3/3      yes"),
        "{}",
        scaled.stdout
    );
    let refused = daemon.run(&["scale", "shop/nope=1"]).ends_with(4);
    assert!(refused.stderr.contains("nope"), "{}", refused.stderr);

    daemon.run(&["restart", "shop/api", "--wait"]).ends_with(0);
    let replicas = daemon.run(&["ps", "shop", "--json"]).json();
    let generations: Vec<u64> = replicas
        .as_array()
        .unwrap()
        .iter()
        .filter(|replica| replica["service"] == "api")
        .map(|replica| replica["generation"].as_u64().unwrap())
        .collect();
    assert!(
        generations.iter().all(|generation| *generation > 1),
        "{generations:?}"
    );

    daemon.run(&["explain", "shop/api-default-0"]).ends_with(0);
    let explained = daemon.run(&["explain", "shop/web", "--json"]).json();
    assert_eq!(explained["subject"], "shop/web");
    daemon.run(&["explain", "shop/nope"]).ends_with(4);

    let removed = daemon.run(&["rm", "shop", "--wait"]).ends_with(0);
    assert!(
        removed.stderr.ends_with("shop is removed\n"),
        "{}",
        removed.stderr
    );
    daemon.run(&["status", "shop"]).ends_with(4);
    daemon.run(&["rm", "shop"]).ends_with(4);
    assert_eq!(daemon.run(&["ps", "--json"]).json(), json!([]));
}

#[test]
fn revisions_are_planned_kept_and_brought_back() {
    let daemon = deployed("revisions");
    let newer = daemon.file("newer.yaml", &SHOP.replace("api:1", "api:2"));
    let plan = daemon.run(&["plan", &newer]).ends_with(0);
    assert!(
        plan.stdout
            .contains("api  replaces its replicas, 2 to 2 replicas"),
        "{}",
        plan.stdout
    );
    assert_eq!(plan.stderr, "", "the daemon plans");
    daemon.run(&["deploy", &newer]).ends_with(0);
    daemon.run(&["rollback", "shop", "--wait"]).ends_with(0);
    let history = daemon.run(&["history", "shop", "--json"]).json();
    let revisions: Vec<_> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["revision"].clone())
        .collect();
    assert_eq!(revisions.len(), 3, "{history}");
    let people = daemon.run(&["history", "shop"]).ends_with(0).stdout;
    assert!(people.contains("brings back 1"), "{people}");
    let refused = daemon.run(&["rollback", "shop", "--to", "99"]).ends_with(4);
    assert!(refused.stderr.contains("99"), "{}", refused.stderr);
}

#[test]
fn a_deployment_that_cannot_run_says_why() {
    let daemon = Daemon::new("broken");
    let file = daemon.file(
        "bad.yaml",
        "version: v1\ndeployment: bad\nservices:\n  web: { image: broken }\n",
    );
    let failed = daemon.run(&["deploy", &file, "--timeout", "1s"]).ends_with(1);
    assert_eq!(failed.stdout, "");
    assert!(failed.stderr.contains("bad/web: "), "{}", failed.stderr);
    assert!(
        failed.stderr.contains("error: `bad` revision 1 "),
        "{}",
        failed.stderr
    );
    let explained = daemon.run(&["explain", "bad/web"]).ends_with(0).stdout;
    assert!(
        explained.contains("the registry has no such image"),
        "{explained}"
    );
}

fn line(replica: &str, time_unix_us: i64, text: &str) -> LogRecord {
    LogRecord {
        deployment: "shop".into(),
        replica: replica.into(),
        node_id: 1,
        time_unix_us,
        stream: LogStream::Stdout,
        text: text.into(),
    }
}

#[test]
fn logs_and_commands_reach_replicas() {
    let daemon = deployed("inside");
    daemon.door.write(line("api-default-0", 1, "one"));
    daemon.door.write(line("api-default-1", 2, "two"));
    daemon.door.write(line("api-default-0", 3, "three"));
    let logs = daemon.run(&["logs", "shop", "-n", "2"]).ends_with(0).stdout;
    assert_eq!(logs, "api-default-1 | two\napi-default-0 | three\n");
    let one = daemon
        .run(&["logs", "shop/api-default-1", "--no-prefix"])
        .ends_with(0)
        .stdout;
    assert_eq!(one, "two\n");
    daemon.run(&["logs", "shop/nope"]).ends_with(4);

    daemon.door.set_exec(ScriptedExec {
        stdout: b"hello\n".to_vec(),
        exit: ExecExit::Code(137),
    });
    let ran = daemon.run_with_stdin(&["exec", "shop/api-default-0", "--", "sh", "-c", "a b"], b"typed");
    let ran = ran.ends_with(137);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("hello\n", "typed"));
    let service = daemon.run(&["exec", "shop/api", "--", "true"]).ends_with(137);
    assert!(
        service.stderr.starts_with("in shop/api-default-"),
        "{}",
        service.stderr
    );
}

#[test]
fn events_tell_what_happened() {
    let daemon = deployed("events");
    let events = daemon.run(&["events", "--json"]).json();
    let events = events.as_array().unwrap();
    assert!(events.len() > 4, "{events:?}");
    let revision = events[2]["revision"].to_string();
    let later = daemon.run(&["events", "--since", &revision, "--json"]).json();
    let after = events
        .iter()
        .filter(|event| event["revision"].as_u64() > events[2]["revision"].as_u64());
    assert!(later.as_array().unwrap().len() >= after.count());
    let people = daemon.run(&["events"]).ends_with(0).stdout;
    assert!(people.contains("shop/api-default-0"), "{people}");
}

#[test]
fn images_secrets_nodes_and_the_cluster() {
    let daemon = Daemon::new("rest");
    daemon.door.set_digest("nginx:1", "sha256:aa");
    daemon.door.add_image(ImageInfo {
        name: "old:1".into(),
        digest: "sha256:bb".into(),
        size_bytes: 1_024,
        last_used_unix_secs: None,
        in_use: false,
    });
    let pulled = daemon.run(&["image", "pull", "nginx:1"]).ends_with(0);
    assert_eq!(pulled.stdout, "nginx:1@sha256:aa\n");
    daemon.run(&["image", "pull", "nginx:9"]).ends_with(4);
    let imported = daemon
        .run(&["image", "import", "app.tar", "--name", "app:1"])
        .ends_with(0);
    assert!(
        imported.stdout.starts_with("app:1@sha256:aaaa"),
        "{}",
        imported.stdout
    );
    let images = daemon.run(&["image", "ls"]).ends_with(0).stdout;
    assert!(images.contains("old:1  bb      1.0 KiB"), "{images}");
    assert_eq!(
        daemon.run(&["image", "rm", "old:1"]).ends_with(0).stderr,
        "old:1 is removed, 1.0 KiB freed\n"
    );
    daemon.run(&["image", "rm", "old:1"]).ends_with(4);
    assert_eq!(
        daemon.run(&["image", "prune"]).ends_with(0).stderr,
        "0 images removed, 0 B freed\n"
    );

    daemon
        .run_with_stdin(&["secret", "set", "key"], b"value")
        .ends_with(0);
    assert_eq!(daemon.run(&["secret", "ls", "--json"]).json()[0]["name"], "key");
    daemon.run(&["secret", "rm", "key"]).ends_with(0);
    daemon.run(&["secret", "rm", "key"]).ends_with(4);

    let nodes = daemon.run(&["node", "ls"]).ends_with(0).stdout;
    assert!(
        nodes.contains("1     peer  ready   yes     0         0/4  0 B/8.0 GiB  linux/x86_64"),
        "{nodes}"
    );
    daemon.run(&["node", "show", "1"]).ends_with(0);
    daemon.run(&["node", "show", "9"]).ends_with(4);
    let cluster = daemon.run(&["cluster", "status", "--json"]).json();
    assert_eq!(
        (&cluster["mode"], &cluster["leader_id"]),
        (&json!("single-node"), &json!(1))
    );
}
