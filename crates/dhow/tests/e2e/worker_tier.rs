//! Servers and workers: how workers join, what they run, and what both survive.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Cluster, Daemon, Network, Person, Replica, Service, by_node, is_alive, is_root, signal, skip, spread,
    until,
};

/// A leader that was held up for seconds, as on a busy machine, or was elected anew doubts itself and gives everybody
/// this time to be heard: a test that waits for a loss does not wait for the usual five minutes.
fn soon() -> Value {
    json!({ "failover_heartbeat_ttl": 12 })
}

/// What must not change where nothing was to happen.
fn lives(replicas: &[Replica]) -> BTreeSet<(String, Option<u64>, Option<u32>, u64)> {
    let live = replicas.iter().filter(|replica| replica.runs());
    live.map(|replica| (replica.id.clone(), replica.node_id, replica.pid, replica.restarts))
        .collect()
}

/// Programs that others find by name, for which every node that runs one has a balancer.
fn found_by_name(count: u32) -> Service {
    let endpoint = json!({ "name": "pg", "protocol": "tcp", "port": 5432 });
    spread(count).with("endpoints", json!([endpoint]))
}

fn until_balanced(worker: &Daemon) {
    let runs = worker.data_dir().join("proxy/run");
    until("its balancer runs", || {
        std::fs::read_dir(&runs).ok()?.next().map(|_| ())
    });
}

fn status_of(cluster: &Cluster, id: u64) -> String {
    let leader = cluster.until_leader();
    let shown = cluster.nodes[leader].dhow(&["node", "show", &id.to_string(), "--json"]);
    match shown.code {
        0 => shown.json()["status"].as_str().unwrap().to_owned(),
        _ => "gone".to_owned(),
    }
}

#[test]
fn workers_run_what_servers_decide() {
    let cluster = Cluster::worker_tier("tier", 3, 2, &json!({}));
    let ids: Vec<u64> = cluster
        .workers
        .iter()
        .map(|worker| worker.node_id.unwrap())
        .collect();
    assert!(ids.iter().all(|id| *id > 3), "{ids:?}");
    let node = &cluster.nodes[cluster.follower()];
    node.deploy("shop", &[("web", spread(4))]).ends_with(0);
    let shares = by_node(&node.replicas());
    assert_eq!(
        shares,
        BTreeMap::from([(ids[0], 2), (ids[1], 2)]),
        "on workers alone"
    );
    for server in &cluster.nodes {
        let logs = server.dhow(&["logs", "shop"]).ends_with(0).stdout;
        assert_eq!(logs.matches("speaks").count(), 4, "{logs}");
        for replica in server.ps() {
            let name = format!("shop/{}", replica.id);
            let said = server.dhow(&["exec", &name, "--", "sh", "-c", "echo in; exit 3"]);
            assert_eq!(said.ends_with(3).stdout, "in\n");
            let size = ["exec", "-t", &name, "--", "sh", "-c", "stty size; exit 5"];
            let mut person = Person::sits_down(server, &size);
            person.sees("40 100\r\n");
            person.ends_with(5);
        }
        let listed = server.dhow(&["node", "ls", "--json"]).json();
        let roles: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["role"].clone())
            .collect();
        assert_eq!(roles, ["server", "server", "server", "worker", "worker"]);
        let status = server.dhow(&["cluster", "status", "--json"]).json();
        assert_eq!(status["mode"], "worker-tier");
    }
    // A worker says where to ask instead.
    let asked = cluster.workers[0].dhow(&["ps"]);
    assert_eq!(asked.code, 4, "{}", asked.stderr);
    assert!(asked.stderr.contains("ask a server"), "{}", asked.stderr);
    assert_eq!(cluster.workers[0].get("/health").unwrap().status, 200);
    // Its own images are its own business.
    if is_root() {
        cluster.workers[0].dhow(&["image", "ls"]).ends_with(0);
    }
    cluster.finish();
}

#[test]
fn a_server_that_is_labelled_runs_replicas_too() {
    let extra = json!({ "labels": { "dhow.replicas": "true" } });
    let cluster = Cluster::worker_tier("labelled", 3, 0, &extra);
    cluster.nodes[0]
        .deploy("shop", &[("web", spread(3))])
        .ends_with(0);
    let shares = by_node(&cluster.nodes[0].replicas());
    assert_eq!(shares, BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    cluster.finish();
}

#[test]
fn a_restarted_worker_is_the_same_node_and_moves_nothing() {
    let mut cluster = Cluster::worker_tier("again", 3, 2, &json!({}));
    cluster.nodes[0].deploy("calm", &[("it", spread(6))]).ends_with(0);
    let before = lives(&cluster.nodes[0].replicas());
    let id = cluster.workers[0].node_id;
    cluster.workers[0].kill9();
    thread::sleep(Duration::from_secs(4));
    assert_eq!(
        lives(&cluster.nodes[0].replicas()),
        before,
        "within the grace nothing is moved"
    );
    // Without its token: it is needed for joining alone.
    std::fs::remove_file(cluster.workers[0].scratch.path.join("token")).unwrap();
    cluster.workers[0].restart();
    cluster.learn_id(0);
    assert_eq!(cluster.workers[0].node_id, id);
    cluster.until_complete();
    // An orderly end and a start.
    assert_eq!(cluster.workers[1].term().code(), Some(0));
    cluster.workers[1].restart();
    cluster.until_complete();
    assert_eq!(lives(&cluster.nodes[0].replicas()), before);
    cluster.finish();
}

#[test]
fn what_a_dead_worker_ran_is_placed_elsewhere() {
    let mut cluster = Cluster::worker_tier("dead", 3, 2, &soon());
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(6))])
        .ends_with(0);
    let (dead, other) = (
        cluster.workers[0].node_id.unwrap(),
        cluster.workers[1].node_id.unwrap(),
    );
    cluster.power_off_worker(0);
    until("all replicas run on the other one", || {
        let shares = by_node(&cluster.nodes[0].replicas());
        (shares == BTreeMap::from([(other, 6)])).then_some(())
    });
    assert_eq!(status_of(&cluster, dead), "unreachable");
    cluster.workers[0].restart();
    cluster.until_complete();
    assert_eq!(cluster.workers[1].workloads().len(), 6, "what has moved stays");
    cluster.finish();
}

#[test]
fn a_worker_that_is_cut_off_stops_what_is_no_longer_its_own() {
    if let Some(why) = Network::obstacle() {
        return skip("a_worker_that_is_cut_off_stops_what_is_no_longer_its_own", &why);
    }
    let cluster = Cluster::worker_tier_apart("apart", 3, 2, &soon());
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(4))])
        .ends_with(0);
    // Across a network, without a word about where the workers are.
    for server in &cluster.nodes {
        let logs = server.dhow(&["logs", "fleet"]).ends_with(0).stdout;
        assert_eq!(logs.matches("speaks").count(), 4, "{logs}");
    }
    let (cut, other) = (
        cluster.workers[0].node_id.unwrap(),
        cluster.workers[1].node_id.unwrap(),
    );
    let network = cluster.network();
    network.cut(cluster.nodes.len());
    // A short while moves nothing, and what runs there runs on.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(
        by_node(&cluster.nodes[0].replicas()),
        BTreeMap::from([(cut, 2), (other, 2)])
    );
    until("its replicas run elsewhere", || {
        (by_node(&cluster.nodes[0].replicas()) == BTreeMap::from([(other, 4)])).then_some(())
    });
    assert_eq!(cluster.workers[0].workloads().len(), 2, "nobody could tell it");
    network.heal(cluster.nodes.len());
    until("it has heard and stopped them", || {
        cluster.workers[0].workloads().is_empty().then_some(())
    });
    cluster.until_complete();
    assert_eq!(cluster.workers[1].workloads().len(), 4);
    cluster.finish();
}

#[test]
fn nothing_restarts_when_servers_end() {
    let mut cluster = Cluster::worker_tier("servers", 3, 2, &json!({}));
    cluster.nodes[0].deploy("calm", &[("it", spread(4))]).ends_with(0);
    let before = lives(&cluster.nodes[0].replicas());
    let leader = cluster.until_leader();
    cluster.nodes[leader].kill9();
    let next = until("another one leads", || {
        cluster.leader().filter(|next| *next != leader)
    });
    until("the workers have found it", || {
        let ready = cluster
            .workers
            .iter()
            .filter(|worker| worker.get("/ready").is_ok_and(|reply| reply.status == 200));
        (ready.count() == 2).then_some(())
    });
    assert_eq!(lives(&cluster.nodes[next].replicas()), before);
    cluster.nodes[leader].restart();
    // All of them: replicas go on, and are known again afterwards.
    for server in &mut cluster.nodes {
        server.kill9();
    }
    thread::sleep(Duration::from_secs(15));
    let pids = before.iter().filter_map(|(_, _, pid, _)| *pid);
    assert!(pids.clone().count() == 4 && pids.clone().all(is_alive));
    for server in &mut cluster.nodes {
        server.begin();
    }
    until("the cluster is whole again", || {
        let leader = cluster.leader()?;
        (lives(&cluster.nodes[leader].replicas()) == before).then_some(())
    });
    cluster.until_complete();
    assert_eq!(lives(&cluster.nodes[0].replicas()), before);
    assert!(pids.clone().all(is_alive));
    cluster.finish();
}

#[test]
fn a_worker_goes_on_alone() {
    let mut cluster = Cluster::worker_tier("alone", 3, 1, &json!({}));
    cluster.nodes[0].deploy("calm", &[("it", spread(2))]).ends_with(0);
    let before = cluster.workers[0].workloads();
    for server in &mut cluster.nodes {
        server.kill9();
    }
    // Started while nobody answers, it takes up what it had.
    cluster.workers[0].kill9();
    cluster.workers[0].begin();
    until("it answers", || {
        let reply = cluster.workers[0].get("/health").ok()?;
        (reply.status == 200).then_some(())
    });
    assert_eq!(cluster.workers[0].get("/ready").unwrap().status, 503);
    assert_eq!(cluster.workers[0].workloads(), before);
    // What ends is started again.
    signal(before[0], rustix::process::Signal::KILL);
    until("it runs again", || {
        let now = cluster.workers[0].workloads();
        (now.len() == 2 && !now.contains(&before[0])).then_some(())
    });
    let now = cluster.workers[0].workloads();
    for server in &mut cluster.nodes {
        server.begin();
    }
    // And is told afterwards.
    until("the servers have heard", || {
        let replicas = cluster.nodes[cluster.leader()?].replicas();
        let pids: BTreeSet<u32> = replicas.iter().filter_map(|replica| replica.pid).collect();
        let restarts: u64 = replicas.iter().map(|replica| replica.restarts).sum();
        (pids == now.iter().copied().collect() && restarts == 1).then_some(())
    });
    cluster.until_complete();
    assert_eq!(cluster.workers[0].workloads(), now);
    cluster.finish();
}

#[test]
fn a_worker_that_is_drained_for_good_ends() {
    let mut cluster = Cluster::worker_tier("drain", 3, 2, &json!({}));
    cluster.nodes[0]
        .deploy("fleet", &[("it", found_by_name(4))])
        .ends_with(0);
    until_balanced(&cluster.workers[0]);
    let id = cluster.workers[0].node_id.unwrap();
    cluster.nodes[1]
        .dhow(&["node", "drain", &id.to_string(), "--shutdown"])
        .ends_with(0);
    let ended = cluster.workers[0].ended();
    assert_eq!(ended.code(), Some(0), "{}", cluster.workers[0].said());
    assert_eq!(by_node(&cluster.nodes[0].replicas()).values().sum::<usize>(), 4);
    assert_eq!(cluster.workers[0].workloads().len(), 0);
    cluster.workers[0].nothing_is_left();
    // Started again while it is drained it ends again; undrained it serves.
    cluster.workers[0].begin();
    assert_eq!(cluster.workers[0].ended().code(), Some(0));
    cluster.nodes[1]
        .dhow(&["node", "undrain", &id.to_string()])
        .ends_with(0);
    cluster.workers[0].restart();
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn a_removed_worker_is_refused_from_then_on() {
    let mut cluster = Cluster::worker_tier("removed", 3, 2, &json!({}));
    cluster.nodes[0]
        .deploy("fleet", &[("it", found_by_name(4))])
        .ends_with(0);
    until_balanced(&cluster.workers[0]);
    let id = cluster.workers[0].node_id.unwrap();
    let refused = cluster.nodes[0].dhow(&["node", "rm", &id.to_string()]);
    assert_eq!(refused.code, 4, "it has replicas: {}", refused.stderr);
    cluster.nodes[0]
        .dhow(&["node", "rm", &id.to_string(), "--force"])
        .ends_with(0);
    // Its stream is closed, its replicas are stopped, and it ends with the reason.
    let ended = cluster.workers[0].ended();
    let said = cluster.workers[0].said();
    assert_eq!(ended.code(), Some(4), "{said}");
    assert!(said.contains("dhow token create-worker"), "{said}");
    assert_eq!(cluster.workers[0].workloads().len(), 0);
    cluster.workers[0].nothing_is_left();
    assert_eq!(status_of(&cluster, id), "gone");
    // One that was removed while its daemon was away stops what it left, when it comes back.
    let other = cluster.workers[1].node_id.unwrap();
    let token = cluster.worker_token(&[]);
    let third = cluster.add_worker(&token);
    cluster.workers[third].restart();
    cluster.learn_id(third);
    cluster.workers[1].kill9();
    assert!(!cluster.workers[1].workloads().is_empty());
    cluster.nodes[0]
        .dhow(&["node", "rm", &other.to_string(), "--force"])
        .ends_with(0);
    cluster.workers[1].begin();
    assert_eq!(cluster.workers[1].ended().code(), Some(4));
    assert_eq!(cluster.workers[1].workloads().len(), 0);
    // Neither its certificate nor the token that it joined with lets it back in.
    cluster.workers[0].begin();
    assert_eq!(cluster.workers[0].ended().code(), Some(4));
    // With another one it is another node.
    let token = cluster.worker_token(&[]);
    cluster.workers[0].file("token", &token);
    cluster.workers[0].restart();
    assert_ne!(cluster.learn_id(0), id);
    cluster.until_complete();
    until("the fleet is whole", || {
        (by_node(&cluster.nodes[0].replicas()).values().sum::<usize>() == 4).then_some(())
    });
    cluster.finish();
}
