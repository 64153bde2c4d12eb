//! Data directories of the version with feature level 3 are carried on from: of a single node, and of static peers. A raft
//! cluster has the addresses of its members in its log, so that its data cannot be carried on from at other ports.
//!
//! The archives in `level3/` are what that version had on disk when it was killed, a folder for each node, with the
//! cluster's key where there is one: two revisions of `shop/web`, which runs `sleep 1000`, scaled to three replicas of the
//! second one; the secret `db-password`; a token named `reader`; the label `zone=a` on node 1. A later version that cannot
//! open them cannot be installed over that one. They are never made anew: what follows a change of a stored form is another
//! folder beside them.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Cluster, Daemon, Scratch, Service, Where, until};

/// Puts what a node of the older version left where this daemon looks for it.
fn lay_out(daemon: &Daemon, archive: &str, node: &str) {
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/level3");
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(archives.join(archive))
        .arg("-C")
        .arg(&daemon.scratch.path)
        .args(["--strip-components=2", &format!("./{node}")])
        .status();
    assert!(unpacked.unwrap().success());
}

/// What was there is there, and goes on: the replicas run again, and everything can be changed.
fn carries_on(node: &Daemon) {
    let running = || {
        let replicas = node.replicas();
        (replicas.len() == 3 && replicas.iter().all(|replica| replica.runs() && replica.healthy))
            .then_some(replicas)
    };
    for replica in until("the replicas run again", running) {
        assert_eq!((replica.deployment.as_str(), replica.generation), ("shop", 2));
    }
    let history = node.dhow(&["history", "shop", "--json"]).json();
    let revisions: Vec<_> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["revision"])
        .collect();
    assert_eq!(revisions, [&json!(2), &json!(1)], "{history}");
    let secrets = node.dhow(&["secret", "ls", "--json"]).json();
    assert_eq!(secrets[0]["name"], "db-password", "{secrets}");
    let tokens = node.dhow(&["token", "ls", "--json"]).json();
    assert!(tokens.to_string().contains("reader"), "{tokens}");
    let nodes = node.dhow(&["node", "ls", "--json"]).json();
    assert_eq!(nodes[0]["labels"]["zone"], "a", "{nodes}");

    node.dhow(&["scale", "shop/web=1", "--wait"]).ends_with(0);
    node.dhow(&["rollback", "shop", "--wait"]).ends_with(0);
    let back = || {
        let replicas = node.replicas();
        (replicas.len() == 1 && replicas[0].runs() && replicas[0].generation > 2).then_some(())
    };
    until("the earlier revision runs", back);
    sees_files(node);
}

/// What came with later levels is there too, once all servers of the cluster know it: the older secret as a file.
fn sees_files(node: &Daemon) {
    let web =
        Service::shell("cat $DHOW_CONFIGS_DIR/app; test -s $DHOW_SECRETS_DIR/db-password && exec sleep 1000")
            .with("configs", json!(["app"]))
            .with("secrets", json!(["db-password"]));
    let text = std::fs::read_to_string(node.deployment("site", &[("web", web)])).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    file["configs"] = json!({ "app": { "content": "level = 4" } });
    let path = node.file("site.dhow.json", &file.to_string());
    until("all servers know files", || {
        (node.dhow(&["deploy", &path]).code == 0).then_some(())
    });
    let logs = node.dhow(&["logs", "site/web", "--no-prefix"]).ends_with(0);
    assert_eq!(logs.stdout.trim(), "level = 4");
    node.dhow(&["rm", "site", "--wait"]).ends_with(0);
}

#[test]
fn a_single_node_carries_on() {
    let mut daemon = Daemon::at(Scratch::new("older-single"));
    lay_out(&daemon, "single.tar.gz", "1");
    daemon.restart();
    carries_on(&daemon);
    daemon.finish();
}

#[test]
fn a_static_cluster_carries_on() {
    let mut cluster = Cluster::prepare("older-static", 2, Where::Loopback, "static", &json!({}));
    for (place, node) in cluster.nodes.iter_mut().enumerate() {
        lay_out(node, "static.tar.gz", &(place + 1).to_string());
        node.restart();
    }
    cluster.until_complete();
    carries_on(&cluster.nodes[1]);
    cluster.finish();
}
