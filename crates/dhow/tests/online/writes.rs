//! Verbs that change something: what they send, that it is sent once, what they say.

use serde_json::json;

use crate::server::{Daemon, Step, event};

fn done() -> serde_json::Value {
    json!({ "state_revision": 7 })
}

#[test]
fn scale_sends_the_changes_of_a_deployment_together() {
    let script = vec![
        Step::json("POST /api/v1/deployments/blog/scale", done()),
        Step::json("POST /api/v1/deployments/shop/scale", done()),
    ];
    let daemon = Daemon::new("scale", script);
    let scaled = daemon.run(&["scale", "shop/web=3", "blog/web=0", "shop/db/reader=2"]);
    assert_eq!((scaled.code, scaled.stdout.as_str()), (0, ""));
    assert_eq!(
        scaled.stderr,
        "blog/web is to have 0\nshop/web is to have 3\nshop/db/reader is to have 2\n"
    );
    let seen = daemon.seen();
    let changes = json!({ "changes": [{ "service": "web", "replicas": 3 }, { "service": "db", "role": "reader", "replicas": 2 }] });
    assert_eq!(seen[1].json(), changes);
}

#[test]
fn every_write_has_a_key_of_its_own() {
    let restart = "POST /api/v1/deployments/shop/restart";
    let daemon = Daemon::new(
        "keys",
        vec![Step::json(restart, done()), Step::json(restart, done())],
    );
    for _ in 0..2 {
        let answer = daemon
            .dhow(&["restart", "shop"])
            .env("DHOW_TOKEN", "t0ken")
            .output()
            .unwrap();
        assert!(answer.status.success());
    }
    let seen = daemon.seen();
    let keys: Vec<&str> = seen
        .iter()
        .map(|seen| seen.header("idempotency-key").unwrap())
        .collect();
    assert_ne!(keys[0], keys[1]);
    assert!(keys[0].len() == 32 && keys[0].is_ascii(), "{}", keys[0]);
    assert_eq!(seen[0].header("authorization"), Some("Bearer t0ken"));
    assert_eq!(seen[0].json(), json!({}));
}

#[test]
fn restart_of_one_service_waits_where_asked() {
    let result = json!({ "outcome": "ready", "message": "", "services": [
        { "name": "web", "running": 1, "desired": 1, "healthy": true, "endpoints": ["http://localhost:80"] }] });
    let script = vec![
        Step::json("POST /api/v1/deployments/shop/restart", done()),
        Step::stream(
            "GET /api/v1/deployments/shop/progress?timeout_secs=5",
            event("result", &result),
        ),
    ];
    let daemon = Daemon::new("restart", script);
    let answer = daemon.run(&["restart", "shop/web", "--wait", "--timeout", "5s"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (0, "shop/web restarts\n"));
    assert_eq!(
        answer.stdout,
        "SERVICE  RUNNING  HEALTHY  ENDPOINTS\nweb      1/1      yes      http://localhost:80\n"
    );
    assert_eq!(daemon.seen()[0].json(), json!({ "service": "web" }));
}

#[test]
fn rm_waits_until_it_is_gone() {
    let gone = json!({ "outcome": "removed", "message": "", "services": [] });
    let script = vec![
        Step::json("DELETE /api/v1/deployments/shop", done()),
        Step::json("DELETE /api/v1/deployments/shop", done()),
        Step::stream("GET /api/v1/deployments/shop/progress", event("result", &gone)),
        Step::json("DELETE /api/v1/deployments/shop", done()),
        Step::problem(
            "GET /api/v1/deployments/shop/progress",
            404,
            "not_found",
            "there is no `shop`",
        ),
    ];
    let daemon = Daemon::new("rm", script);
    let at_once = daemon.run(&["rm", "shop"]);
    assert_eq!(
        (at_once.code, at_once.stderr.as_str()),
        (0, "shop is being removed\n")
    );
    for _ in 0..2 {
        let waited = daemon.run(&["rm", "shop", "--wait"]);
        assert_eq!((waited.code, waited.stderr.as_str()), (0, "shop is removed\n"));
    }
    daemon.seen();
}

#[test]
fn rollback_says_where_it_goes() {
    let path = "POST /api/v1/deployments/shop/rollback";
    let body = json!({ "deployment": "shop", "revision": 4, "changed": true, "state_revision": 9 });
    let mut told = body.clone();
    told["brings_back"] = json!(2);
    let daemon = Daemon::new(
        "rollback",
        vec![
            Step::json(path, body.clone()),
            Step::json(path, body.clone()),
            Step::json(path, told),
        ],
    );
    let to = daemon.run(&["rollback", "shop", "--to", "2"]);
    assert_eq!(
        (to.code, to.stderr.as_str()),
        (0, "shop goes back to revision 2, as revision 4\n")
    );
    let last = daemon.run(&["rollback", "shop"]);
    assert_eq!(
        last.stderr, "shop goes back to its last good revision, as revision 4\n",
        "an older server does not say which one that is"
    );
    let last = daemon.run(&["rollback", "shop"]);
    assert_eq!(last.stderr, "shop goes back to revision 2, as revision 4\n");
    let seen = daemon.seen();
    assert_eq!((seen[0].json(), seen[1].json()), (json!({ "to": 2 }), json!({})));
}

#[test]
fn a_secret_comes_from_stdin_or_a_file_byte_for_byte() {
    let path = "PUT /api/v1/secrets/db-password";
    let daemon = Daemon::new("secret", vec![Step::json(path, done()), Step::json(path, done())]);
    let piped = daemon.run_with_stdin(&["secret", "set", "db-password"], b"s3\xff\n");
    assert_eq!(
        (piped.code, piped.stderr.as_str()),
        (0, "secret db-password is set\n")
    );
    let file = daemon.file("value", "from a file");
    assert_eq!(
        daemon
            .run(&["secret", "set", "db-password", "--from-file", &file])
            .code,
        0
    );
    let seen = daemon.seen();
    assert_eq!(
        (&seen[0].body[..], &seen[1].body[..]),
        (&b"s3\xff\n"[..], &b"from a file"[..])
    );
    assert!(seen[0].header("idempotency-key").is_some());
}

#[test]
fn a_secret_is_refused_before_it_is_sent() {
    let daemon = Daemon::new("secret-bad", Vec::new());
    let empty = daemon.run_with_stdin(&["secret", "set", "x"], b"");
    assert_eq!(empty.code, 2);
    assert!(empty.stderr.contains("is empty"), "{}", empty.stderr);
    let long = daemon.file("long", &"x".repeat(64 * 1024 + 1));
    let long = daemon.run(&["secret", "set", "x", "--from-file", &long]);
    assert_eq!(long.code, 2);
    assert!(long.stderr.contains("is too long"), "{}", long.stderr);
    assert_eq!(
        daemon
            .run(&["secret", "set", "x", "--from-file", "/nowhere"])
            .code,
        2
    );
    assert_eq!(
        daemon.run(&["secret", "set", "x", "value"]).code,
        2,
        "a value is no argument"
    );
    assert!(daemon.seen().is_empty());
}

#[test]
fn images_are_imported_removed_and_pruned() {
    let script = vec![
        Step::json(
            "POST /api/v1/images/import",
            json!({ "name": "app:1", "digest": "sha256:aa" }),
        ),
        Step::json(
            "DELETE /api/v1/images?name=app%3A1",
            json!({ "removed": ["app:1"], "freed_bytes": 2048 }),
        ),
        Step::json(
            "POST /api/v1/images/prune",
            json!({ "removed": ["a", "b"], "freed_bytes": 3 << 20 }),
        ),
        Step::json("DELETE /api/v1/secrets/old", json!({ "state_revision": 1 })),
    ];
    let daemon = Daemon::new("images-write", script);
    let imported = daemon
        .dhow(&["image", "import", "app.tar", "--name", "app:1"])
        .current_dir("/tmp")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(imported.stdout).unwrap(), "app:1@sha256:aa\n");
    assert_eq!(
        daemon.run(&["image", "rm", "app:1"]).stderr,
        "app:1 is removed, 2.0 KiB freed\n"
    );
    let pruned = daemon.run(&["image", "prune"]);
    assert_eq!(
        (pruned.stdout.as_str(), pruned.stderr.as_str()),
        ("a\nb\n", "2 images removed, 3.0 MiB freed\n")
    );
    assert_eq!(
        daemon.run(&["secret", "rm", "old"]).stderr,
        "secret old is removed\n"
    );
    assert_eq!(
        daemon.seen()[0].json(),
        json!({ "path": "/tmp/app.tar", "name": "app:1" })
    );
}
