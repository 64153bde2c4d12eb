//! What was is told as it was told then: after deaths of the daemon, by every server, and without the values of secrets.

use serde_json::Value;

use crate::support::{Cluster, Daemon, Replica, Service, Where, spread, until};

fn replicas_at(daemon: &Daemon, revision: u64) -> Vec<Replica> {
    let path = format!("/api/v1/replicas?at={revision}");
    let reply = daemon.get(&path).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.json());
    let listed = reply.json();
    let mut replicas: Vec<_> = listed.as_array().unwrap().iter().map(Replica::of).collect();
    replicas.sort();
    replicas
}

/// What is shown at a revision that stays for long enough to be looked at.
fn seen(daemon: &Daemon) -> (u64, Vec<Replica>, Value) {
    until("nothing happens while it is looked at", || {
        let before = daemon.revision();
        let mut replicas = daemon.replicas();
        replicas.sort();
        let status = daemon.dhow(&["status", "--json"]).json();
        (daemon.revision() == before).then_some((before, replicas, status))
    })
}

#[test]
fn any_revision_is_told_as_it_was_then() {
    let mut daemon = Daemon::start("past");
    daemon
        .dhow_with_stdin(&["secret", "set", "db"], b"hunter2hunter2")
        .ends_with(0);
    let mut then = Vec::new();
    for round in 0..4 {
        let web = Service::sleeper()
            .replicas(round + 1)
            .env("VERSION", &round.to_string());
        daemon.deploy("shop", &[("web", web)]).ends_with(0);
        then.push(seen(&daemon));
        daemon.kill9();
        daemon.restart();
        for (revision, replicas, status) in &then {
            assert_eq!(&replicas_at(&daemon, *revision), replicas, "revision {revision}");
            let at = revision.to_string();
            let told = daemon.dhow(&["status", "--json", "--at", &at]).ends_with(0);
            assert_eq!(&told.json(), status, "revision {revision}");
        }
    }
    daemon.dhow(&["secret", "rm", "db"]).ends_with(0);
    let (first, last) = (then[0].0.to_string(), then[3].0.to_string());
    let told = daemon.dhow(&["ps", "shop", "--at", &first]).ends_with(0);
    assert!(
        told.stderr.contains(&format!("as of revision {first}, 20")),
        "{}",
        told.stderr
    );
    assert_eq!(told.stdout.lines().count(), 2, "{}", told.stdout);
    let why = daemon
        .dhow(&["explain", "shop/web-default-0", "--at", &first])
        .ends_with(0);
    assert!(why.stdout.contains("web-default-0"), "{}", why.stdout);
    let differs = daemon
        .dhow(&["diff", "shop", "--from", &first, "--to", &last])
        .ends_with(0);
    assert!(
        differs.stdout.contains("env VERSION: 0 -> 3"),
        "{}",
        differs.stdout
    );
    assert!(differs.stdout.contains("replicas: 1 -> 4"), "{}", differs.stdout);
    let since = daemon.dhow(&["diff", "--from", &first]).ends_with(0);
    assert!(since.stdout.contains("secret_removed     db"), "{}", since.stdout);
    let status = daemon.dhow(&["status", "shop", "--at", "1s"]).ends_with(0);
    assert!(
        status.stdout.contains("4/4") || status.stdout.contains("web"),
        "{}",
        status.stdout
    );
    daemon.dhow(&["status", "--at", "99999999"]).ends_with(4);
    daemon.dhow(&["status", "--at", "yesterday"]).ends_with(2);
    daemon.dhow(&["ps", "--live", "--at", &first]).ends_with(2);
    let cluster = daemon.dhow(&["cluster", "status"]).ends_with(0).stdout;
    assert!(cluster.contains("past:      revisions 0 to "), "{cluster}");

    daemon.term();
    let data_dir = daemon.data_dir();
    let replayed = daemon.dhow(&["debug", "replay", data_dir.to_str().unwrap(), "--verbose"]);
    let replayed = replayed.ends_with(0);
    assert!(
        replayed.stdout.contains("Deployment(Deploy"),
        "{}",
        replayed.stdout
    );
    assert!(replayed.stdout.contains("\nhash     "), "{}", replayed.stdout);
    daemon.restart();
    daemon.finish();
}

#[test]
fn every_server_tells_its_own_past_and_a_static_cluster_has_none() {
    let mut cluster = Cluster::raft("past-raft", 3, Where::Loopback);
    let follower = cluster.follower();
    cluster.nodes[follower]
        .deploy("shop", &[("web", spread(3))])
        .ends_with(0);
    let (revision, replicas, _) = seen(&cluster.nodes[follower]);
    cluster.nodes[follower].kill9();
    cluster.nodes[follower].restart();
    let scaled = until("somebody leads", || {
        let answer = cluster.nodes[follower].dhow(&["scale", "shop/web=1", "--wait"]);
        (answer.code == 0).then_some(answer)
    });
    assert_eq!(scaled.code, 0);
    for node in &cluster.nodes {
        until("this server has come so far", || {
            let reply = node.get(&format!("/api/v1/replicas?at={revision}")).ok()?;
            (reply.status == 200).then_some(())
        });
        assert_eq!(replicas_at(node, revision), replicas);
    }
    cluster.finish();
    let cluster = Cluster::fixed("past-static", 2, Where::Loopback);
    let refused = cluster.nodes[0].dhow(&["status", "--at", "1"]).ends_with(4);
    assert!(
        refused.stderr.contains("a static cluster keeps no past"),
        "{}",
        refused.stderr
    );
    cluster.finish();
}
