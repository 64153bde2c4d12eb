//! Somebody outside is told what goes wrong, also by a daemon that was killed meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{Daemon, Service, until};

/// Takes every POST until the test has ended.
struct Receiver {
    took: Arc<Mutex<Vec<Value>>>,
    url: String,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let took: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&took);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let mut length = 0;
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let lower = line.to_ascii_lowercase();
                    if let Some(found) = lower.strip_prefix("content-length:") {
                        length = found.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if lines.read_exact(&mut body).is_ok() {
                    kept.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
            }
        });
        Self { took, url }
    }

    fn notices(&self, kind: &str) -> Vec<Value> {
        let took = self.took.lock().unwrap();
        took.iter()
            .filter(|notice| notice["notice"] == kind)
            .cloned()
            .collect()
    }
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

#[test]
fn a_reverted_rollout_is_told_once_and_a_killed_daemon_goes_on_telling() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::start("notify");
    daemon.deploy("shop", &version(1, "exec sleep 1000")).ends_with(0);
    let added = daemon.dhow(&["notify", "add", "ops", &receiver.url]).ends_with(0);
    assert_eq!(added.stdout.trim().len(), 64, "{}", added.stdout);
    daemon.dhow(&["notify", "test", "ops"]).ends_with(0);
    assert_eq!(receiver.notices("test").len(), 1);
    daemon.deploy("shop", &version(2, "exit 3")).ends_with(1);
    let told = until("the revert is told", || {
        let told = receiver.notices("rollout-reverted");
        (!told.is_empty()).then_some(told)
    });
    assert!(told[0]["text"].as_str().unwrap().starts_with("shop"), "{told:?}");
    until("it is noted as sent", || {
        let listed = daemon.dhow(&["notify", "ls", "--json"]).json();
        (listed[0]["sent"].as_u64()? >= 1).then_some(())
    });
    daemon.kill9();
    daemon.restart();
    daemon.deploy("shop", &version(3, "exit 4")).ends_with(1);
    let told = until("the second revert is told", || {
        let told = receiver.notices("rollout-reverted");
        let ids: std::collections::BTreeSet<_> = told.iter().map(|one| one["id"].to_string()).collect();
        (ids.len() == 2).then_some(told)
    });
    assert!(told.iter().all(|notice| notice["event"]["author"].is_null()));
    let listed = daemon.dhow(&["notify", "ls"]).ends_with(0).stdout;
    assert!(listed.contains("ops") && !listed.contains("hook"), "{listed}");
    daemon
        .dhow(&["notify", "add", "bad", "http://ops.example/"])
        .ends_with(2);
    daemon.dhow(&["notify", "rm", "ops"]).ends_with(0);
    daemon.dhow(&["notify", "test", "ops"]).ends_with(4);
    daemon.finish();
}
