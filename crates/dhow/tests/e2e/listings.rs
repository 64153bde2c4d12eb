//! What other tools read: `--json` has the keys that were promised.

use serde_json::{Value, json};

use crate::support::{Daemon, Service, free_port};

#[track_caller]
fn has_keys(value: &Value, keys: &[&str]) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    for key in keys {
        assert!(object.contains_key(*key), "no `{key}` in {value}");
    }
}

/// The first of a list.
#[track_caller]
fn first(list: &Value) -> &Value {
    list.as_array()
        .and_then(|list| list.first())
        .unwrap_or_else(|| panic!("no list: {list}"))
}

#[test]
fn json_has_the_promised_keys() {
    let daemon = Daemon::start("listings");
    let port = free_port();
    let services = [
        ("web", Service::web("v1", port)),
        ("idle", Service::sleeper().manual()),
    ];
    daemon.deploy("shop", &services).ends_with(0);

    let status = daemon.dhow(&["status", "shop", "--json"]).json();
    has_keys(&status, &["deployment", "revision", "state", "services"]);
    assert_eq!(
        (status["revision"].as_u64(), status["state"].as_str()),
        (Some(1), Some("stable"))
    );
    for service in status["services"].as_array().unwrap() {
        has_keys(service, &["name", "running", "desired", "healthy", "endpoints"]);
    }
    let web = status["services"]
        .as_array()
        .unwrap()
        .iter()
        .find(|service| service["name"] == "web");
    assert_eq!(web.unwrap()["endpoints"][0], format!("http://localhost:{port}"));
    let all = daemon.dhow(&["status", "--json"]).json();
    assert_eq!(first(&all), &status);

    let replicas = daemon.dhow(&["ps", "--json"]).json();
    let keys = [
        "deployment",
        "service",
        "role",
        "replica",
        "id",
        "node_id",
        "image",
        "state",
        "healthy",
        "restarts",
        "pid",
        "exit_code",
    ];
    has_keys(first(&replicas), &keys);
    assert_eq!(first(&replicas)["id"], "web-default-0");
    assert_eq!(replicas.as_array().unwrap().len(), 1);
    assert_eq!(json!(daemon.workloads()), json!([first(&replicas)["pid"]]));

    cluster_has_the_promised_keys(&daemon);
    daemon.finish();
}

fn cluster_has_the_promised_keys(daemon: &Daemon) {
    let nodes = daemon.dhow(&["node", "ls", "--json"]).json();
    has_keys(
        first(&nodes),
        &["node_id", "role", "status", "leader", "labels", "replicas"],
    );
    let node = first(&nodes);
    assert_eq!(
        (node["role"].as_str(), node["status"].as_str()),
        (Some("peer"), Some("ready"))
    );
    assert_eq!(
        (node["leader"].as_bool(), node["replicas"].as_u64()),
        (Some(true), Some(1))
    );

    let cluster = daemon.dhow(&["cluster", "status", "--json"]).json();
    has_keys(
        &cluster,
        &[
            "mode",
            "cluster_id",
            "node_id",
            "leader_id",
            "term",
            "revision",
            "nodes",
        ],
    );
    assert_eq!(
        (cluster["mode"].as_str(), cluster["nodes"].as_u64()),
        (Some("single-node"), Some(1))
    );

    for other in [
        vec!["history", "shop", "--json"],
        vec!["events", "--json"],
        vec!["explain", "shop/web", "--json"],
        vec!["secret", "ls", "--json"],
    ] {
        daemon.dhow(&other).json();
    }
}
