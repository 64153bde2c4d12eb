//! What comes bit by bit: logs, events, pulls, and commands inside a replica.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::server::{Daemon, Step, event};

fn line(replica: &str, time: i64, stream: &str, text: &str) -> String {
    let record = json!({
        "deployment": "shop", "replica": replica, "node_id": 1, "time_unix_us": time, "stream": stream, "text": text,
    });
    format!("{record}\n")
}

fn replicas(ids: &[&str]) -> Step {
    let list: Vec<Value> = ids
        .iter()
        .map(|id| {
            json!({
                "deployment": "shop", "service": id.split('-').next(), "role": "default", "replica": 0, "id": id,
                "node_id": 1, "image": null, "state": "running", "healthy": true, "restarts": 0, "pid": null, "exit_code": null,
            })
        })
        .collect();
    Step::json("GET /api/v1/replicas?deployment=shop", Value::Array(list))
}

#[test]
fn logs_are_aligned_by_replica() {
    let lines = [
        line("web-default-0", 1_000_000, "stdout", "hello"),
        line("db-default-10", 2_000_000, "stderr", "  indented"),
        line("web-default-0", 2_000_001, "notice", "3 lines were lost"),
        line("web-default-0", 3_500_000, "stdout", ""),
    ];
    let script = vec![
        replicas(&["web-default-0", "a-very-long-name-0"]),
        Step::stream("GET /api/v1/logs?deployment=shop&tail=50", lines.concat()),
        replicas(&["web-default-0", "a-very-long-name-0"]),
        Step::stream("GET /api/v1/logs?deployment=shop&name=web", lines.concat()),
        replicas(&[]),
        Step::stream("GET /api/v1/logs?deployment=shop", lines.concat()),
    ];
    let daemon = Daemon::new("logs", script);
    let all = daemon.run(&["logs", "shop", "-n", "50"]);
    assert_eq!(
        (all.code, all.stderr.as_str()),
        (0, "web-default-0: 3 lines were lost\n")
    );
    let expected = "\
web-default-0      | hello
db-default-10      |   indented
web-default-0      | \n";
    assert_eq!(all.stdout, expected);
    let service = daemon.run(&["logs", "shop/web", "-t"]);
    assert!(
        service
            .stdout
            .starts_with("web-default-0 | 1970-01-01 00:00:01.000 hello\n"),
        "{}",
        service.stdout
    );
    let json = daemon.run(&["logs", "shop", "--json"]);
    assert_eq!(json.stdout, lines.concat());
    daemon.seen();
}

#[test]
fn following_goes_on_after_a_restart_without_repeating() {
    let first = [
        line("web-default-0", 1, "stdout", "one"),
        line("web-default-0", 2, "stdout", "two"),
    ];
    let second = [
        line("db-default-0", 0, "stdout", "left out by the tail"),
        line("web-default-0", 2, "stdout", "two"),
        line("web-default-0", 2, "stdout", "three, of the same moment"),
        line("web-default-1", 5, "stdout", "a new replica"),
    ];
    // The last line is cut in the middle, as by a daemon that is killed.
    let cut = format!(
        "{}{}",
        first.concat(),
        &line("web-default-0", 2, "stdout", "three, of")[..40]
    );
    let path = "GET /api/v1/logs?deployment=shop&tail=";
    let script = vec![
        replicas(&["web-default-0"]),
        Step::stream(path, cut),
        Step::problem(path, 503, "shutting_down", "shutting down"),
        Step::stream(path, second.concat()),
        Step::problem(path, 404, "not_found", "there is no `shop`"),
    ];
    let daemon = Daemon::new("logs-follow", script);
    let answer = daemon.run(&["logs", "shop", "-f", "-n", "2"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (0, "`shop` is gone\n"));
    assert_eq!(
        answer.stdout,
        "web-default-0 | one\nweb-default-0 | two\nweb-default-0 | three, of the same moment\n\
         web-default-1 | a new replica\n"
    );
    let seen = daemon.seen();
    assert!(seen[1].line.ends_with("tail=2&follow=true"), "{}", seen[1].line);
    assert!(
        seen[3].line.ends_with("tail=10000&follow=true"),
        "{}",
        seen[3].line
    );
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let (said, hears) = std::sync::mpsc::sync_channel::<()>(1);
    let script = vec![
        replicas(&[]),
        Step::with("GET /api/v1/logs", move |connection| {
            connection
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
                .unwrap();
            connection
                .write_all(line("web-default-0", 1, "stdout", "first").as_bytes())
                .unwrap();
            // Once the reader has gone, one more line makes the command notice.
            hears.recv().unwrap();
            let _ = connection.write_all(line("web-default-0", 2, "stdout", "second").as_bytes());
            // Until the other side closes.
            let _ = connection.read(&mut [0]);
        }),
    ];
    let daemon = Daemon::new("pipe", script);
    let mut child = daemon
        .dhow(&["logs", "shop", "-f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 22];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first[..], b"web-default-0 | first\n");
    drop(stdout);
    said.send(()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

fn happened(revision: u64, more: Value) -> String {
    let mut record = json!({ "revision": revision, "part": 0, "time_ms": 1_500, "kind": "replica_started" });
    record
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    format!("id: {revision}.0\n{}", event("replica_started", &record))
}

#[test]
fn events_are_lines_or_one_list() {
    let events = [
        happened(
            7,
            json!({
                "deployment": "shop", "replica": "web-default-0", "generation": 2, "node_id": 1, "wall_unix_ms": 1_500
            }),
        ),
        happened(8, json!({ "deployment": "shop", "message": "became\nstable" })),
        happened(9, json!({ "message": "about nobody" })),
    ];
    let path = "GET /api/v1/events?since=6";
    let daemon = Daemon::new(
        "events",
        vec![
            Step::stream(path, events.concat()),
            Step::stream(path, events.concat()),
        ],
    );
    let people = daemon.run(&["events", "--since", "6"]);
    assert_eq!((people.code, people.stderr.as_str()), (0, ""));
    let expected = "\
7.0      1970-01-01 00:00:01.500 replica_started    shop/web-default-0#2 node 1
8.0      +1.500s                 replica_started    shop: became stable
9.0      +1.500s                 replica_started    about nobody
";
    assert_eq!(people.stdout, expected);
    let json = daemon.run(&["events", "--since", "6", "--json"]).json();
    assert_eq!(
        (&json[0]["revision"], &json[1]["revision"]),
        (&json!(7), &json!(8))
    );
    daemon.seen();
}

#[test]
fn followed_events_resume_after_the_last_one() {
    let path = "GET /api/v1/events?follow=true";
    let script = vec![
        Step::stream(path, happened(7, json!({}))),
        Step::stream(path, happened(8, json!({}))),
        Step::problem(path, 410, "revision_gone", "revision 8 is no longer kept"),
    ];
    let daemon = Daemon::new("events-follow", script);
    let answer = daemon.run(&["events", "-f", "--json"]);
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (4, "error: revision 8 is no longer kept\n")
    );
    assert_eq!(answer.stdout.lines().count(), 2);
    let seen = daemon.seen();
    let ids: Vec<Option<&str>> = seen.iter().map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(ids, [None, Some("7.0"), Some("8.0")]);
}

#[test]
fn events_that_are_gone_meanwhile_end_it() {
    let gone = event(
        "error",
        &json!({ "status": 410, "code": "revision_gone", "detail": "no longer kept" }),
    );
    let stream = [happened(7, json!({})), gone].concat();
    let daemon = Daemon::new("events-gone", vec![Step::stream("GET /api/v1/events", stream)]);
    let answer = daemon.run(&["events"]);
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (4, "error: no longer kept\n")
    );
    assert_eq!(answer.stdout.lines().count(), 1);
}

#[test]
fn a_pull_ends_with_the_name_or_the_problem() {
    let path = "POST /api/v1/images/pull";
    let progress = |state: &str, done: u64| {
        event(
            "progress",
            &json!({ "state": state, "done_bytes": done, "total_bytes": 9 }),
        )
    };
    let good = [
        progress("resolving", 0),
        progress("pulling", 1),
        progress("pulling", 5),
        progress("unpacking", 9),
        event("result", &json!({ "name": "nginx:1.27", "digest": "sha256:aa" })),
    ];
    let bad = event(
        "error",
        &json!({ "status": 404, "code": "not_found", "detail": "no tag 9 of nginx" }),
    );
    let script = vec![
        Step::stream(path, good.concat()),
        Step::stream(path, bad),
        Step::stream(path, progress("pulling", 1)),
    ];
    let daemon = Daemon::new("pull", script);
    let pulled = daemon.run(&["image", "pull", "nginx:1.27"]);
    assert_eq!(
        (pulled.code, pulled.stdout.as_str()),
        (0, "nginx:1.27@sha256:aa\n")
    );
    assert_eq!(
        pulled.stderr,
        "nginx:1.27: resolving\nnginx:1.27: pulling\nnginx:1.27: unpacking\n"
    );
    let missing = daemon.run(&["image", "pull", "nginx:9"]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (4, "error: no tag 9 of nginx\n")
    );
    let cut = daemon.run(&["image", "pull", "nginx"]);
    assert_eq!(cut.code, 3);
    assert!(cut.stderr.contains("run it again"), "{}", cut.stderr);
    assert_eq!(daemon.seen()[0].json(), json!({ "image": "nginx:1.27" }));
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[kind][..], &length, payload].concat()
}

const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: dhow-exec/1\r\n\r\n";

/// What the client sends until the end of its stdin.
fn stdin_of(connection: &mut UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut head = [0; 5];
        connection.read_exact(&mut head).unwrap();
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let mut payload = vec![0; length as usize];
        connection.read_exact(&mut payload).unwrap();
        match head[0] {
            0 => all.extend(payload),
            1 => return all,
            other => panic!("a frame of kind {other}"),
        }
    }
}

#[test]
fn exec_passes_bytes_both_ways_and_ends_as_the_command_did() {
    let path = "POST /api/v1/deployments/shop/replicas/web-default-0/exec?stdin=true&command=cat&command=-";
    let script = vec![Step::with(path, |connection| {
        connection.write_all(SWITCH).unwrap();
        let stdin = stdin_of(connection);
        for part in stdin.chunks(64 * 1024) {
            connection.write_all(&frame(1, part)).unwrap();
        }
        connection.write_all(&frame(2, b"careful\n")).unwrap();
        connection.write_all(&frame(3, br#"{"code":42}"#)).unwrap();
    })];
    let daemon = Daemon::new("exec", script);
    let input: Vec<u8> = (0..100_000_u32).map(|i| b'a' + (i % 26) as u8).collect();
    let answer = daemon.run_with_stdin(&["exec", "shop/web-default-0", "--", "cat", "-"], &input);
    assert_eq!((answer.code, answer.stderr.as_str()), (42, "careful\n"));
    assert_eq!(answer.stdout.as_bytes(), input);
    let seen = daemon.seen();
    assert_eq!(seen[0].header("upgrade"), Some("dhow-exec/1"));
}

#[test]
fn exec_says_why_it_could_not_run() {
    let path = "POST /api/v1/deployments/shop/replicas/web";
    let script = vec![
        Step::with(path, |connection| {
            connection.write_all(SWITCH).unwrap();
            connection
                .write_all(&frame(3, br#"{"error":"there is no `nope` in the image"}"#))
                .unwrap();
        }),
        Step::with(path, |connection| {
            connection.write_all(SWITCH).unwrap();
            connection.write_all(&frame(1, b"half a")).unwrap();
        }),
        Step::problem(path, 404, "not_found", "there is no replica `web` in `shop`"),
        replicas(&["web-default-0"]),
    ];
    let daemon = Daemon::new("exec-bad", script);
    let missing = daemon.run(&["exec", "shop/web-default-0", "--", "nope"]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (1, "error: there is no `nope` in the image\n")
    );
    let cut = daemon.run(&["exec", "shop/web-default-0", "--", "true"]);
    assert_eq!((cut.code, cut.stdout.as_str()), (3, "half a"));
    let unknown = daemon.run(&["exec", "shop/web", "--", "true"]);
    assert_eq!(unknown.code, 4);
    assert_eq!(
        unknown.stderr,
        "replicas of `shop`: shop/web-default-0\nerror: there is no replica `web` in `shop`\n"
    );
    daemon.seen();
}

#[test]
fn completions_are_scripts() {
    let daemon = Daemon::new("completions", Vec::new());
    for shell in ["bash", "zsh", "fish"] {
        let script = daemon.run(&["completions", shell]);
        assert_eq!(script.code, 0);
        assert!(script.stdout.contains("rollback"), "{shell}");
        assert!(script.stdout.contains("complete-names"), "{shell} asks for names");
    }
    assert_eq!(daemon.run(&["completions", "cmd.exe"]).code, 2);
}
