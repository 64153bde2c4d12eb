//! A daemon that is killed at any moment stops no replica, starts none twice and loses no exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{Daemon, Replica, Seed, Service, is_alive, rounds, until};

const STEADY: u32 = 20;

/// What is under way when the daemon dies.
#[derive(Clone, Copy, Debug)]
enum Change {
    Scale(u32),
    Deploy,
}

/// Ends with 7 once a file is there.
fn waiter(waits_for: &str) -> Service {
    let script =
        format!("echo x >> {waits_for}.starts; until [ -e {waits_for} ]; do sleep 0.02; done; exit 7");
    Service::shell(&script).never_restarted()
}

fn services(version: u32) -> [(&'static str, Service); 2] {
    let rollout = serde_json::json!({ "min_healthy": "0s", "max_surge": 4 });
    let mover = Service::sleeper().env("VERSION", &version.to_string()).manual();
    [
        ("steady", Service::sleeper().replicas(STEADY)),
        ("mover", mover.with("rollout", rollout)),
    ]
}

fn pids(replicas: &[Replica]) -> BTreeMap<String, Option<u32>> {
    let running = replicas.iter().filter(|replica| replica.runs());
    running
        .map(|replica| (format!("{}/{}", replica.id, replica.generation), replica.pid))
        .collect()
}

fn command(change: Change, file: &str, waits: bool) -> Vec<String> {
    let mut args = match change {
        Change::Scale(count) => vec!["scale".into(), format!("fleet/mover={count}")],
        Change::Deploy => vec!["deploy".into(), file.to_owned()],
    };
    match (change, waits) {
        (Change::Scale(_), true) => args.push("--wait".into()),
        (Change::Deploy, false) => args.push("--detach".into()),
        (Change::Scale(_), false) | (Change::Deploy, true) => {}
    }
    args
}

#[test]
fn a_killed_daemon_loses_nothing() {
    let mut seed = Seed::new("a_killed_daemon_loses_nothing");
    let mut daemon = Daemon::start("survival");
    let mut count = 4;
    let mut version = 0;
    daemon.deploy("fleet", &services(version)).ends_with(0);
    for round in 0..rounds(3, 50) {
        let scale = format!("fleet/mover={count}");
        daemon.dhow(&["scale", &scale, "--wait"]).ends_with(0);
        let trigger = daemon.scratch.path.join(format!("go-{round}"));
        let trigger = trigger.to_str().unwrap().to_owned();
        let ender = format!("ender-{round}");
        daemon
            .deploy(&ender, &[("waiter", waiter(&trigger))])
            .ends_with(0);
        let before = daemon.replicas();
        assert_eq!(pids(&before).len(), usize::try_from(STEADY + count + 1).unwrap());

        let change = match seed.below(2) {
            0 => Change::Scale(u32::try_from(seed.below(12)).unwrap()),
            _ => Change::Deploy,
        };
        match change {
            Change::Scale(wanted) => count = wanted,
            Change::Deploy => version += 1,
        }
        let file = daemon.deployment("fleet", &services(version));
        let pause = Duration::from_millis(u64::try_from(seed.below(400)).unwrap());
        eprintln!("round {round}: {change:?}, killed after {pause:?}");
        die_over(&mut daemon, &command(change, &file, false), pause);

        // One ends while nobody looks.
        std::fs::write(&trigger, "").unwrap();
        let waiter = before.iter().find(|replica| replica.service == "waiter").unwrap();
        let waiter_pid = waiter.pid.unwrap();
        until("the waiter ends", || (!is_alive(waiter_pid)).then_some(()));

        daemon.restart();
        let again = command(change, &file, true);
        let again: Vec<&str> = again.iter().map(String::as_str).collect();
        daemon.dhow(&again).ends_with(0);
        check(&daemon, &before, change, count, &trigger);
        daemon.dhow(&["rm", &ender, "--wait"]).ends_with(0);
    }
    daemon.finish();
}

/// Kills the daemon that long after a command has begun.
fn die_over(daemon: &mut Daemon, args: &[String], pause: Duration) {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let under_way = daemon.dhow_child(&args);
    std::thread::sleep(pause);
    daemon.kill9();
    // What it answers does not matter: the daemon died over it, or not.
    drop(under_way.wait_with_output().unwrap());
}

fn check(daemon: &Daemon, before: &[Replica], change: Change, count: u32, trigger: &str) {
    // The command waited for its own deployment alone; the waiter's end is found out beside it.
    let after = until("the waiter's end is known", || {
        let after = daemon.ps();
        let waiter = after.iter().find(|replica| replica.service == "waiter");
        waiter
            .is_none_or(|waiter| waiter.exit_code.is_some())
            .then_some(after)
    });
    let (old, new) = (pids(before), pids(&after));
    for (name, pid) in &old {
        let stays =
            name.starts_with("steady") || matches!(change, Change::Scale(_)) && name.starts_with("mover");
        if stays && let Some(now) = new.get(name) {
            assert_eq!(now, pid, "{name} is another process now");
        }
        assert!(
            !name.starts_with("steady") || new.contains_key(name),
            "{name} is gone: {after:#?}"
        );
    }
    let of = |service: &str| {
        after
            .iter()
            .filter(|replica| replica.service == service && replica.runs())
            .count()
    };
    assert_eq!(of("steady"), usize::try_from(STEADY).unwrap());
    assert_eq!(of("mover"), usize::try_from(count).unwrap(), "{after:#?}");
    assert!(after.iter().all(|replica| replica.restarts == 0), "{after:#?}");

    let waiter = after.iter().find(|replica| replica.service == "waiter").unwrap();
    assert_eq!(waiter.exit_code, Some(7), "{waiter:?}");
    let starts = std::fs::read_to_string(format!("{trigger}.starts")).unwrap();
    assert_eq!(starts, "x\n", "it was started more than once");

    let listed: BTreeSet<u32> = after
        .iter()
        .filter(|replica| replica.runs())
        .filter_map(|r| r.pid)
        .collect();
    let there: BTreeSet<u32> = daemon.workloads().into_iter().collect();
    assert_eq!(listed, there, "what is listed is what runs");
}
