//! Three servers that agree: what a user sees of them, and what they survive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Cluster, Network, Service, Where, by_node, is_alive, rounds, skip, spread, until};

#[test]
fn any_node_serves_for_all() {
    let cluster = Cluster::raft("any", 3, Where::Loopback);
    let follower = cluster.follower();
    let node = &cluster.nodes[follower];
    node.deploy("shop", &[("web", spread(6))]).ends_with(0);
    let shares = by_node(&node.replicas());
    assert_eq!(shares, BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
    for other in &cluster.nodes {
        let (mut own, mut theirs) = (node.ps(), other.ps());
        own.sort();
        theirs.sort();
        assert_eq!(own, theirs);
        let logs = other.dhow(&["logs", "shop"]).ends_with(0).stdout;
        assert_eq!(logs.matches("speaks").count(), 6, "{logs}");
        for replica in &own {
            let name = format!("shop/{}", replica.id);
            let said = other.dhow(&["exec", &name, "--", "sh", "-c", "echo in; exit 3"]);
            assert_eq!(said.ends_with(3).stdout, "in\n");
        }
        let status = other.dhow(&["cluster", "status", "--json"]).json();
        assert_eq!(status["mode"], "raft");
        assert_eq!(status["nodes"], 3);
        assert!(status["leader_id"].is_number(), "{status}");
        let listed = other.dhow(&["node", "ls", "--json"]).json();
        let roles: BTreeSet<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["role"].to_string())
            .collect();
        assert_eq!(roles, BTreeSet::from(["\"server\"".to_owned()]));
    }
    node.dhow(&["scale", "shop/web=3", "--wait"]).ends_with(0);
    cluster.finish();
}

/// Writers that each change a deployment of their own until they are told to stop.
fn writers(
    cluster: &Cluster,
    through: &[usize],
    stop: &AtomicBool,
    failed: &AtomicUsize,
    body: impl FnOnce(),
) -> usize {
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (number, node) in through.iter().enumerate() {
            let (node, done) = (&cluster.nodes[*node], &done);
            let name = format!("count-{number}");
            let never = Service::sleeper()
                .manual()
                .with("node_selector", json!({ "labels": { "no-such": "label" } }));
            let file = node.deployment(&name, &[("it", never)]);
            node.dhow(&["deploy", &file, "--detach"]).ends_with(0);
            scope.spawn(move || {
                let mut value = 0;
                while !stop.load(Ordering::Relaxed) {
                    value += 1;
                    let target = format!("{name}/it={value}");
                    let answer = node.dhow(&["scale", &target]);
                    match answer.code {
                        0 => done.fetch_add(1, Ordering::Relaxed),
                        _ => {
                            eprintln!("{target}: {}", answer.stderr);
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
                // The last acknowledged write is what everybody sees.
                let status = node.dhow(&["status", &name, "--json"]).json();
                let desired = status["services"][0]["desired"].as_u64().unwrap();
                assert!(
                    desired == value || failed.load(Ordering::Relaxed) > 0,
                    "{desired} {value}"
                );
            });
        }
        body();
        stop.store(true, Ordering::Relaxed);
    });
    done.into_inner()
}

#[test]
fn writes_go_on_when_the_leader_is_killed_or_stopped() {
    let mut cluster = Cluster::raft("leader", 3, Where::Loopback);
    for round in 0..rounds(2, 20) {
        let leader = cluster.until_leader();
        let through: Vec<_> = (0..3).filter(|node| *node != leader).collect();
        let (stop, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
        // The one that is ended is not needed for the writers, so that it can be taken out here.
        let mut old = std::mem::replace(&mut cluster.nodes[leader], crate::support::Daemon::placeholder());
        let done = writers(&cluster, &through, &stop, &failed, || {
            thread::sleep(Duration::from_millis(500));
            match round % 2 {
                0 => old.kill9(),
                _ => drop(old.term()),
            }
            thread::sleep(Duration::from_secs(3));
        });
        assert_eq!(failed.into_inner(), 0, "round {round}: a write failed");
        assert!(done > 0);
        old.restart();
        cluster.nodes[leader] = old;
        cluster.until_complete();
    }
    let hashes: BTreeSet<u64> = cluster.nodes.iter().map(|node| node.revision()).collect();
    assert!(!hashes.is_empty());
    cluster.finish();
}

#[test]
fn a_leader_that_hangs_holds_nobody_up() {
    let cluster = Cluster::raft("hangs", 3, Where::Loopback);
    let never = Service::sleeper().manual();
    let leader = cluster.until_leader();
    let node = &cluster.nodes[(leader + 1) % 3];
    let file = node.deployment("calm", &[("it", never)]);
    node.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    cluster.nodes[leader].pause();
    // Both are sent to the one that hangs: nobody knows yet that it does.
    node.dhow(&["scale", "calm/it=0"]).ends_with(0);
    let read = node.get("/api/v1/deployments/calm").unwrap();
    assert_eq!(read.status, 200, "{}", read.json());
    cluster.nodes[leader].resume();
    until("it follows", || (cluster.leader()? != leader).then_some(()));
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn a_restarted_daemon_moves_nothing() {
    let mut cluster = Cluster::raft("restart", 3, Where::Loopback);
    cluster.nodes[0].deploy("calm", &[("it", spread(9))]).ends_with(0);
    let before: BTreeMap<_, _> = cluster.nodes[0]
        .replicas()
        .into_iter()
        .map(|replica| {
            (
                replica.id.clone(),
                (replica.node_id, replica.pid, replica.restarts),
            )
        })
        .collect();
    for node in 0..3 {
        cluster.nodes[node].kill9();
        thread::sleep(Duration::from_secs(2));
        cluster.nodes[node].restart();
        cluster.until_complete();
    }
    let after: BTreeMap<_, _> = cluster.nodes[0]
        .replicas()
        .into_iter()
        .map(|replica| {
            (
                replica.id.clone(),
                (replica.node_id, replica.pid, replica.restarts),
            )
        })
        .collect();
    assert_eq!(before, after);
    cluster.finish();
}

#[test]
fn a_dead_node_is_replaced_and_may_come_back() {
    let mut cluster = Cluster::raft("dead", 3, Where::Loopback);
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(60))])
        .ends_with(0);
    assert_eq!(
        by_node(&cluster.nodes[0].replicas()),
        BTreeMap::from([(1, 20), (2, 20), (3, 20)])
    );
    let leader = cluster.until_leader();
    let victims = [cluster.follower(), leader];
    for victim in victims {
        let id = victim as u64 + 1;
        cluster.power_off(victim);
        let other = (victim + 1) % 3;
        until("all replicas run again, elsewhere", || {
            let shares = by_node(&cluster.nodes[other].replicas());
            (shares.values().sum::<usize>() == 60 && !shares.contains_key(&id)).then_some(())
        });
        cluster.nodes[victim].restart();
        cluster.until_complete();
        until("nothing runs twice", || {
            let running: usize = (0..3).map(|node| cluster.workloads(node)).sum();
            (running == 60).then_some(())
        });
    }
    cluster.finish();
}

/// A node that was given up while it was only cut off has what others run by now: on its return it stops those, and
/// only those.
#[test]
fn a_node_that_was_given_up_stops_what_is_not_its_own_any_more() {
    if let Some(why) = Network::obstacle() {
        return skip(
            "a_node_that_was_given_up_stops_what_is_not_its_own_any_more",
            &why,
        );
    }
    let cluster = Cluster::raft("given-up", 3, Where::Namespaces);
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(9))])
        .ends_with(0);
    let follower = cluster.follower();
    let other = (follower + 1) % 3;
    let id = follower as u64 + 1;
    let theirs: usize = (0..3)
        .filter(|node| *node != follower)
        .map(|node| cluster.workloads(node))
        .sum();
    assert_eq!((cluster.workloads(follower), theirs), (3, 6));
    cluster.network().cut(follower);
    until("all run elsewhere", || {
        let shares = by_node(&cluster.nodes[other].replicas());
        (shares.values().sum::<usize>() == 9 && !shares.contains_key(&id)).then_some(())
    });
    // It does not know, and its replicas are of use to whoever can still reach them.
    assert_eq!(cluster.workloads(follower), 3);
    let kept = cluster.nodes[other].workloads();
    cluster.network().heal(follower);
    until("its own are stopped", || {
        (cluster.workloads(follower) == 0).then_some(())
    });
    assert_eq!(cluster.nodes[other].workloads(), kept);
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn a_drained_node_is_empty_and_nothing_was_missing() {
    let cluster = Cluster::raft("drain", 3, Where::Loopback);
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(6))])
        .ends_with(0);
    let watched = AtomicBool::new(false);
    let fewest = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut fewest = usize::MAX;
            while !watched.load(Ordering::Relaxed) {
                let running = cluster.nodes[0]
                    .replicas()
                    .iter()
                    .filter(|replica| replica.runs())
                    .count();
                fewest = fewest.min(running);
                thread::sleep(Duration::from_millis(20));
            }
            fewest
        });
        let said = cluster.nodes[0].dhow(&["node", "drain", "2"]).ends_with(0).stderr;
        assert!(said.contains("safe to stop"), "{said}");
        watched.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(fewest >= 6, "at one moment only {fewest} ran");
    assert_eq!(cluster.workloads(1), 0);
    let listed = cluster.nodes[2].dhow(&["node", "ls", "--json"]).json();
    assert_eq!(listed[1]["status"], "drained");
    cluster.nodes[2].dhow(&["node", "undrain", "2"]).ends_with(0);
    cluster.nodes[2]
        .dhow(&["scale", "fleet/it=9", "--wait"])
        .ends_with(0);
    assert!(cluster.workloads(1) > 0);
    cluster.finish();
}

#[test]
fn a_cut_off_server_serves_nobody_and_returns_without_an_election() {
    if let Some(why) = Network::obstacle() {
        return skip(
            "a_cut_off_server_serves_nobody_and_returns_without_an_election",
            &why,
        );
    }
    let cluster = Cluster::raft("cut", 3, Where::Namespaces);
    cluster.nodes[0].deploy("calm", &[("it", spread(3))]).ends_with(0);
    let term = |node: usize| cluster.nodes[node].get("/api/v1/cluster").unwrap().json()["term"].clone();
    let follower = cluster.follower();
    let before = term(follower);
    cluster.network().cut(follower);
    thread::sleep(Duration::from_secs(4));
    let refused = cluster.nodes[follower].dhow(&["scale", "calm/it=4"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    let stale = cluster.nodes[follower].get("/api/v1/deployments/calm?consistency=stale");
    assert_eq!(stale.unwrap().status, 200);
    cluster.network().heal(follower);
    until("it follows again", || {
        cluster.nodes[follower]
            .dhow(&["status", "calm"])
            .code
            .eq(&0)
            .then_some(())
    });
    assert_eq!(term(follower), before, "its return has cost an election");
    // The leader cut off: the others go on without it, and what it is asked meanwhile never happens.
    let leader = cluster.until_leader();
    let others: Vec<_> = (0..3).filter(|node| *node != leader).collect();
    cluster.network().cut(leader);
    let alone = cluster.nodes[leader].dhow(&["scale", "calm/it=7"]);
    assert_ne!(alone.code, 0);
    cluster.nodes[others[0]]
        .dhow(&["scale", "calm/it=5", "--wait"])
        .ends_with(0);
    cluster.network().heal(leader);
    until("it has what the others have", || {
        let status = cluster.nodes[leader].dhow(&["status", "calm", "--json"]);
        (status.code == 0 && status.json()["services"][0]["desired"] == 5).then_some(())
    });
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn replicas_keep_running_while_their_node_is_cut_off() {
    if let Some(why) = Network::obstacle() {
        return skip("replicas_keep_running_while_their_node_is_cut_off", &why);
    }
    let cluster = Cluster::raft("keep", 3, Where::Namespaces);
    cluster.nodes[0].deploy("calm", &[("it", spread(3))]).ends_with(0);
    let follower = cluster.follower();
    let pids = cluster.nodes[follower].workloads();
    assert_eq!(pids.len(), 1);
    cluster.network().cut(follower);
    // Shorter than the grace: nothing is moved.
    thread::sleep(Duration::from_secs(5));
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    cluster.network().heal(follower);
    cluster.until_complete();
    assert_eq!(cluster.nodes[follower].workloads(), pids);
    cluster.finish();
}

#[test]
fn a_server_that_is_stopped_cuts_nobody_off() {
    let mut cluster = Cluster::raft("stopped", 3, Where::Loopback);
    cluster.nodes[0]
        .deploy("fleet", &[("it", Service::sleeper().replicas(3))])
        .ends_with(0);
    // The sessions of nodes, its own too, come in by its API; they end before that waits for what is open.
    for node in [cluster.until_leader(), cluster.follower()] {
        let ended = cluster.nodes[node].term();
        let said = cluster.nodes[node].said();
        assert_eq!(ended.code(), Some(0), "{said}");
        assert!(!said.contains("connections are cut off"), "{said}");
        assert!(!said.contains("did not end"), "{said}");
        cluster.nodes[node].restart();
        cluster.until_complete();
    }
    cluster.finish();
}
