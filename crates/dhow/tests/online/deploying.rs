//! `dhow deploy`: what is sent, what is shown on the way, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::{Daemon, Step, event};

const SHOP: &str =
    "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx, env: { GREETING: \"$E:GREETING\" } }\n";

fn deployed(changed: bool) -> Step {
    Step::json(
        "POST /api/v1/deployments?source=",
        json!({ "deployment": "shop", "revision": 2, "changed": changed, "state_revision": 9 }),
    )
}

fn progress(change: Value) -> String {
    let mut service = json!({
        "name": "web", "running": 0, "desired": 2, "healthy": false, "healthy_count": 0, "pending": 0, "starting": 0, "failed": 0,
    });
    service
        .as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    event(
        "progress",
        &json!({ "deployment": "shop", "revision": 2, "state": "deploying", "services": [service] }),
    )
}

fn result(outcome: &str, message: &str) -> String {
    let services = json!([{ "name": "web", "running": 2, "desired": 2, "healthy": true, "endpoints": ["http://localhost:8080"] }]);
    event(
        "result",
        &json!({ "outcome": outcome, "message": message, "services": services }),
    )
}

const PROGRESS: &str = "GET /api/v1/deployments/shop/progress?revision=2&timeout_secs=";

fn deploy(daemon: &Daemon, more: &[&str]) -> crate::server::Answer {
    let file = daemon.file("shop.yaml", SHOP);
    let args = [&["deploy", &file], more].concat();
    crate::server::answer(daemon.dhow(&args).env("GREETING", "hi").output().unwrap())
}

#[test]
fn a_deployment_is_shown_in_lines_where_nobody_watches() {
    let pulling = |done: u64| {
        progress(json!({ "pending": 1, "pulling": { "replicas": 1, "done_bytes": done, "total_bytes": 99 } }))
    };
    let stream = [
        progress(json!({ "pending": 2, "message": "waits for db" })),
        ": keep-alive\n\n".to_owned(),
        pulling(1),
        pulling(50),
        progress(json!({ "starting": 1, "pending": 1 })),
        progress(json!({ "running": 2, "healthy_count": 1 })),
        progress(json!({ "running": 2, "healthy_count": 2, "healthy": true })),
        result("ready", ""),
    ];
    let daemon = Daemon::new(
        "deploy",
        vec![deployed(true), Step::stream(PROGRESS, stream.concat())],
    );
    let answer = deploy(&daemon, &[]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    assert_eq!(
        answer.stderr,
        "`shop` is revision 2 now\n\
         shop/web: waiting, healthy 0/2: waits for db\n\
         shop/web: pulling, healthy 0/2\n\
         shop/web: starting 1, healthy 0/2\n\
         shop/web: running 2/2, healthy 1/2\n\
         shop/web: healthy 2/2\n"
    );
    assert_eq!(
        answer.stdout,
        "SERVICE  RUNNING  HEALTHY  ENDPOINTS\nweb      2/2      yes      http://localhost:8080\n"
    );
    let seen = daemon.seen();
    assert!(seen[0].line.ends_with("shop.yaml"), "{}", seen[0].line);
    let body = seen[0].json();
    assert_eq!(
        body["services"]["web"]["env"]["GREETING"], "hi",
        "the client's environment: {body}"
    );
    assert!(seen[1].line.ends_with("timeout_secs=120"), "{}", seen[1].line);
}

#[test]
fn a_failure_shows_its_cause_and_the_log() {
    let message = "web-default-0 exited with 42\n  logs:\n    FATAL: cannot open config";
    let stream = [
        progress(json!({ "failed": 1, "message": "exited with 42" })),
        result("failed", message),
    ];
    let daemon = Daemon::new(
        "deploy-failed",
        vec![deployed(true), Step::stream(PROGRESS, stream.concat())],
    );
    let answer = deploy(&daemon, &[]);
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    assert_eq!(
        answer.stderr,
        "`shop` is revision 2 now\n\
         shop/web: 1 failed, healthy 0/2: exited with 42\n\
         error: `shop` revision 2 failed: web-default-0 exited with 42\n  logs:\n    FATAL: cannot open config\n  \
         `dhow history shop` shows what runs now, `dhow logs shop` more of the log\n"
    );
    daemon.seen();
}

#[test]
fn a_timeout_is_a_failure_that_goes_on() {
    let script = vec![
        deployed(false),
        Step::stream(PROGRESS, result("timed_out", "Stabilization timed out")),
    ];
    let daemon = Daemon::new("deploy-late", script);
    let answer = deploy(&daemon, &["--timeout", "7s"]);
    assert_eq!(answer.code, 1);
    let expected = "`shop` is unchanged, still revision 2\n\
        error: `shop` revision 2 did not become stable within 7s: Stabilization timed out\n  it goes on:";
    assert!(answer.stderr.starts_with(expected), "{}", answer.stderr);
    assert!(daemon.seen()[1].line.ends_with("timeout_secs=7"));
}

#[test]
fn the_daemon_may_restart_meanwhile() {
    let script = vec![
        deployed(true),
        Step::stream(PROGRESS, progress(json!({ "starting": 2 }))),
        Step::problem(PROGRESS, 503, "shutting_down", "shutting down"),
        Step::stream(
            PROGRESS,
            [progress(json!({ "starting": 2 })), result("ready", "")].concat(),
        ),
    ];
    let daemon = Daemon::new("deploy-restart", script);
    let answer = deploy(&daemon, &[]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    assert_eq!(
        answer.stderr,
        "`shop` is revision 2 now\nshop/web: starting 2, healthy 0/2\nthe daemon is away; waiting for it\n"
    );
    daemon.seen();
}

#[test]
fn detached_it_returns_once_durable() {
    let daemon = Daemon::new("deploy-detached", vec![deployed(true), deployed(true)]);
    let answer = deploy(&daemon, &["--detach"]);
    assert_eq!(
        (answer.code, answer.stdout.as_str(), answer.stderr.as_str()),
        (0, "", "`shop` is revision 2 now\n")
    );
    let json = deploy(&daemon, &["--detach", "--json"]).json();
    assert_eq!(
        json,
        json!({ "deployment": "shop", "revision": 2, "changed": true, "state_revision": 9 })
    );
    daemon.seen();
}

#[test]
fn as_json_the_result_is_one_document() {
    let script = vec![deployed(true), Step::stream(PROGRESS, result("failed", "no"))];
    let daemon = Daemon::new("deploy-json", script);
    let answer = deploy(&daemon, &["--json"]);
    assert_eq!(answer.code, 1);
    let json = answer.json();
    assert_eq!(
        (&json["outcome"], &json["revision"]),
        (&json!("failed"), &json!(2))
    );
    daemon.seen();
}

#[test]
fn a_bad_file_never_reaches_the_daemon() {
    let daemon = Daemon::new("deploy-bad", Vec::new());
    let file = daemon.file("bad.yaml", &SHOP.replace("image", "imge"));
    let answer = daemon.run(&["deploy", &file]);
    assert_eq!(answer.code, 2);
    assert!(
        answer.stderr.contains("did you mean `image`?"),
        "{}",
        answer.stderr
    );
    assert!(daemon.seen().is_empty());
}

#[test]
fn ctrl_c_stops_watching_alone() {
    let script = vec![
        deployed(true),
        Step::with(PROGRESS, |connection| {
            connection
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
                .unwrap();
            connection
                .write_all(progress(json!({ "starting": 1 })).as_bytes())
                .unwrap();
            // Until the other side has gone.
            let _ = connection.read(&mut [0]);
        }),
    ];
    let daemon = Daemon::new("deploy-stopped", script);
    let file = daemon.file("shop.yaml", SHOP);
    let mut child = daemon
        .dhow(&["deploy", &file])
        .env("GREETING", "hi")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("starting") {
        line.clear();
        assert_ne!(
            stderr.read_line(&mut line).unwrap(),
            0,
            "it ended before it began to watch"
        );
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(
        rest,
        "no longer watching; `shop` goes on without it: `dhow status shop` shows how far it is\n"
    );
    daemon.seen();
}
