//! Who is who in a worker tier: ids of servers that have not started yet, and workers that speak JSON.

use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, PATIENCE, Where, ask_with};

fn nodes(of: &Daemon) -> Vec<(u64, String)> {
    let listed = of.dhow(&["node", "ls", "--json"]).json();
    let nodes = listed.as_array().unwrap().iter();
    nodes
        .map(|node| {
            (
                node["node_id"].as_u64().unwrap(),
                node["role"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn say(to: &Daemon, route: &str, token: &str, body: &Value) -> Value {
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Dhow-Internal-Token", token),
    ];
    let path = format!("/api/v1/workers/{route}");
    let body = body.to_string();
    let reply = ask_with(&to.socket(), "POST", &path, &headers, body.as_bytes(), PATIENCE).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()
}

#[test]
fn a_server_that_starts_late_finds_its_id_and_followers_pass_workers_on() {
    let mut cluster = Cluster::prepare("ids", 3, Where::Loopback, "worker-tier", &json!({}));
    cluster.nodes[0].restart();
    cluster.nodes[1].restart();
    cluster.until_complete();
    let token = cluster.worker_token(&["--uses", "3"]);
    let place = cluster.add_worker(&token);
    cluster.workers[place].restart();
    assert_eq!(cluster.learn_id(place), 4, "3 is kept for the third server");
    // The worker's id is nobody else's.
    let taken = ["--raft-addr", "127.0.0.1:1", "--api-addr", "127.0.0.1:2"];
    let add = [&["cluster", "add", "4"], taken.as_slice()].concat();
    cluster.nodes[0].dhow(&add).ends_with(4).says(&["role"]);
    cluster.nodes[2].restart();
    cluster.until_complete();
    let roles = [(1, "server"), (2, "server"), (3, "server"), (4, "worker")];
    let roles = roles.map(|(id, role)| (id, role.to_owned()));
    assert_eq!(nodes(&cluster.nodes[2]), roles);
    // A worker in the plain form, through a server that does not lead. Its first answer is lost.
    let follower = &cluster.nodes[cluster.follower()];
    let profile = json!({
        "api_addr": "127.0.0.1:9", "os": "linux", "arch": "x86_64", "cpu_total": 1, "memory_total_bytes": 1,
    });
    let asked = json!({ "token": token, "desired_node_id": 3, "profile": profile });
    let lost = say(follower, "register", "", &asked);
    let joined = say(follower, "register", "", &asked);
    assert_eq!((&joined["node_id"], &lost["node_id"]), (&json!(5), &json!(5)));
    let token = joined["internal_token"].as_str().unwrap();
    let polled = say(
        follower,
        "poll",
        token,
        &json!({ "node_id": 5, "last_revision": 0, "max_wait_secs": 0 }),
    );
    assert!(polled["revision"].is_u64(), "{polled}");
    let report = json!({
        "node_id": 5, "ts_ns": 1, "containers": [],
        "resources": { "cpu_used": 0.0, "memory_used_bytes": 0, "gpu_used": 0 },
    });
    assert!(say(follower, "status", token, &report)["next_ttl_secs"].is_u64());
    let listed = follower.dhow(&["token", "ls", "--json"]).json();
    assert_eq!(listed[0]["uses_left"], json!(1), "{listed}");
    cluster.nodes[0]
        .dhow(&["node", "rm", "5", "--force"])
        .ends_with(0);
    cluster.finish();
}
