//! What a host's own tools see of Dhow: the service manager that started it, whoever stops it or looks for what is
//! missing, and the manual.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Daemon, PATIENCE, Scratch, Service, free_port, until};

/// The service manager's side of its socket.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn listen(scratch: &Scratch) -> Self {
        let path = scratch.path.join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            path: path.display().to_string(),
        }
    }

    /// The next message that has this word, whatever stands before it.
    fn hears(&self, word: &str) -> String {
        let mut buffer = [0_u8; 4096];
        loop {
            let length = self.socket.recv(&mut buffer).unwrap();
            let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if said.lines().any(|line| line.starts_with(word)) {
                return said;
            }
        }
    }
}

#[test]
fn a_service_manager_is_told_and_stopping_leaves_replicas() {
    let mut daemon = Daemon::at(Scratch::new("managed"));
    let manager = Manager::listen(&daemon.scratch);
    daemon.env = vec![
        ("NOTIFY_SOCKET", manager.path.clone()),
        (
            "WATCHDOG_USEC",
            Duration::from_millis(300).as_micros().to_string(),
        ),
    ];
    daemon.restart();
    let ready = manager.hears("READY=1");
    assert!(
        ready.contains("STATUS=single-node, node 1, API at 127.0.0.1:"),
        "{ready}"
    );
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    let said = daemon.said();
    let first = said
        .lines()
        .find(|line| line.contains("the daemon serves"))
        .unwrap();
    for word in [
        "mode=single-node",
        "api=",
        "socket=",
        "data_dir=",
        "containers=",
        "version=",
    ] {
        assert!(first.contains(word), "{first}");
    }

    daemon
        .deploy("shop", &[("web", Service::web("v1", free_port()))])
        .ends_with(0);
    let pids = daemon.workloads();
    assert!(!pids.is_empty());
    for pid in &pids {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(
            !environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG"),
            "what is said to the manager is the daemon's to say: {environment}"
        );
    }
    let stopped = daemon.dhow(&["daemon", "stop"]).ends_with(0);
    stopped.says(&["has ended", "runs on"]);
    manager.hears("STOPPING=1");
    assert!(daemon.until_ended().success());
    assert_eq!(daemon.workloads(), pids, "replicas run on");
    daemon
        .dhow(&["daemon", "stop"])
        .ends_with(3)
        .says(&["no daemon listens"]);
    daemon.restart();
    until("the next daemon takes it up", || {
        (daemon.ps().len() == 1 && daemon.ps()[0].runs()).then_some(())
    });
    assert_eq!(daemon.workloads(), pids);
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    daemon.finish();
}

#[test]
fn a_doctor_names_what_is_missing_and_leaves_nothing() {
    let daemon = Daemon::at(Scratch::new("doctor"));
    let found = daemon.dhow(&["doctor", "--json"]).ends_with(0).json();
    let of = |found: &Value, check: &str| {
        let all = found.as_array().unwrap().iter();
        let of: Vec<Value> = all.filter(|found| found["check"] == check).cloned().collect();
        of
    };
    for check in [
        "configuration",
        "daemon",
        "user",
        "data directory",
        "disk",
        "ports",
        "containers",
        "clock",
    ] {
        assert!(!of(&found, check).is_empty(), "{check}: {found:#}");
    }
    assert!(!daemon.data_dir().exists(), "it only looks");
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let mut left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("dhow-doctor-"));
    assert!(left.next().is_none(), "the trial is cleared away");

    let other = TcpListener::bind(("127.0.0.1", daemon.api_port)).unwrap();
    let broken = daemon.dhow(&["doctor"]).ends_with(1);
    for word in [
        "BROKEN",
        "the API): somebody has it",
        "a daemon does not work here yet",
    ] {
        assert!(broken.stdout.contains(word), "{}", broken.stdout);
    }
    drop(other);
    let config = daemon.file("raft.yaml", "cluster: { mode: raft }\n");
    daemon
        .dhow(&["doctor", "--config", &config])
        .ends_with(2)
        .says(&["node_id"]);
}

#[test]
fn every_verb_has_a_page_in_the_manual() {
    let daemon = Daemon::at(Scratch::new("pages"));
    daemon.dhow(&["man", "made"]).ends_with(0);
    let page = |name: &str| std::fs::read_to_string(daemon.scratch.path.join("made").join(name)).unwrap();
    assert!(page("dhow.1").contains("orchestrator"));
    assert!(page("dhow-daemon-stop.1").contains("SIGTERM"));
    assert!(page("dhow-deploy.1").contains("timeout"));
}
