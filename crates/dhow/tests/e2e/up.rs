//! `dhow up`: from a file to running services in one command, and back to nothing.

use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;

use crate::support::{Answer, Daemon, Scratch, Service, free_port, get, signal, until};

#[test]
fn up_ends_with_everything_it_started() {
    // The last is what a terminal sends that is closed.
    for asked in [Signal::INT, Signal::HUP] {
        ends_with_everything_it_started(asked);
    }
}

fn ends_with_everything_it_started(asked: Signal) {
    let daemon = Daemon::at(Scratch::new("up"));
    let port = free_port();
    let file = daemon.deployment("shop", &[("web", Service::web("v1", port).replicas(2))]);
    let mut up = daemon.dhow_child(&["up", &file]);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let mut shown = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let follows_logs = line.contains("listens on");
        shown.push(line);
        if follows_logs {
            break;
        }
    }
    assert!(
        shown
            .iter()
            .any(|line| line.contains(&format!("http://localhost:{port}"))),
        "{shown:?}"
    );
    assert_eq!(get(port, "/").unwrap(), (200, "v1".into()));
    assert_eq!(daemon.ps().len(), 2);
    signal(up.id(), asked);
    drop(lines);
    let status = until("it ends", || up.try_wait().unwrap());
    let mut said = String::new();
    up.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(get(port, "/").is_err(), "the endpoint still answers");
    daemon.nothing_is_left();
}

#[test]
fn up_ends_with_everything_also_before_it_is_stable() {
    let daemon = Daemon::at(Scratch::new("up-early"));
    let slow = "version: v1\ndeployment: shop\nservices:\n  web:\n    runtime: process\n    command: [sleep, '1000']\n    \
                health: { check: { type: command, command: ['false'] }, start_grace: 100s }\n";
    let file = daemon.file("slow.dhow.yaml", slow);
    let mut up = daemon.dhow_child(&["up", &file]);
    until("it runs", || {
        (daemon.data_dir().join("dhow.sock").exists()
            && daemon.dhow(&["ps", "shop"]).stdout.contains("running"))
        .then_some(())
    });
    signal(up.id(), Signal::TERM);
    let status = until("it ends", || up.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    daemon.nothing_is_left();
}

#[test]
fn up_detached_leaves_a_daemon() {
    let daemon = Daemon::at(Scratch::new("detached"));
    let port = free_port();
    let file = daemon.deployment("shop", &[("web", Service::web("v1", port))]);
    let up = daemon.dhow(&["up", "-d", &file]).ends_with(0);
    assert!(
        up.stdout.contains(&format!("http://localhost:{port}")),
        "{}",
        up.stdout
    );
    assert_eq!(get(port, "/").unwrap(), (200, "v1".into()));
    // A second one finds the daemon and changes nothing.
    let again = daemon.dhow(&["up", "-d", &file]).ends_with(0);
    again.says(&["unchanged"]);
    // One that follows what another has deployed leaves it, and says so.
    let mut follower = daemon.dhow_child(&["up", &file]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let follows = lines.by_ref().map_while(Result::ok);
    assert!(follows.into_iter().any(|line| line.contains("listens on")));
    signal(follower.id(), Signal::INT);
    drop(lines);
    let followed = Answer::of(follower.wait_with_output().unwrap());
    followed.says(&["goes on running", "dhow rm shop"]);
    assert_eq!(get(port, "/").unwrap(), (200, "v1".into()));
    let lock = std::fs::read_to_string(daemon.data_dir().join("daemon.lock")).unwrap();
    let background: u32 = lock.trim().parse().unwrap();
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    signal(background, Signal::TERM);
    daemon.nothing_is_left();
}

#[test]
fn up_with_a_wrong_file_starts_nothing() {
    let daemon = Daemon::at(Scratch::new("wrong"));
    daemon.dhow(&["up", "not-there.yaml"]).ends_with(2);
    let file = daemon.file("bad.dhow.yaml", "version: v1\ndeployment: shop\nservices: 7\n");
    daemon.dhow(&["up", &file]).ends_with(2);
    assert!(!daemon.data_dir().exists());
    let failing = daemon.deployment("bad", &[("web", Service::shell("echo broken >&2; exit 9"))]);
    let failed = daemon.dhow(&["up", &failing, "--timeout", "2s"]).ends_with(1);
    failed.says(&["web-default-0", "it exited with 9", "broken"]);
    daemon.nothing_is_left();
}
