//! Static clusters: peers from the configuration and no consensus. What a user sees of them, and what they survive.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, Network, Service, Where, by_node, free_port, skip, spread, until};

/// A threshold where nobody is to be given up: far longer than a restart takes on a busy machine.
const CALM_SECS: u64 = 12;

fn lives(node: &Daemon) -> BTreeMap<String, (Option<u64>, Option<u32>, u64)> {
    let replicas = node.replicas().into_iter();
    let lives = replicas.map(|replica| {
        (
            replica.id.clone(),
            (replica.node_id, replica.pid, replica.restarts),
        )
    });
    lives.collect()
}

#[test]
fn two_peers_are_one_cluster() {
    let cluster = Cluster::fixed_with("pair", 2, Where::Loopback, CALM_SECS);
    assert_eq!(cluster.leader(), Some(0), "the lowest leads");
    // A long spec travels as well as a short one.
    let long: BTreeMap<_, _> = (0..5)
        .map(|number| (format!("LONG_{number}"), "x".repeat(100_000)))
        .collect();
    for (through, name, env) in [(1, "shop", BTreeMap::new()), (0, "desk", long)] {
        let node = &cluster.nodes[through];
        node.deploy(name, &[("web", spread(4).with("env", json!(env)))])
            .ends_with(0);
        let mut replicas = node.replicas();
        replicas.retain(|replica| replica.deployment == name);
        assert_eq!(
            by_node(&replicas),
            BTreeMap::from([(1, 2), (2, 2)]),
            "through {through}"
        );
    }
    for node in &cluster.nodes {
        let logs = node.dhow(&["logs", "shop"]).ends_with(0).stdout;
        assert_eq!(logs.matches("speaks").count(), 4, "{logs}");
        for replica in node.ps() {
            let name = format!("{}/{}", replica.deployment, replica.id);
            let said = node.dhow(&["exec", &name, "--", "sh", "-c", "echo in; exit 3"]);
            assert_eq!(said.ends_with(3).stdout, "in\n");
        }
        let status = node.dhow(&["cluster", "status", "--json"]).json();
        assert_eq!(
            (&status["mode"], &status["leader_id"]),
            (&json!("static"), &json!(1))
        );
        let notices = status["notices"].to_string();
        assert!(notices.contains("no consensus"), "{status}");
        let listed = node.dhow(&["node", "ls", "--json"]).json();
        let roles: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["role"].clone())
            .collect();
        assert_eq!(roles, [json!("peer"), json!("peer")]);
        let refused = node.dhow(&["cluster", "remove", "2"]);
        assert_eq!(refused.code, 4, "{}", refused.stderr);
    }
    cluster.nodes[1]
        .dhow(&["scale", "shop/web=1", "--wait"])
        .ends_with(0);
    until("what is no longer wanted has ended", || {
        (cluster.workloads(0) + cluster.workloads(1) == 5).then_some(())
    });
    cluster.finish();
}

#[test]
fn the_next_lowest_leads_when_the_leader_dies_and_nothing_is_lost() {
    let mut cluster = Cluster::fixed("next", 3, Where::Loopback);
    cluster.nodes[2]
        .deploy("fleet", &[("it", spread(6))])
        .ends_with(0);
    cluster.nodes[0]
        .dhow(&["scale", "fleet/it=9", "--wait"])
        .ends_with(0);
    cluster.power_off(0);
    until("the next lowest leads", || {
        (cluster.leader() == Some(1)).then_some(())
    });
    until("all replicas run again, elsewhere", || {
        let shares = by_node(&cluster.nodes[2].replicas());
        (shares.values().sum::<usize>() == 9 && !shares.contains_key(&1)).then_some(())
    });
    let history = cluster.nodes[2].dhow(&["history", "fleet", "--json"]).json();
    assert_eq!(history.as_array().unwrap().len(), 1);
    cluster.nodes[2]
        .dhow(&["scale", "fleet/it=6", "--wait"])
        .ends_with(0);
    cluster.nodes[0].restart();
    until("the lowest leads again", || {
        (cluster.leader() == Some(0)).then_some(())
    });
    cluster.until_complete();
    let status = cluster.nodes[0].dhow(&["status", "fleet", "--json"]).json();
    assert_eq!(
        status["services"][0]["desired"], 6,
        "what was written without it is there"
    );
    until("nothing runs twice", || {
        let running: usize = (0..3).map(|node| cluster.workloads(node)).sum();
        (running == 6).then_some(())
    });
    cluster.finish();
}

#[test]
fn a_restarted_peer_moves_nothing() {
    let mut cluster = Cluster::fixed_with("calm", 2, Where::Loopback, CALM_SECS);
    cluster.nodes[0].deploy("calm", &[("it", spread(6))]).ends_with(0);
    let before = lives(&cluster.nodes[0]);
    for node in [1, 0] {
        for by_signal in [true, false] {
            match by_signal {
                true => assert_eq!(cluster.nodes[node].term().code(), Some(0)),
                false => cluster.nodes[node].kill9(),
            }
            cluster.nodes[node].restart();
            until("the lowest leads", || (cluster.leader() == Some(0)).then_some(()));
            cluster.until_complete();
        }
    }
    // Longer than the threshold: whoever was to be lost would be.
    thread::sleep(Duration::from_secs(CALM_SECS + 2));
    assert_eq!(lives(&cluster.nodes[1]), before);
    cluster.finish();
}

#[test]
fn concurrent_scales_end_with_the_last_count() {
    let cluster = Cluster::fixed_with("race", 2, Where::Loopback, CALM_SECS);
    cluster.nodes[0].deploy("race", &[("it", spread(1))]).ends_with(0);
    thread::scope(|scope| {
        for (node, counts) in [(0, [5, 2, 7]), (1, [3, 6, 1])] {
            let node = &cluster.nodes[node];
            scope.spawn(move || {
                for count in counts {
                    node.dhow(&["scale", &format!("race/it={count}")]).ends_with(0);
                }
            });
        }
    });
    cluster.nodes[1]
        .dhow(&["scale", "race/it=4", "--wait"])
        .ends_with(0);
    until("exactly the last count runs", || {
        (cluster.workloads(0) + cluster.workloads(1) == 4).then_some(())
    });
    assert_eq!(by_node(&cluster.nodes[0].replicas()).values().sum::<usize>(), 4);
    cluster.finish();
}

/// Both halves of a divided pair write; the losing half's revision is kept.
#[test]
fn what_the_losing_half_wrote_is_conflicted() {
    if let Some(why) = Network::obstacle() {
        return skip("what_the_losing_half_wrote_is_conflicted", &why);
    }
    let cluster = Cluster::fixed("halves", 2, Where::Namespaces);
    cluster.nodes[0]
        .deploy("shop", &[("web", spread(2))])
        .ends_with(0);
    cluster.network().cut(1);
    let leads = |node: usize| {
        let status = cluster.nodes[node].get("/api/v1/cluster").ok()?.json();
        (status["leader_id"] == node as u64 + 1).then_some(())
    };
    until("the other half has a leader too", || leads(1));
    leads(0).expect("the first one leads on");
    let file = |node: usize, word: &str| {
        let service = Service::shell(&format!("echo {word}; exec sleep 3600")).replicas(2);
        cluster.nodes[node].deployment("shop", &[("web", service)])
    };
    // The first half has more changes, so that it wins.
    for word in ["one", "two"] {
        let file = file(0, word);
        cluster.nodes[0].dhow(&["deploy", &file, "--detach"]).ends_with(0);
    }
    let other = file(1, "three");
    cluster.nodes[1]
        .dhow(&["deploy", &other, "--detach"])
        .ends_with(0);
    let extra = cluster.nodes[1].deployment("extra", &[("it", spread(1))]);
    cluster.nodes[1]
        .dhow(&["deploy", &extra, "--detach"])
        .ends_with(0);
    cluster.nodes[0].dhow(&["scale", "shop/web=3"]).ends_with(0);
    cluster.network().heal(1);
    let conflicted = |name: &str| {
        let listed = cluster.nodes[1].dhow(&["history", name, "--json"]);
        let entries = listed.json();
        let entries = entries.as_array()?.clone();
        let found = entries.into_iter().find(|entry| entry["state"] == "conflicted")?;
        found["revision"].as_u64()
    };
    let revision = until("the revision of the losing half is kept", || conflicted("shop"));
    until("a deployment of the losing half is kept", || conflicted("extra"));
    cluster.until_complete();
    assert_eq!(cluster.leader(), Some(0));
    until("exactly what won runs", || {
        (cluster.workloads(0) + cluster.workloads(1) == 3).then_some(())
    });
    let to = revision.to_string();
    cluster.nodes[1]
        .dhow(&["rollback", "shop", "--to", &to])
        .ends_with(0);
    until("what was conflicted runs", || {
        let logs = cluster.nodes[0].dhow(&["logs", "shop"]).stdout;
        logs.contains("three").then_some(())
    });
    cluster.finish();
}

#[test]
fn secrets_reach_every_peer_and_outlive_the_leader() {
    let mut cluster = Cluster::fixed("secret", 2, Where::Loopback);
    let said = cluster.nodes[1].dhow_with_stdin(&["secret", "set", "word"], b"mellon");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let service = Service::shell("echo the word is $WORD; exec sleep 3600")
        .replicas(2)
        .with("env", json!({ "WORD": "$S:word" }));
    cluster.nodes[0].deploy("door", &[("it", service)]).ends_with(0);
    let spoken = |node: usize| {
        let logs = cluster.nodes[node].dhow(&["logs", "door"]).ends_with(0).stdout;
        logs.matches("the word is mellon").count()
    };
    assert_eq!(spoken(1), 2);
    assert_eq!(
        by_node(&cluster.nodes[0].replicas()),
        BTreeMap::from([(1, 1), (2, 1)])
    );
    cluster.power_off(0);
    until("the replica of the dead leader runs elsewhere", || {
        let shares = by_node(&cluster.nodes[1].replicas());
        (shares == BTreeMap::from([(2, 2)])).then_some(())
    });
    let logs = cluster.nodes[1].dhow(&["logs", "door"]).stdout;
    assert_eq!(logs.matches("the word is mellon").count(), 2, "{logs}");
    cluster.nodes[0].restart();
    until("the lowest leads again", || {
        (cluster.leader() == Some(0)).then_some(())
    });
    cluster.until_complete();
    cluster.finish();
}

#[test]
fn a_backup_begins_a_new_pair() {
    let cluster = Cluster::fixed_with("old-pair", 2, Where::Loopback, CALM_SECS);
    cluster.nodes[1]
        .deploy("shop", &[("web", spread(2))])
        .ends_with(0);
    let path = cluster.nodes[1].scratch.path.join("backup");
    let file = path.to_str().unwrap();
    cluster.nodes[1].dhow(&["cluster", "backup", file]).ends_with(0);
    let bytes = std::fs::read(file).unwrap();
    cluster.finish();
    let extra = json!({ "heartbeat_interval": 1, "failure_threshold": CALM_SECS });
    let mut fresh = Cluster::prepare("new-pair", 2, Where::Loopback, "static", &extra);
    for node in &mut fresh.nodes {
        let copy = node.scratch.path.join("backup");
        std::fs::write(&copy, &bytes).unwrap();
        let config = node.file("dhow.yaml", node.config.as_ref().unwrap());
        let data_dir = node.data_dir();
        let args = [
            "cluster",
            "restore",
            copy.to_str().unwrap(),
            "--config",
            &config,
            "--data-dir",
        ];
        let args: Vec<&str> = args.into_iter().chain([data_dir.to_str().unwrap()]).collect();
        node.dhow(&args).ends_with(0);
    }
    for node in &mut fresh.nodes {
        node.restart();
    }
    fresh.until_complete();
    until("what was deployed runs", || {
        let shares = by_node(&fresh.nodes[1].replicas());
        (shares.values().sum::<usize>() == 2).then_some(())
    });
    // Its replicas carry the mark of the cluster that they were deployed on.
    fresh.nodes[0].dhow(&["rm", "shop", "--wait"]).ends_with(0);
    fresh.finish();
}

fn post(node: &Daemon, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let reply = node
        .ask(
            "POST",
            "/api/v1/internal/scale",
            "application/json",
            body.as_bytes(),
        )
        .unwrap();
    (reply.status, reply.json())
}

#[test]
fn the_scale_route_does_what_it_says() {
    let cluster = Cluster::fixed_with("route", 2, Where::Loopback, 12);
    let ask = |method: &str, path: &str, body: &Value| {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let reply = cluster.ask_as_member(1, method, path, body.as_bytes());
        (reply.status, reply.json())
    };
    let post = |body: &Value| ask("POST", "/api/v1/internal/scale", body);
    let (status, refused) = self::post(&cluster.nodes[1], &json!({ "service": "by-hand", "replicas": 1 }));
    assert_eq!(status, 403, "a user of the host is no server: {refused}");
    let (status, refused) = post(&json!({ "service": "by-hand", "replicas": 1 }));
    assert_eq!(status, 409, "nobody has told it the spec: {refused}");
    let spec = json!({ "command": { "args": ["sh", "-c", "exec sleep 3600"] } });
    let (status, taken) = post(&json!({ "service": "by-hand", "replicas": 2, "spec": spec }));
    assert_eq!(status, 200, "{taken}");
    let state = || ask("GET", "/api/v1/internal/services/by-hand/state", &Value::Null).1;
    until("both run and are healthy", || {
        let state = state();
        (state["running"] == 2 && state["healthy"] == true).then_some(())
    });
    let ids: BTreeSet<_> = state()["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].to_string())
        .collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.contains("\"by-hand-default-0\""), "{ids:?}");
    let assignments = json!([{ "role": "default", "indices": [1] }]);
    let (status, _) = post(&json!({ "service": "by-hand", "assignments": assignments }));
    assert_eq!(status, 200);
    until("just that one is left", || {
        let state = state();
        (state["running"] == 1 && state["containers"][0]["id"] == "by-hand-default-1").then_some(())
    });
    // Longer than a heartbeat: what the cluster does not know is left alone.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(state()["running"], 1);
    let late = json!({ "service": "by-hand", "replicas": 0, "epoch": 0 });
    let (status, refused) = post(&late);
    assert_eq!(status, 409, "{refused}");
    assert!(
        refused["detail"].as_str().unwrap().contains("leads no more"),
        "{refused}"
    );
    let (status, _) = post(&json!({ "service": "by-hand", "replicas": 0 }));
    assert_eq!(status, 200);
    until("none is left", || (state()["running"] == 0).then_some(()));
    assert_eq!(state()["healthy"], true);
    cluster.finish();
}

#[test]
fn other_modes_are_not_told_that_way() {
    let daemon = Daemon::start("no-scale");
    let (status, refused) = post(&daemon, &json!({ "service": "web", "replicas": 1 }));
    assert_eq!((status, &refused["code"]), (409, &json!("wrong_mode")));
    daemon.deploy("shop", &[("web", spread(2))]).ends_with(0);
    let state = daemon
        .get("/api/v1/internal/services/web/state?deployment=shop")
        .unwrap()
        .json();
    assert_eq!(
        (&state["running"], &state["healthy"]),
        (&json!(2), &json!(true)),
        "{state}"
    );
    daemon.finish();
}

#[test]
fn peers_with_different_lists_of_peers_say_so() {
    let extra = json!({ "heartbeat_interval": 1, "failure_threshold": CALM_SECS });
    let mut cluster = Cluster::prepare("lists", 2, Where::Loopback, "static", &extra);
    let node = &mut cluster.nodes[1];
    let mut config: Value = serde_json::from_str(node.config.as_ref().unwrap()).unwrap();
    let third = json!({ "id": 3, "api_addr": format!("127.0.0.1:{}", free_port()) });
    config["cluster"]["peers"].as_array_mut().unwrap().push(third);
    node.config = Some(config.to_string());
    cluster.nodes.iter_mut().for_each(|node| node.restart());
    cluster.until_complete();
    for (node, other) in [(0, 2), (1, 1)] {
        until("it is told", || {
            let status = cluster.nodes[node].get("/api/v1/cluster").ok()?.json();
            let told = format!("peer {other} has other `peers` in its configuration");
            status["notices"].to_string().contains(&told).then_some(())
        });
    }
    cluster.finish();
}
