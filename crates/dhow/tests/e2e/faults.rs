//! What a cluster is given to bear besides crashes: full disks, clocks that jump, packets that are lost or late.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    Cluster, Daemon, Network, Scratch, Service, SmallDisk, Where, deployment, is_root, rounds, skip, until,
};

/// Changes what a program takes for the time of day; from Debian's package faketime.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Together close to the largest deployment file, so that a log comes to the end of its disk soon.
const LARGE_BYTES: usize = 120 * 1024;
const LARGE_COUNT: usize = 7;

fn large(mark: &Path, number: u32) -> String {
    let filling = char::from(b'a' + u8::try_from(number % 26).unwrap());
    let value: String = std::iter::repeat_n(filling, LARGE_BYTES).collect();
    let mut service = Service::sleeper().manual();
    for name in 0..LARGE_COUNT {
        service = service.env(&format!("LARGE_{name}"), &value);
    }
    deployment(mark, "large", &[("it", service)])
}

/// All servers come to the same state.
fn agree(cluster: &Cluster) {
    until("all servers have the same state", || {
        let told = cluster.nodes.iter().map(|node| {
            let status = node.get("/api/v1/cluster?state_hash=true").unwrap().json();
            status["state_hash"].to_string()
        });
        (told.collect::<BTreeSet<_>>().len() == 1).then_some(())
    });
}

#[test]
fn a_server_whose_disk_is_full_stands_aside() {
    if !is_root() {
        return skip(
            "a_server_whose_disk_is_full_stands_aside",
            "only root can mount a file system",
        );
    }
    let mut cluster = Cluster::prepare("full", 3, Where::Loopback, "raft", &json!({}));
    let disks: Vec<SmallDisk> = cluster
        .nodes
        .iter()
        .map(|node| SmallDisk::mount(node.data_dir(), "size=160m"))
        .collect();
    cluster.nodes.iter_mut().for_each(|node| node.restart());
    cluster.until_complete();
    cluster.nodes[0]
        .deploy("calm", &[("it", Service::sleeper().replicas(9))])
        .ends_with(0);
    let mut number = 0;
    // One that follows, then the one that leads by then.
    for leads in [false, true] {
        // What ran on a server that was slow to come back runs elsewhere by now.
        for count in ["calm/it=0", "calm/it=9"] {
            cluster.nodes[0].dhow(&["scale", count, "--wait"]).ends_with(0);
        }
        let victim = match leads {
            true => cluster.until_leader(),
            false => cluster.follower(),
        };
        let pids = cluster.nodes[victim].workloads();
        assert!(!pids.is_empty());
        disks[victim].fill();
        // It has room in the segments that it made before; two of 16 MiB, at most.
        for _ in 0..50 {
            number += 1;
            let through = &cluster.nodes[(victim + 1) % 3];
            let file = through.file("large.json", &large(&through.mark, number));
            through.dhow(&["deploy", &file, "--detach"]).ends_with(0);
            if cluster.nodes[victim].has_ended() {
                break;
            }
        }
        // It says why, and ends rather than to serve what it cannot keep.
        let ended = cluster.nodes[victim].until_ended();
        assert!(!ended.success());
        let said = cluster.nodes[victim].said();
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(cluster.nodes[victim].workloads(), pids, "its replicas go on");
        disks[victim].free();
        cluster.nodes[victim].restart();
        cluster.until_complete();
    }
    agree(&cluster);
    cluster.finish();
}

/// The wall clocks of daemons that were started with it.
struct WallClock {
    path: PathBuf,
}

impl WallClock {
    fn of(scratch: &Scratch) -> Self {
        let clock = Self {
            path: scratch.path.join("clock"),
        };
        clock.step("+0");
        clock
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", FAKETIME.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.path.to_str().unwrap().to_owned()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // Both names, for old and new versions.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// So many seconds away from the true time.
    fn step(&self, seconds: &str) {
        // Nobody may read half of it.
        let new = self.path.with_extension("new");
        std::fs::write(&new, seconds).unwrap();
        std::fs::rename(new, &self.path).unwrap();
    }
}

/// The time of a daemon's last line, by its own clock.
fn said(daemon: &Daemon) -> jiff::Timestamp {
    let said = daemon.said();
    let mut times = said
        .lines()
        .rev()
        .filter_map(|line| line.split(' ').next()?.parse().ok());
    times.next().expect("a line begins with the time")
}

#[test]
fn a_clock_that_jumps_costs_nobody_its_lease() {
    if !Path::new(FAKETIME).exists() {
        return skip("a_clock_that_jumps_costs_nobody_its_lease", "no libfaketime");
    }
    let mut cluster = Cluster::prepare("clock", 3, Where::Loopback, "raft", &json!({}));
    let mut clocks = Vec::new();
    for node in &mut cluster.nodes {
        let clock = WallClock::of(&node.scratch);
        node.env = clock.env();
        clocks.push(clock);
        node.restart();
    }
    cluster.until_complete();
    cluster.nodes[0]
        .deploy("calm", &[("it", Service::sleeper().replicas(6))])
        .ends_with(0);
    let pids = || -> Vec<Vec<u32>> { cluster.nodes.iter().map(|node| node.workloads()).collect() };
    let before = pids();
    let leader = cluster.until_leader();
    let term = |node: usize| cluster.nodes[node].get("/api/v1/cluster").unwrap().json()["term"].clone();
    let first_term = term(leader);
    for victim in [leader, (leader + 1) % 3] {
        for step in ["+3600", "-3600", "+0"] {
            clocks[victim].step(step);
            // Long enough for every timer that looks at leases to have looked.
            thread::sleep(Duration::from_secs(3));
            let listed = cluster.nodes[leader].dhow(&["node", "ls", "--json"]).json();
            let ready = listed.as_array().unwrap().iter();
            assert!(
                ready.clone().all(|node| node["status"] == "ready"),
                "{step}: {listed}"
            );
            let events = cluster.nodes[leader].said();
            assert!(!events.contains("is lost"), "{events}");
        }
    }
    assert_eq!(pids(), before);
    assert_eq!(term(leader), first_term, "somebody else was elected");
    // One that starts with a wrong clock is let in by the others and lets them in.
    for step in ["+3000", "-3000"] {
        let victim = (leader + 1) % 3;
        cluster.nodes[victim].kill9();
        clocks[victim].step(step);
        cluster.nodes[victim].restart();
        let off = said(&cluster.nodes[victim]).duration_since(jiff::Timestamp::now());
        assert!(off.abs().as_secs() > 2_000, "{off:?}");
        cluster.until_complete();
        cluster.nodes[victim]
            .dhow(&["scale", "calm/it=6", "--wait"])
            .ends_with(0);
    }
    cluster.finish();
}

#[test]
fn lost_packets_cost_time_and_nothing_else() {
    if let Some(why) = Network::obstacle() {
        return skip("lost_packets_cost_time_and_nothing_else", &why);
    }
    let cluster = Cluster::raft("loss", 3, Where::Namespaces);
    cluster.nodes[0]
        .deploy("calm", &[("it", Service::sleeper().replicas(3))])
        .ends_with(0);
    let before: Vec<_> = cluster.nodes.iter().map(|node| node.workloads()).collect();
    let file = cluster.nodes[0].deployment("count", &[("it", Service::sleeper().manual())]);
    cluster.nodes[0].dhow(&["deploy", &file, "--detach"]).ends_with(0);
    cluster.network().lose(10);
    for round in 0..rounds(20, 200) {
        let node = &cluster.nodes[usize::try_from(round).unwrap() % 3];
        until("a write is taken", || {
            let target = format!("count/it={}", round % 2);
            (node.dhow(&["scale", &target]).code == 0).then_some(())
        });
    }
    cluster.network().lose(0);
    cluster.until_complete();
    let after: Vec<_> = cluster.nodes.iter().map(|node| node.workloads()).collect();
    assert!(
        before
            .iter()
            .flatten()
            .all(|pid| after.iter().flatten().any(|other| other == pid))
    );
    agree(&cluster);
    cluster.finish();
}

#[test]
fn slow_links_cost_time_and_no_election() {
    if let Some(why) = Network::obstacle() {
        return skip("slow_links_cost_time_and_no_election", &why);
    }
    let cluster = Cluster::raft("slow", 3, Where::SlowNamespaces);
    cluster.nodes[0]
        .deploy("calm", &[("it", Service::sleeper().replicas(3))])
        .ends_with(0);
    let pids = || -> Vec<Vec<u32>> { cluster.nodes.iter().map(|node| node.workloads()).collect() };
    let before = pids();
    let file = cluster.nodes[0].deployment("count", &[("it", Service::sleeper().manual())]);
    cluster.nodes[0].dhow(&["deploy", &file, "--detach"]).ends_with(0);
    let leader = cluster.until_leader();
    let term = || cluster.nodes[leader].get("/api/v1/cluster").unwrap().json()["term"].clone();
    let first_term = term();
    let write = |node: usize, number: u32| {
        let target = format!("count/it={}", number % 2);
        cluster.nodes[node].dhow(&["scale", &target]).ends_with(0);
    };
    // One that is far away holds up nobody; the others are enough.
    cluster
        .network()
        .delay((leader + 1) % 3, Duration::from_millis(200));
    (0..rounds(20, 200)).for_each(|number| write(leader, number));
    // All are far from each other: every write waits for one way there and back.
    let delay = Duration::from_millis(50);
    (0..3).for_each(|node| cluster.network().delay(node, delay));
    for number in 0..rounds(12, 120) {
        let began = Instant::now();
        write(usize::try_from(number).unwrap() % 3, number);
        let took = began.elapsed();
        assert!(took >= 2 * delay, "{took:?}: it did not go through the relay");
    }
    assert_eq!(term(), first_term, "somebody else was elected");
    assert_eq!(pids(), before);
    (0..3).for_each(|node| cluster.network().delay(node, Duration::ZERO));
    agree(&cluster);
    cluster.finish();
}
