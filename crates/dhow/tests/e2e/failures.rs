//! What cannot run is told with its cause, in time, and hurts nobody else.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{Answer, Daemon, Scratch, Service, SmallDisk, free_port, is_root, skip};

/// A deployment that ends with 1 and says all of this; then the daemon takes another one.
#[track_caller]
fn fails(daemon: &Daemon, service: Service, texts: &[&str]) -> Answer {
    let file = daemon.deployment("bad", &[("culprit", service)]);
    let failed = daemon.dhow(&["deploy", &file, "--timeout", "4s"]).ends_with(1);
    assert_eq!(failed.stdout, "");
    let failed = failed
        .says(&["error: `bad` revision ", "culprit", "culprit-default-0"])
        .says(texts);
    let explained = daemon.dhow(&["explain", "bad/culprit"]).ends_with(0).stdout;
    assert!(explained.contains("culprit-default-0"), "{explained}");
    daemon.dhow(&["rm", "bad", "--wait"]).ends_with(0);
    failed
}

#[test]
fn programs_that_cannot_run_say_why() {
    let daemon = Daemon::start("failures");
    daemon
        .deploy("good", &[("well", Service::sleeper())])
        .ends_with(0);
    let good = daemon.replicas_of("well");

    let exits = Service::shell("echo FATAL: no such table: users >&2; exit 1");
    fails(
        &daemon,
        exits,
        &["it exited with 1", "FATAL: no such table: users"],
    );

    let never = Service::web("v1 never", free_port()).with(
        "health",
        json!({
            "check": { "type": "http", "url": "/healthz" },
            "interval": "200ms", "start_grace": "1s", "retries": 2,
        }),
    );
    fails(
        &daemon,
        never,
        &["its check failed", "500, expected 200: v1", "v1 listens on"],
    );

    let missing = Service::program(&["/no/such/program"]);
    fails(
        &daemon,
        missing,
        &["the program `/no/such/program` does not exist"],
    );

    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = port.to_string();
    fails(&daemon, Service::web("v1", port), &[&text, "is taken by process"]);

    let secret = Service::sleeper().env("TOKEN", "$S:not-there");
    fails(&daemon, secret, &["not-there", "secret"]);

    assert_eq!(daemon.replicas_of("well"), good, "the others go on");
    daemon.finish();
}

#[test]
fn a_full_disk_is_told_and_survived() {
    if !is_root() {
        return skip(
            "a_full_disk_is_told_and_survived",
            "only root can mount a file system",
        );
    }
    let mut daemon = Daemon::at(Scratch::new("disk"));
    let disk = SmallDisk::mount(daemon.data_dir(), "size=64m");
    daemon.restart();
    daemon
        .deploy("good", &[("well", Service::sleeper())])
        .ends_with(0);
    let good = daemon.replicas_of("well");
    disk.fill();
    let bad = daemon.deployment("bad", &[("culprit", Service::sleeper().replicas(3))]);
    let failed = daemon.dhow(&["deploy", &bad, "--timeout", "3s"]).ends_with(1);
    failed.says(&["culprit-default-0", "No space left on device"]);
    // One that is started now does not end for it, and goes on once there is room.
    daemon.kill9();
    daemon.restart();
    assert_eq!(daemon.replicas_of("well"), good);
    disk.free();
    daemon.dhow(&["deploy", &bad]).ends_with(0);
    assert_eq!(daemon.replicas_of("well"), good, "the others go on");
    daemon.finish();
}

#[test]
fn a_daemon_whose_directory_was_removed_leaves_nothing_when_it_ends() {
    let mut daemon = Daemon::start("removed");
    std::fs::remove_dir_all(daemon.data_dir()).unwrap();
    assert_eq!(daemon.term().code(), Some(0), "{}", daemon.said());
    daemon.nothing_is_left();
}
