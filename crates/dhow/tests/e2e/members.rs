//! Servers that come, go and are lost for good: the cluster behind them stays what it was.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, Service, Where, spread, until};

fn speaker(count: u32) -> Service {
    Service::shell("echo the word is $WORD; exec sleep 3600")
        .env("WORD", "$S:word")
        .replicas(count)
}

fn settings(daemon: &Daemon) -> Value {
    serde_json::from_str(daemon.config.as_ref().unwrap()).unwrap()
}

fn set_peers(daemon: &mut Daemon, peers: &[Value]) {
    let mut config = settings(daemon);
    config["cluster"]["peers"] = json!(peers);
    daemon.config = Some(config.to_string());
}

fn peers(daemon: &Daemon) -> Vec<Value> {
    settings(daemon)["cluster"]["peers"].as_array().unwrap().clone()
}

fn add(through: &Daemon, peer: &Value) {
    let text = |key: &str| peer[key].as_str().unwrap().to_owned();
    let (id, raft, api) = (peer["id"].to_string(), text("raft_addr"), text("api_addr"));
    through
        .dhow(&["cluster", "add", &id, "--raft-addr", &raft, "--api-addr", &api])
        .ends_with(0);
}

/// Ids of the servers that vote.
fn voters(daemon: &Daemon) -> Vec<u64> {
    let status = daemon.get("/api/v1/cluster").unwrap().json();
    let members = status["members"].as_array().unwrap().iter();
    let voting = members.filter(|member| member["voter"] == true);
    voting.map(|member| member["node_id"].as_u64().unwrap()).collect()
}

fn running(daemon: &Daemon) -> BTreeMap<String, u64> {
    let replicas = daemon.replicas().into_iter().filter(|replica| replica.runs());
    replicas
        .map(|replica| (replica.id.clone(), replica.node_id.unwrap()))
        .collect()
}

fn until_running(daemon: &Daemon, count: usize) {
    until("all replicas run", || {
        (running(daemon).len() == count).then_some(())
    });
}

#[test]
fn a_server_is_taken_in_and_another_leaves() {
    let mut cluster = Cluster::prepare("members", 4, Where::Loopback, "raft", &json!({}));
    let all = peers(&cluster.nodes[3]);
    for node in 0..3 {
        set_peers(&mut cluster.nodes[node], &all[..3]);
        cluster.nodes[node].restart();
    }
    cluster.until_complete();
    cluster.nodes[0]
        .deploy("fleet", &[("it", spread(6))])
        .ends_with(0);
    let before = running(&cluster.nodes[0]);
    cluster.nodes[3].restart();
    let follower = cluster.follower();
    add(&cluster.nodes[follower], &all[3]);
    cluster.until_complete();
    assert_eq!(voters(&cluster.nodes[3]), [1, 2, 3, 4]);
    assert_eq!(running(&cluster.nodes[3]), before, "nothing moved");
    // The leader itself leaves.
    let leaving = cluster.until_leader();
    let id = (leaving + 1).to_string();
    let through = (leaving + 1) % 4;
    let other = &cluster.nodes[through];
    other.dhow(&["node", "drain", &id]).ends_with(0);
    assert_eq!(cluster.workloads(leaving), 0);
    other.dhow(&["cluster", "remove", &id]).ends_with(0);
    assert!(cluster.nodes[leaving].term().success());
    let other = &cluster.nodes[through];
    other.dhow(&["node", "rm", &id]).ends_with(0);
    assert_eq!(voters(other).len(), 3);
    until_running(other, 6);
    // Three servers survive the loss of one.
    let leader = cluster.until_leader();
    cluster.nodes[leader].kill9();
    let other = (0..4).find(|node| cluster.nodes[*node].is_running()).unwrap();
    cluster.nodes[other]
        .dhow(&["scale", "fleet/it=3", "--wait"])
        .ends_with(0);
    cluster.nodes[leader].restart();
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn a_backup_becomes_a_new_cluster() {
    let mut old = Cluster::raft("backup", 3, Where::Loopback);
    let node = &old.nodes[0];
    node.dhow_with_stdin(&["secret", "set", "word"], b"sesame")
        .ends_with(0);
    node.deploy("fleet", &[("it", speaker(6))]).ends_with(0);
    let file = node.scratch.path.join("cluster.backup");
    let file = file.to_str().unwrap().to_owned();
    old.nodes[1].dhow(&["cluster", "backup", &file]).ends_with(0);
    let before = old.nodes[0]
        .dhow(&["history", "fleet", "--json"])
        .ends_with(0)
        .stdout;
    let cluster_id = old.nodes[0].get("/api/v1/cluster").unwrap().json()["cluster_id"].clone();
    (0..3).for_each(|node| old.power_off(node));

    let mut new = Cluster::prepare("restored", 3, Where::Loopback, "raft", &json!({}));
    for node in &mut new.nodes {
        let key = old.nodes[0].scratch.path.join("cluster.key");
        std::fs::copy(key, node.scratch.path.join("cluster.key")).unwrap();
        let config = node.file("dhow.yaml", node.config.as_ref().unwrap());
        let data_dir = node.data_dir();
        let place = ["--config", &config, "--data-dir", data_dir.to_str().unwrap()];
        let args = [&["cluster", "restore", file.as_str()], place.as_slice()].concat();
        // A server would not read what it writes for a single node.
        let unnamed = [&args[..3], &place[2..]].concat();
        let with_config = format!("dhow cluster restore {file} --config");
        node.dhow(&unnamed)
            .ends_with(2)
            .says(&[&with_config, "--single-node"]);
        assert!(!data_dir.join("log").exists());
        node.dhow(&args).ends_with(0);
        // A second time would put a state over one that is there.
        assert_ne!(node.dhow(&args).code, 0);
        node.restart();
    }
    new.until_complete();
    let node = &new.nodes[2];
    until_running(node, 6);
    let status = node.get("/api/v1/cluster").unwrap().json();
    assert_eq!(status["cluster_id"], cluster_id);
    assert_eq!(
        node.dhow(&["history", "fleet", "--json"]).ends_with(0).stdout,
        before
    );
    // Its secrets can be read: new replicas get them too.
    node.dhow(&["scale", "fleet/it=9", "--wait"]).ends_with(0);
    until("all have said the word", || {
        let logs = node.dhow(&["logs", "fleet"]).ends_with(0).stdout;
        (logs.matches("the word is sesame").count() >= 9).then_some(())
    });
    new.finish();
}

#[test]
fn one_survivor_is_enough_to_go_on() {
    let mut cluster = Cluster::prepare("recover", 4, Where::Loopback, "raft", &json!({}));
    let all = peers(&cluster.nodes[3]);
    for node in 0..3 {
        set_peers(&mut cluster.nodes[node], &all[..3]);
        cluster.nodes[node].restart();
    }
    cluster.until_complete();
    let survivor = cluster.follower();
    cluster.nodes[survivor]
        .deploy("fleet", &[("it", Service::sleeper().replicas(6))])
        .ends_with(0);
    let lost: Vec<usize> = (0..3).filter(|node| *node != survivor).collect();
    lost.iter().for_each(|node| cluster.power_off(*node));
    let alone = cluster.nodes[survivor].dhow(&["scale", "fleet/it=7"]);
    assert_eq!(alone.code, 3, "{}", alone.stderr);
    cluster.nodes[survivor].term();
    let node = &mut cluster.nodes[survivor];
    let config = node.file("dhow.yaml", node.config.as_ref().unwrap());
    let data_dir = node.data_dir();
    let place = ["--config", &config, "--data-dir", data_dir.to_str().unwrap()];
    let asked = [&["cluster", "recover"], place.as_slice()].concat();
    let unnamed = [&["cluster", "recover", "--yes"], &place[2..]].concat();
    node.dhow(&unnamed)
        .ends_with(2)
        .says(&["is the log of a server", "dhow cluster recover --yes --config"]);
    node.dhow(&asked).ends_with(2).says(&["--yes"]);
    node.dhow(&[asked.as_slice(), &["--yes"]].concat()).ends_with(0);
    node.restart();
    until("it leads alone", || (cluster.leader()? == survivor).then_some(()));
    // Should the lost ones come back as they were, they are a majority of the cluster that was, and not of this one.
    for node in &lost {
        cluster.nodes[*node].begin();
    }
    let refused = "given up by `dhow cluster recover`";
    until("they are refused", || {
        cluster.nodes[survivor].said().contains(refused).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(3));
    cluster.nodes[survivor].dhow(&["secret", "ls"]).ends_with(0);
    for node in &lost {
        cluster.power_off(*node);
    }
    for node in &lost {
        let id = (node + 1).to_string();
        cluster.nodes[survivor]
            .dhow(&["node", "rm", &id, "--force"])
            .ends_with(0);
    }
    until_running(&cluster.nodes[survivor], 6);
    assert_eq!(cluster.workloads(survivor), 6);
    // A new server, with an id that was never used, makes two.
    cluster.nodes[3].restart();
    add(&cluster.nodes[survivor], &all[3]);
    cluster.until_complete();
    cluster.nodes[3]
        .dhow(&["scale", "fleet/it=12", "--wait"])
        .ends_with(0);
    assert!(cluster.workloads(3) > 0);
    cluster.finish();
}

#[test]
fn it_does_not_matter_who_is_asked_to_deploy() {
    let cluster = Cluster::raft("asked", 3, Where::Loopback);
    let leader = cluster.until_leader();
    let mut placed = Vec::new();
    for node in [leader, (leader + 1) % 3, (leader + 2) % 3] {
        let node = &cluster.nodes[node];
        node.deploy("fleet", &[("it", Service::sleeper().replicas(7))])
            .ends_with(0);
        placed.push(running(node));
        node.dhow(&["rm", "fleet", "--wait"]).ends_with(0);
    }
    assert_eq!(placed[0].len(), 7);
    assert_eq!(placed[0], placed[1]);
    assert_eq!(placed[0], placed[2]);
    cluster.finish();
}

/// Also on loopback. What runs goes on, and what the error says to type is enough.
#[test]
fn servers_without_a_key_say_what_to_type_and_go_on_with_what_runs() {
    for mode in ["raft", "static"] {
        let mut cluster = match mode {
            "raft" => Cluster::raft("no-key", 3, Where::Loopback),
            _ => Cluster::fixed("no-key-static", 2, Where::Loopback),
        };
        cluster.nodes[0]
            .deploy("fleet", &[("it", Service::sleeper().replicas(3))])
            .ends_with(0);
        let pids = |cluster: &Cluster| {
            let mut pids: Vec<_> = cluster.nodes.iter().flat_map(|node| node.workloads()).collect();
            pids.sort_unstable();
            pids
        };
        let before = pids(&cluster);
        assert_eq!(before.len(), 3);
        let key_file = |cluster: &Cluster, node: usize| cluster.nodes[node].scratch.path.join("cluster.key");
        for node in 0..cluster.nodes.len() {
            assert_eq!(cluster.nodes[node].term().code(), Some(0));
            std::fs::remove_file(key_file(&cluster, node)).unwrap();
        }
        cluster.nodes[0].begin();
        assert_eq!(cluster.nodes[0].ended().code(), Some(1));
        let said = cluster.nodes[0].said();
        let said = &said[said.find("has no cluster key").expect("it says what is missing")..];
        for line in said.lines().filter(|line| line.starts_with("  ")) {
            let typed = std::process::Command::new("sh")
                .args(["-c", line])
                .output()
                .unwrap();
            assert!(
                typed.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&typed.stderr)
            );
        }
        for node in &mut cluster.nodes {
            node.restart();
        }
        cluster.until_complete();
        assert_eq!(pids(&cluster), before, "{mode}");
        cluster.finish();
    }
}
