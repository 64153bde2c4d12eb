//! Adaptive services with the real binary: the load of requests raises and lowers their counts, and the first request wakes
//! one that has no replica.

use serde_json::json;

use crate::support::{Daemon, Load, Service, free_port, get, until};

/// A web service that is to have so many, by its requests.
fn adaptive(behaviour: &str, port: u16, (min, max): (u32, u32)) -> Service {
    let scale = json!({
        "mode": "adaptive", "min": min, "max": max, "cooldown": "3s", "targets": { "rps": 30 },
    });
    let rollout = json!({ "min_healthy": "500ms" });
    Service::web(behaviour, port)
        .with("scale", scale)
        .with("rollout", rollout)
}

fn desired(daemon: &Daemon) -> u64 {
    let status = daemon.dhow(&["status", "shop", "--json"]).json();
    status["services"][0]["desired"].as_u64().unwrap()
}

/// Waits until the service is to have so many, and has them.
fn comes_to(daemon: &Daemon, count: usize) {
    until(&format!("there are {count} replicas"), || {
        let replicas = daemon.replicas_of("web");
        let healthy = replicas.iter().filter(|replica| replica.healthy).count();
        let is_there = desired(daemon) == count as u64 && replicas.len() == count && healthy == count;
        is_there.then_some(())
    });
}

#[test]
fn the_first_request_wakes_it_load_raises_it_and_quiet_has_it_sleep() {
    let mut daemon = Daemon::start("scaling");
    let port = free_port();
    daemon
        .deploy("shop", &[("web", adaptive("v1", port, (0, 3)))])
        .ends_with(0);
    comes_to(&daemon, 0);

    // Several at once: all of them wait for one replica.
    let first: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || until("it listens", || get(port, "/").ok())))
        .collect();
    for answer in first {
        assert_eq!(answer.join().unwrap(), (200, "v1".into()));
    }
    let events = daemon.dhow(&["events"]).ends_with(0);
    events.shows(&["resized", "0 to 1 replicas: it is called"]);

    let load = Load::start(port, 4);
    comes_to(&daemon, 3);
    daemon.dhow(&["explain", "shop/web"]).ends_with(0).shows(&[
        "it is scaled by its load, between 0 and 3: rps 30",
        "rps: ",
        "for each wanted",
    ]);
    load.goes_on();
    load.ends_without_failure();
    comes_to(&daemon, 0);

    // And once more, by a daemon that has been killed meanwhile.
    daemon.kill9();
    daemon.restart();
    until("the endpoint listens", || {
        get(port, "/").ok().filter(|answer| answer.0 == 200)
    });
    assert!(desired(&daemon) >= 1);
    daemon.finish();
}

#[test]
fn a_rollout_of_an_adaptive_service_fails_no_request() {
    let daemon = Daemon::start("scaling-rollout");
    let port = free_port();
    daemon
        .deploy("shop", &[("web", adaptive("v1", port, (2, 4)))])
        .ends_with(0);
    let load = Load::start(port, 4);
    comes_to(&daemon, 4);
    daemon
        .deploy("shop", &[("web", adaptive("v2", port, (2, 4)))])
        .ends_with(0);
    load.goes_on();
    assert_eq!(
        desired(&daemon),
        4,
        "a version of its own has the count of the one before"
    );
    assert!(load.bodies().contains_key("v2"));

    // A person has the last word for a while.
    daemon
        .dhow(&["scale", "shop/web=3"])
        .ends_with(4)
        .says(&["--hold 1h"]);
    daemon.dhow(&["scale", "shop/web=3", "--hold", "1h"]).ends_with(0);
    comes_to(&daemon, 3);
    daemon
        .dhow(&["explain", "shop/web"])
        .ends_with(0)
        .shows(&["holds it at 3"]);
    load.goes_on();
    daemon.dhow(&["scale", "--release", "shop/web"]).ends_with(0);
    comes_to(&daemon, 4);
    load.ends_without_failure();
    comes_to(&daemon, 2);
    daemon.finish();
}
