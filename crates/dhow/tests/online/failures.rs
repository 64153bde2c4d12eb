//! What goes wrong: nobody there, refusals, a busy server, connections that break. The exit codes are promises.

use std::io::Write;
use std::net::TcpListener;

use serde_json::json;

use crate::server::{Daemon, Step, answer, dhow, folder, problem_head, read};

const CLUSTER: &str = "GET /api/v1/cluster";

fn cluster() -> serde_json::Value {
    json!({ "mode": "single-node", "cluster_id": "c", "node_id": 1, "leader_id": 1, "term": 1, "revision": 1, "nodes": 1 })
}

#[test]
fn without_a_daemon_it_says_what_was_tried_and_what_to_do() {
    let folder = folder("nobody");
    let nobody = answer(dhow(&folder, &["ps"]).output().unwrap());
    assert_eq!((nobody.code, nobody.stdout.as_str()), (3, ""));
    let socket = folder.join("dhow.sock");
    let expected = format!(
        "error: no daemon answers at unix://{} (from DHOW_DATA_DIR): there is no such socket\n  \
         start one with `dhow up FILE` or `dhow daemon`, or say where it is with --host or DHOW_HOST\n",
        socket.display()
    );
    assert_eq!(nobody.stderr, expected);

    // A socket that nobody listens on any more, as a killed daemon leaves it.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dead = answer(dhow(&folder, &["deploy", "-"]).output().unwrap());
    assert_eq!(dead.code, 2, "the file is looked at first");
    let dead = answer(dhow(&folder, &["rm", "shop"]).output().unwrap());
    assert_eq!(dead.code, 3);
    assert!(
        dead.stderr.contains("nobody listens on that socket"),
        "{}",
        dead.stderr
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_address_that_was_named_is_the_only_one() {
    let folder = folder("named");
    let file = folder.join("shop.yaml");
    std::fs::write(
        &file,
        "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx }\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let unnamed = answer(dhow(&folder, &["plan", file]).output().unwrap());
    assert_eq!(unnamed.code, 0);
    assert!(
        unnamed.stderr.contains("planning for this machine alone"),
        "{}",
        unnamed.stderr
    );
    let named = answer(
        dhow(&folder, &["plan", file, "--host", "unix:///nowhere.sock"])
            .output()
            .unwrap(),
    );
    assert_eq!(named.code, 3);
    assert!(
        named.stderr.contains("unix:///nowhere.sock (from --host)"),
        "{}",
        named.stderr
    );
    let bad = answer(
        dhow(&folder, &["ps"])
            .env("DHOW_HOST", "node:3669")
            .output()
            .unwrap(),
    );
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("DHOW_HOST has `node:3669`"), "{}", bad.stderr);
    let useless = answer(
        dhow(&folder, &["validate", file, "--host", "unix:///x"])
            .output()
            .unwrap(),
    );
    assert_eq!(useless.code, 2);
    let mut in_clear = dhow(&folder, &["ps", "--host", "http://node.example:3669"]);
    let in_clear = answer(in_clear.env("DHOW_TOKEN", "t").output().unwrap());
    assert_eq!(in_clear.code, 2);
    assert!(in_clear.stderr.contains("use https://"), "{}", in_clear.stderr);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_daemon_is_reached_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let seen = read(&mut connection).unwrap();
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[]";
        connection.write_all(head.as_bytes()).unwrap();
        seen
    });
    let folder = folder("tcp");
    let mut command = dhow(&folder, &["node", "ls", "--json"]);
    // What a proxy would see is not for it: the daemon is on this machine.
    let command = command
        .env("DHOW_HOST", &host)
        .env("HTTP_PROXY", "http://127.0.0.1:1");
    let listed = answer(command.output().unwrap());
    assert_eq!(
        (listed.code, listed.stdout.as_str(), listed.stderr.as_str()),
        (0, "[]\n", "")
    );
    assert_eq!(server.join().unwrap().line, "GET /api/v1/nodes");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn problems_have_their_exit_codes() {
    let cases = [
        (400, "bad_request", 2),
        (422, "invalid_spec", 2),
        (401, "unauthorized", 1),
        (404, "not_found", 4),
        (409, "refused", 4),
        (410, "revision_gone", 4),
        (503, "no_leader", 3),
        (504, "outcome_unknown", 1),
        (500, "internal", 1),
        (418, "a_newer_code", 1),
    ];
    let script = cases
        .iter()
        .map(|(status, code, _)| Step::problem(CLUSTER, *status, code, "because"))
        .collect();
    let daemon = Daemon::new("problems", script);
    for (_, code, exit) in cases {
        let answer = daemon.run(&["cluster", "status"]);
        assert_eq!(
            (answer.code, answer.stdout.as_str(), answer.stderr.as_str()),
            (exit, "", "error: because\n"),
            "{code}"
        );
    }
    daemon.seen();
}

#[test]
fn findings_of_the_daemon_are_shown() {
    let body = json!({ "status": 422, "code": "invalid_spec", "detail": "2 problems", "findings": ["a: 1", "b: 2"] });
    let daemon = Daemon::new(
        "findings",
        vec![Step::with("POST /api/v1/deployments", move |connection| {
            let text = format!("{}{body}", problem_head(422));
            connection.write_all(text.as_bytes()).unwrap();
        })],
    );
    let file = daemon.file(
        "shop.yaml",
        "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx }\n",
    );
    let answer = daemon.run(&["deploy", &file]);
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (2, "error: 2 problems\n  a: 1\n  b: 2\n")
    );
}

#[test]
fn a_busy_server_is_asked_again_with_the_same_key() {
    let path = "DELETE /api/v1/deployments/shop";
    let script = vec![
        Step::problem(path, 503, "busy", "try again"),
        Step::broken(path),
        Step::problem(path, 503, "busy", "try again"),
        Step::json(path, json!({ "state_revision": 1 })),
    ];
    let daemon = Daemon::new("busy", script);
    let answer = daemon.run(&["rm", "shop"]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let seen = daemon.seen();
    let key = seen[0].header("idempotency-key").unwrap();
    assert!(
        seen.iter()
            .all(|seen| seen.header("idempotency-key") == Some(key)),
        "{seen:#?}"
    );
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_server_that_stays_busy_is_left_alone() {
    let script = (0..9)
        .map(|_| Step::problem(CLUSTER, 503, "busy", "the inbox is full"))
        .collect();
    let daemon = Daemon::new("busy-for-ever", script);
    let answer = daemon.run(&["cluster", "status"]);
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (1, "error: the inbox is full\n")
    );
    assert_eq!(daemon.seen().len(), 9);
}

#[test]
fn an_answer_that_never_comes_leaves_the_outcome_open() {
    let path = "DELETE /api/v1/deployments/shop";
    let daemon = Daemon::new("broken", (0..6).map(|_| Step::broken(path)).collect());
    let answer = daemon.run(&["rm", "shop"]);
    assert_eq!(answer.code, 1);
    assert!(
        answer
            .stderr
            .contains("it is not known whether it was carried out"),
        "{}",
        answer.stderr
    );
    assert_eq!(daemon.seen().len(), 6);
}

#[test]
fn an_answer_of_something_else_is_told_as_such() {
    let script = vec![
        Step::stream(CLUSTER, "<html>hello</html>"),
        Step::json(CLUSTER, json!({ "mode": "quantum" })),
        Step::with(CLUSTER, |connection| {
            connection
                .write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n<html>no</html>")
                .unwrap();
        }),
        Step::json(CLUSTER, cluster()),
    ];
    let daemon = Daemon::new("else", script);
    for _ in 0..2 {
        let answer = daemon.run(&["cluster", "status"]);
        assert_eq!(answer.code, 1);
        assert!(answer.stderr.contains("is it a Dhow daemon"), "{}", answer.stderr);
    }
    let html = daemon.run(&["cluster", "status"]);
    assert_eq!(html.code, 4);
    assert!(
        html.stderr.contains("404 Not Found: <html>no</html>"),
        "{}",
        html.stderr
    );
    assert_eq!(daemon.run(&["cluster", "status"]).code, 0);
    daemon.seen();
}

#[test]
fn names_are_checked_before_anything_is_asked() {
    let daemon = Daemon::new("names", Vec::new());
    for (args, part) in [
        (&["status", "Shop"][..], "found 'S'"),
        (&["ps", "shop/web"][..], "this takes a deployment alone: `shop`"),
        (&["explain", "shop"][..], "write DEPLOYMENT/NAME"),
        (&["scale", "shop/web"][..], "such as `shop/web=3`"),
        (&["logs", "shop/"][..], "the name after `/` is missing"),
        (&["exec", "shop/web-default-0"][..], "-- <CMD>"),
        (
            &["deploy", "x.yaml", "--timeout", "soon"][..],
            "`soon` is not a duration",
        ),
        (&["restart", "shop", "--timeout", "3s"][..], "--wait"),
    ] {
        let answer = daemon.run(args);
        assert_eq!(answer.code, 2, "{args:?}");
        assert!(
            answer.stderr.contains(part),
            "{part} is missing in:\n{}",
            answer.stderr
        );
    }
    assert!(daemon.seen().is_empty());
}
