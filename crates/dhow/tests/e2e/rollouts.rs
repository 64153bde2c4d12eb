//! New versions under constant load: good ones replace the old without a failed request, bad ones go back by
//! themselves, and there are never fewer healthy replicas than promised.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use crate::support::{Daemon, Load, Service, free_port, get, replicas_at, rounds, until};

const REPLICAS: u32 = 4;

fn web(behaviour: &str, port: u16, min_healthy: &str) -> Service {
    Service::web(behaviour, port)
        .replicas(REPLICAS)
        .with("rollout", json!({ "min_healthy": min_healthy }))
}

/// Looks again and again at how many replicas are healthy, and remembers the fewest.
struct Sampler {
    ends: Arc<AtomicBool>,
    fewest: Arc<Mutex<usize>>,
    thread: JoinHandle<u32>,
}

impl Sampler {
    fn start(daemon: &Daemon) -> Self {
        let (ends, fewest) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(usize::MAX)));
        let (end, least, socket) = (Arc::clone(&ends), Arc::clone(&fewest), daemon.socket());
        let thread = std::thread::spawn(move || {
            let mut samples = 0;
            while !end.load(Ordering::Relaxed) {
                let replicas = replicas_at(&socket);
                let healthy = replicas
                    .iter()
                    .filter(|replica| replica.runs() && replica.healthy)
                    .count();
                let mut least = least.lock().unwrap();
                *least = (*least).min(healthy);
                samples += 1;
                drop(least);
                std::thread::sleep(Duration::from_millis(20));
            }
            samples
        });
        Self { ends, fewest, thread }
    }

    /// There were never fewer than promised.
    #[track_caller]
    fn kept_the_promise(self) {
        self.ends.store(true, Ordering::Relaxed);
        let samples = self.thread.join().unwrap();
        let fewest = *self.fewest.lock().unwrap();
        assert!(samples > 10, "{samples} samples say nothing");
        let promised = usize::try_from(REPLICAS).unwrap();
        assert!(
            fewest >= promised,
            "only {fewest} replicas were healthy at a time"
        );
    }
}

/// The last revision of `shop`, by `dhow history`.
fn last_revision(daemon: &Daemon, state: &str) -> serde_json::Value {
    until("the history has the outcome", || {
        let history = daemon.dhow(&["history", "shop", "--json"]).json();
        let entries = history.as_array().unwrap().iter();
        let last = entries.filter(|entry| entry["brings_back"].is_null());
        let last = last
            .max_by_key(|entry| entry["revision"].as_u64())
            .unwrap()
            .clone();
        (last["state"] == state).then_some(last)
    })
}

#[test]
fn rollouts_fail_no_request() {
    let daemon = Daemon::start("rollouts");
    let port = free_port();
    daemon
        .deploy("shop", &[("web", web("v1", port, "1s"))])
        .ends_with(0);
    let load = Load::start(port, 4);
    let sampler = Sampler::start(&daemon);

    daemon
        .deploy("shop", &[("web", web("v2", port, "1s"))])
        .ends_with(0);
    load.goes_on();
    last_revision(&daemon, "good");
    let bodies = load.bodies();
    assert!(
        bodies.contains_key("v1") && bodies.contains_key("v2"),
        "{bodies:?}"
    );

    let crashed = daemon
        .deploy("shop", &[("web", web("v3 crash", port, "1s"))])
        .ends_with(1);
    crashed.says(&["web", "it exited with 3", "FATAL: version v3 cannot start"]);
    let crash = last_revision(&daemon, "reverted");
    let cause = crash["cause"].as_str().unwrap();
    assert!(cause.contains("exited with 3"), "{cause}");
    stable_at(&daemon, "v2", &load);

    let (sick_ms, min_healthy) = match rounds(0, 1) {
        0 => (1_500, "3s"),
        _ => (5_000, "8s"),
    };
    let sick = web(&format!("v4 sick {sick_ms}"), port, min_healthy);
    let sick = daemon.deploy("shop", &[("web", sick)]).ends_with(1);
    sick.says(&["web", "500"]);
    let sick = last_revision(&daemon, "reverted");
    let cause = sick["cause"].as_str().unwrap();
    assert!(cause.contains("check failed"), "{cause}");
    stable_at(&daemon, "v2", &load);

    sampler.kept_the_promise();
    let answered = load.ends_without_failure();
    eprintln!("{answered} requests answered, none failed");
    daemon.finish();
}

/// A check that looks at the wrong place is tried by one replica beside the old one, and taken back at its deadline.
#[test]
fn a_slip_in_a_check_takes_nothing_down() {
    let daemon = Daemon::start("checks");
    let port = free_port();
    let at = |url: &str, port| {
        let health = json!({
            "check": { "type": "http", "url": url },
            "interval": "100ms", "timeout": "5s", "start_grace": "0s", "retries": 2,
        });
        let rollout = json!({ "min_healthy": "500ms", "healthy_deadline": "3s" });
        let web = Service::web("v1", port).replicas(REPLICAS);
        web.with("health", health).with("rollout", rollout)
    };
    let checked = |url: &str| at(url, port);
    daemon
        .deploy("shop", &[("web", checked("/healthz"))])
        .ends_with(0);
    let pids = |daemon: &Daemon| -> Vec<_> { daemon.replicas_of("web").iter().map(|r| r.pid).collect() };
    let before = pids(&daemon);
    let load = Load::start(port, 4);
    let sampler = Sampler::start(&daemon);

    let slip = daemon
        .deploy("shop", &[("web", checked("http://localhost:1/healthz"))])
        .ends_with(1);
    slip.says(&["did not pass its new settings within 3s"]);
    last_revision(&daemon, "reverted");
    daemon
        .deploy("shop", &[("web", checked("/healthz?deep"))])
        .ends_with(0);
    last_revision(&daemon, "good");
    load.goes_on();
    sampler.kept_the_promise();
    load.ends_without_failure();
    assert_eq!(pids(&daemon), before, "nothing was restarted");

    // So is a port that cannot be had: nothing is lost for it, and it is tried again once it is free.
    let (taken, holder) = {
        let port = free_port();
        (port, std::net::TcpListener::bind(("127.0.0.1", port)).unwrap())
    };
    let moved = || at("/healthz?deep", taken);
    let refused = daemon.deploy("shop", &[("web", moved())]).ends_with(1);
    let owner = format!("port {taken} is taken by process {}", std::process::id());
    refused.says(&["did not pass its new settings within 3s", &owner]);
    last_revision(&daemon, "reverted");
    assert_eq!(get(port, "/").unwrap().1, "v1");
    drop(holder);
    daemon.deploy("shop", &[("web", moved())]).ends_with(0);
    assert_eq!(get(taken, "/").unwrap().1, "v1");
    until("the old port is given up", || {
        get(port, "/").is_err().then_some(())
    });
    assert_eq!(pids(&daemon), before, "nothing was restarted");
    daemon.finish();
}

/// Only this version answers, and everything is well.
fn stable_at(daemon: &Daemon, version: &str, load: &Load) {
    until("it is back", || {
        let status = daemon.dhow(&["status", "shop", "--json"]).json();
        let well = matches!(status["state"].as_str(), Some("stable" | "reverted"));
        let replicas = daemon.replicas_of("web");
        let calm = replicas.len() == usize::try_from(REPLICAS).unwrap();
        (well && calm && replicas.iter().all(|replica| replica.healthy)).then_some(())
    });
    let count = |bodies: std::collections::BTreeMap<String, u64>| {
        bodies
            .into_iter()
            .filter(|(body, _)| body != version)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    let others = count(load.bodies());
    load.goes_on();
    assert_eq!(count(load.bodies()), others, "another version still answers");
}

/// The numbers of a judgement: `failed 41 of 200 requests (…), the version beside it 0 of 800 requests`.
fn judged(cause: &str) -> [f64; 4] {
    let numbers = cause.split(" of ").flat_map(|part| {
        let (before, after) = (part.rsplit(' ').next(), part.split(' ').next());
        [after, before]
    });
    let numbers: Vec<f64> = numbers.flatten().filter_map(|word| word.parse().ok()).collect();
    let numbers: [f64; 4] = numbers
        .try_into()
        .unwrap_or_else(|found| panic!("{cause}: {found:?}"));
    numbers
}

/// Under load a version that fails every fifth request is found on its one replica, judged and taken back; it got its share
/// of the requests and no more. A good one follows without a failed request.
#[test]
fn a_canary_is_judged_by_its_requests() {
    let daemon = Daemon::start("canary");
    let port = free_port();
    let version = |behaviour: &str| {
        let rollout = json!({ "min_healthy": "1s", "canary": 1, "observe": "2m" });
        web(behaviour, port, "1s").with("rollout", rollout)
    };
    daemon.deploy("shop", &[("web", version("v1"))]).ends_with(0);
    let load = Load::start(port, 4);
    let sampler = Sampler::start(&daemon);
    let before = load.answered();
    let bad = version("v2 fails 5");
    let reverted = daemon.deploy("shop", &[("web", bad.clone())]).ends_with(1);
    reverted.says(&["the canary failed", "requests"]);
    let entry = last_revision(&daemon, "reverted");
    assert_eq!(entry["quarantined"], true, "{entry}");
    let [canary_errors, canary, base_errors, base] = judged(entry["cause"].as_str().unwrap());
    assert!(canary >= 200.0 && canary_errors > 0.1 * canary, "{entry}");
    assert!(base_errors == 0.0, "{entry}");
    let share = 1.0 / f64::from(REPLICAS + 1);
    let most = |all: f64| all * share + 3.0 * (all * share * (1.0 - share)).sqrt();
    assert!(canary <= most(canary + base), "{entry}");
    stable_at(&daemon, "v1", &load);

    // The same as its callers saw it: what failed was the canary's, and that was a share of what they asked meanwhile.
    let failures = load.failures();
    assert!(
        failures.iter().all(|failure| failure == "500: v2"),
        "{failures:?}"
    );
    let failed = u32::try_from(failures.len()).unwrap();
    let well = load.bodies().get("v2").copied().unwrap_or_default();
    let seen = f64::from(failed) + f64::from(u32::try_from(well).unwrap());
    let all = f64::from(u32::try_from(load.answered() - before).unwrap()) + f64::from(failed);
    assert!(seen >= canary && seen <= most(all), "{seen} of {all}");
    load.forgive();

    let again = daemon.deploy("shop", &[("web", bad)]).ends_with(4);
    again.says(&["was taken back", "--force"]);
    daemon.deploy("shop", &[("web", version("v3"))]).ends_with(0);
    load.goes_on();
    stable_at(&daemon, "v3", &load);
    sampler.kept_the_promise();
    let events = daemon.dhow(&["events"]).ends_with(0).stdout;
    assert!(
        events.contains("canary_judged") && events.contains("no difference that counts"),
        "{events}"
    );
    let answered = load.ends_without_failure();
    eprintln!("{seen} of {all} requests went to the bad canary; {answered} were answered in all");
    daemon.finish();
}
