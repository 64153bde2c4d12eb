//! Into a replica and out of it: its output and commands beside it.

use std::io::{BufRead, BufReader};
use std::sync::mpsc;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Daemon, PATIENCE, Service, free_port, get, signal, until};

/// Lines of one run: 1,500 of 4 KiB are 6 MiB, so that the second run passes the 10 MiB of one log file.
const LINES: usize = 1_500;

#[test]
fn logs_follow_over_rotation_and_restarts() {
    let mut daemon = Daemon::start("logs");
    let go = daemon.scratch.path.join("go");
    let script = format!(
        "pad=$(printf %04000d 0); i=0; echo begin; \
         while [ $i -lt {LINES} ]; do echo \"$i $pad\"; i=$((i+1)); done; \
         until [ -e {go} ]; do sleep 0.02; done; rm {go}; echo end; exit 0",
        go = go.display()
    );
    daemon
        .deploy("talk", &[("talker", Service::shell(&script))])
        .ends_with(0);
    let mut follower = daemon.dhow_child(&["logs", "talk", "-f", "--no-prefix"]);
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::sync_channel(16);
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let word = line.split(' ').next().unwrap_or_default().to_owned();
            if sender.send(word).is_err() {
                return;
            }
        }
    });
    let next = |what: &str| {
        let word = receiver.recv_timeout(PATIENCE);
        assert_eq!(word.as_deref(), Ok(what), "a line is lost, doubled or late");
    };
    for run in 0..3 {
        next("begin");
        for line in 0..LINES {
            if run == 1 && line == LINES / 2 {
                daemon.kill9();
                daemon.restart();
            }
            next(&line.to_string());
        }
        if run == 1 {
            // It ends and nobody is there to start it again.
            daemon.kill9();
        }
        std::fs::write(&go, "").unwrap();
        if run == 1 {
            daemon.restart();
        }
        next("end");
    }
    let last = daemon
        .dhow(&["logs", "talk/talker-default-0", "-n", "1", "--no-prefix"])
        .ends_with(0)
        .stdout;
    assert_eq!(last.lines().count(), 1);
    signal(follower.id(), Signal::INT);
    // Where signals of a terminal are ignored, as in a job in the background, it ends because nobody reads any more.
    drop(receiver);
    reader.join().unwrap();
    follower.wait().unwrap();
    daemon.finish();
}

#[test]
fn of_a_log_is_shown_what_is_asked_for() {
    let daemon = Daemon::start("some-logs");
    let script = "echo one; echo two fails; echo three fails; echo four; exec sleep 3600";
    daemon
        .deploy("talk", &[("talker", Service::shell(script))])
        .ends_with(0);
    let lines = |more: &[&str]| {
        let args = [&["logs", "talk", "--no-prefix"], more].concat();
        daemon.dhow(&args).ends_with(0).stdout
    };
    until("all is written", || lines(&[]).contains("four").then_some(()));
    assert_eq!(lines(&["--grep", "fails"]), "two fails\nthree fails\n");
    assert_eq!(lines(&["--grep", "fails", "-n", "1"]), "three fails\n");
    assert_eq!(lines(&["--since", "1h", "-n", "2"]), "three fails\nfour\n");
    assert_eq!(lines(&["--until", "1h"]), "");
    assert_eq!(lines(&["--since", "2001-01-01T00:00:00Z", "--grep", "Fails"]), "");
    let both = daemon.dhow(&["logs", "talk", "-f", "--until", "1h"]);
    both.ends_with(2).says(&["--until"]);
    daemon.finish();
}

/// A replica that was restarted tells what it wrote before.
#[test]
fn of_a_restarted_replica_the_run_before_is_shown() {
    let daemon = Daemon::start("earlier-logs");
    let runs = daemon.scratch.path.join("runs");
    let script = format!(
        "echo x >> {runs}; n=$(wc -l < {runs}); echo \"run $n\"; [ $n -ge 3 ] && exec sleep 3600; exit 1",
        runs = runs.display()
    );
    let backoff = json!({ "policy": "always", "backoff": { "initial": "100ms", "max": "100ms" } });
    let talker = Service::shell(&script).with("restart", backoff);
    let file = daemon.deployment("talk", &[("talker", talker)]);
    daemon.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    let lines = |more: &[&str]| {
        let args = [&["logs", "talk/talker", "--no-prefix"], more].concat();
        daemon.dhow(&args).ends_with(0).stdout
    };
    until("the third run", || lines(&[]).contains("run 3").then_some(()));
    assert_eq!(lines(&[]), "run 1\nrun 2\nrun 3\n");
    assert_eq!(lines(&["--previous"]), "run 2\n");
    assert_eq!(lines(&["--previous", "--grep", "3"]), "");
    daemon.dhow(&["logs", "talk", "-p", "-f"]).ends_with(2);
    daemon.finish();
}

#[test]
fn a_port_of_a_replica_is_one_here() {
    let daemon = Daemon::start("ports");
    let port = free_port();
    daemon
        .deploy("shop", &[("web", Service::web("v1", port))])
        .ends_with(0);
    let forward = |args: &[&str]| {
        let mut child = daemon.dhow_child(&[&["port-forward"], args].concat());
        let mut first = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut first).unwrap();
        let here = first
            .strip_prefix("127.0.0.1:")
            .and_then(|rest| rest.split(' ').next());
        let here = here.and_then(|port| port.parse::<u16>().ok());
        (child, here.unwrap_or_else(|| panic!("{first:?}")))
    };
    let (mut child, here) = forward(&["shop/web", &format!("0:{port}")]);
    for _ in 0..3 {
        let (status, body) = get(here, "/").unwrap();
        assert_eq!((status, body.trim()), (200, "v1"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let other = daemon.dhow(&[
        "port-forward",
        "shop/web-default-0",
        &format!("0:{}", daemon.api_port),
    ]);
    other
        .ends_with(1)
        .says(&["no endpoint of the service has this target port"]);
    daemon.dhow(&["port-forward", "shop/none", "0:80"]).ends_with(4);
    daemon.finish();
}

#[test]
fn commands_run_beside_a_replica() {
    let daemon = Daemon::start("exec");
    let secret = daemon.dhow_with_stdin(&["secret", "set", "token"], b"s3cret");
    secret.ends_with(0);
    let service = Service::sleeper().env("COLOUR", "blue").env("TOKEN", "$S:token");
    daemon.deploy("shop", &[("web", service)]).ends_with(0);
    let exec = |command: &[&str], stdin: &[u8]| {
        let args: Vec<&str> = ["exec", "shop/web-default-0", "--"]
            .iter()
            .chain(command)
            .copied()
            .collect();
        daemon.dhow_with_stdin(&args, stdin)
    };
    let echoed = exec(&["cat"], b"one\ntwo\n").ends_with(0);
    assert_eq!(
        (echoed.stdout.as_str(), echoed.stderr.as_str()),
        ("one\ntwo\n", "")
    );
    let megabyte = vec![b'x'; 1 << 20];
    assert_eq!(
        exec(&["wc", "-c"], &megabyte).ends_with(0).stdout.trim(),
        "1048576"
    );
    let both = exec(&["sh", "-c", "echo out; echo err >&2; exit 7"], b"").ends_with(7);
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("out\n", "err\n"));
    exec(&["sh", "-c", "kill -9 $$"], b"").ends_with(128 + 9);
    let inside = exec(&["sh", "-c", "echo $COLOUR $TOKEN"], b"").ends_with(0);
    assert_eq!(inside.stdout, "blue s3cret\n");
    let missing = exec(&["/no/such/program"], b"");
    assert_ne!(missing.code, 0);
    assert!(missing.stderr.contains("/no/such/program"), "{}", missing.stderr);
    let nobody = daemon
        .dhow(&["exec", "shop/web-default-9", "--", "true"])
        .ends_with(4);
    nobody.says(&["web-default-0"]);
    // The secret is on no disk in clear.
    let found = std::process::Command::new("grep")
        .args(["-rl", "s3cret"])
        .arg(daemon.data_dir())
        .output();
    assert_eq!(String::from_utf8(found.unwrap().stdout).unwrap(), "");
    daemon.finish();
}
