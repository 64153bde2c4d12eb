//! Somebody outside is told what goes wrong, also by a daemon that was killed meanwhile.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{Daemon, Service, until};

/// One request as it came.
#[derive(Clone)]
struct Posted {
    id: String,
    time: String,
    signature: String,
    body: Vec<u8>,
    notice: Value,
}

/// Takes or refuses every POST until the test has ended.
#[derive(Clone)]
struct Receiver {
    took: Arc<Mutex<Vec<Posted>>>,
    is_down: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    url: String,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self {
            took: Arc::default(),
            is_down: Arc::default(),
            refused: Arc::default(),
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
        };
        let serving = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                serving.serve(stream.unwrap());
            }
        });
        receiver
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut heads: Vec<(String, String)> = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some((name, value)) = line.split_once(':') {
                heads.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            line.clear();
        }
        let head = |name: &str| {
            let found = heads.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let mut body = vec![0; head("content-length").parse().unwrap_or(0)];
        if lines.read_exact(&mut body).is_err() {
            return;
        }
        if self.is_down.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            return;
        }
        self.took.lock().unwrap().push(Posted {
            id: head("dhow-notice-id"),
            time: head("dhow-notice-time"),
            signature: head("dhow-notice-signature"),
            notice: serde_json::from_slice(&body).unwrap_or_default(),
            body,
        });
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    }

    fn notices(&self, kind: &str) -> Vec<Posted> {
        let took = self.took.lock().unwrap();
        let of_kind = took.iter().filter(|posted| posted.notice["notice"] == kind);
        of_kind.cloned().collect()
    }

    fn ids(&self, kind: &str) -> BTreeSet<String> {
        self.notices(kind).into_iter().map(|posted| posted.id).collect()
    }
}

/// The signature as `docs/notify.md` says how to make it.
fn signed(key: &str, posted: &Posted) -> String {
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-r", "-hmac", key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs openssl");
    let text = [posted.time.as_bytes(), b".", &posted.body].concat();
    openssl.stdin.take().unwrap().write_all(&text).unwrap();
    let said = String::from_utf8(openssl.wait_with_output().unwrap().stdout).unwrap();
    format!("v1={}", said.split_whitespace().next().unwrap())
}

fn version(number: u32, script: &str) -> [(&'static str, Service); 1] {
    let rollout = serde_json::json!({ "min_healthy": "0s" });
    [(
        "web",
        Service::shell(script)
            .env("VERSION", &number.to_string())
            .with("rollout", rollout),
    )]
}

fn listed(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.dhow(&["notify", "ls", "--json"]).json();
    let found = all.as_array().unwrap().iter().find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all}")).clone()
}

#[test]
fn a_reverted_rollout_is_told_signed_and_what_was_not_taken_is_told_after_a_kill() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::start("notify");
    daemon.deploy("shop", &version(1, "exec sleep 1000")).ends_with(0);
    let added = daemon.dhow(&["notify", "add", "ops", &receiver.url]).ends_with(0);
    let key = added.stdout.trim();
    assert_eq!(key.len(), 64, "{}", added.stdout);
    daemon.dhow(&["notify", "test", "ops"]).ends_with(0);
    assert_eq!(receiver.notices("test").len(), 1);

    daemon.deploy("shop", &version(2, "exit 3")).ends_with(1);
    let told = until("the revert is told", || {
        receiver.notices("rollout-reverted").pop()
    });
    assert!(
        told.notice["text"].as_str().unwrap().starts_with("shop"),
        "{}",
        told.notice
    );
    assert!(told.notice["event"]["author"].is_null());
    assert_eq!(told.notice["id"], told.id.as_str());
    assert_eq!(told.signature, signed(key, &told));
    until("it is noted as sent", || {
        (listed(&daemon, "ops")["sent"].as_u64()? >= 1).then_some(())
    });

    // Nobody takes the second one before the daemon is killed, and again by one that is killed as well.
    receiver.is_down.store(true, Ordering::SeqCst);
    daemon.deploy("shop", &version(3, "exit 4")).ends_with(1);
    until("the second one is refused", || {
        (receiver.refused.load(Ordering::SeqCst) >= 1).then_some(())
    });
    daemon.kill9();
    daemon.restart();
    let before = receiver.refused.load(Ordering::SeqCst);
    until("it is tried again after the restart", || {
        (receiver.refused.load(Ordering::SeqCst) > before).then_some(())
    });
    assert_eq!(receiver.ids("rollout-reverted").len(), 1);
    daemon.kill9();
    receiver.is_down.store(false, Ordering::SeqCst);
    daemon.restart();
    until("the second revert is told", || {
        (receiver.ids("rollout-reverted").len() == 2).then_some(())
    });

    let people = daemon.dhow(&["notify", "ls"]).ends_with(0).stdout;
    assert!(people.contains("ops") && !people.contains("hook"), "{people}");
    daemon.dhow(&["notify", "rm", "ops"]).ends_with(0);
    daemon.dhow(&["notify", "test", "ops"]).ends_with(4);
    daemon.finish();
}

#[test]
fn a_dead_target_is_tried_again_and_listed_and_holds_up_nobody_else() {
    let receiver = Receiver::start();
    // A port that is free again, so that connections to it are refused.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = format!("http://{closed}/t0ken");
    let daemon = Daemon::start("notify-dead");
    daemon
        .dhow(&["notify", "add", "bad", "http://ops.example/"])
        .ends_with(2)
        .says(&["--plain-http"]);
    let key = daemon.file("notify.key", "0123456789abcdef\n");
    let added = daemon
        .dhow(&["notify", "add", "dead", &dead, "--key-file", &key])
        .ends_with(0);
    assert_eq!(added.stdout, "", "a key that is known already is not printed");
    daemon
        .dhow(&["notify", "test", "dead"])
        .ends_with(1)
        .says(&["it does not answer"]);
    daemon.dhow(&["notify", "add", "ops", &receiver.url]).ends_with(0);
    daemon.deploy("shop", &version(1, "exec sleep 1000")).ends_with(0);
    daemon.deploy("shop", &version(2, "exit 3")).ends_with(1);
    until("the other one is told", || {
        receiver.notices("rollout-reverted").pop()
    });
    let shown = until("the dead one was tried again", || {
        let shown = listed(&daemon, "dead");
        (shown["failed_attempts"].as_u64()? >= 3).then_some(shown)
    });
    assert_eq!((&shown["sent"], &shown["given_up"]), (&0.into(), &0.into()));
    let problem = shown["problem"].as_str().unwrap();
    assert!(
        problem.starts_with("it does not answer") && !problem.contains("t0ken"),
        "{problem}"
    );
    let people = daemon.dhow(&["notify", "ls"]).ends_with(0).stdout;
    assert!(people.contains("it does not answer"), "{people}");
    // It is told at last where it is given an address that answers.
    let other = Receiver::start();
    daemon
        .dhow(&["notify", "add", "dead", &other.url, "--key-file", &key])
        .ends_with(0);
    let told = until("the changed one is told", || {
        other.notices("rollout-reverted").pop()
    });
    assert_eq!(told.signature, signed("0123456789abcdef", &told));
    daemon.finish();
}
