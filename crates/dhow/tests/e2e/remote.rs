//! The command line on one machine, the cluster on others: a token is all that it needs, and nothing less will do.

use crate::support::{Answer, Cluster, Network, Service, Where, skip};

/// The command line in a node's network, which knows of no daemon but this.
fn remote(cluster: &Cluster, from: usize, to: usize, token: &str, args: &[&str]) -> Answer {
    let host = format!("https://{}:3669", cluster.network().addr(to));
    let nowhere = cluster.nodes[from].scratch.path.join("nowhere");
    let mut command = cluster.nodes[from].dhow_command();
    command
        .env_remove("DHOW_API_ADDR")
        .env("DHOW_DATA_DIR", nowhere)
        .env("DHOW_HOST", host)
        .env("DHOW_TOKEN", token)
        .args(args);
    Answer::of(command.output().unwrap())
}

fn token(cluster: &Cluster, role: &str, name: &str) -> String {
    let made = cluster.nodes[0].dhow(&["token", "create", "--role", role, "--name", name]);
    made.ends_with(0).stdout.trim().to_owned()
}

#[test]
fn a_token_opens_the_cluster_from_elsewhere() {
    if let Some(why) = Network::obstacle() {
        return skip("a_token_opens_the_cluster_from_elsewhere", &why);
    }
    let cluster = Cluster::raft("remote", 3, Where::Namespaces);
    let (admin, reader) = (token(&cluster, "admin", "ann"), token(&cluster, "read", "bob"));
    let file = cluster.nodes[0].deployment("shop", &[("web", Service::sleeper().replicas(3))]);
    // Through each server, whichever leads.
    for to in 0..3 {
        remote(&cluster, 0, to, &admin, &["deploy", &file]).ends_with(0);
        remote(&cluster, 0, to, &reader, &["status", "shop"]).ends_with(0);
        let refused = remote(&cluster, 0, to, &reader, &["scale", "shop/web=9"]);
        assert_ne!(refused.code, 0, "a reader has written");
    }
    let status = remote(&cluster, 1, 2, &reader, &["status", "shop", "--json"]).json();
    assert_eq!(status["services"][0]["desired"], 3);
    let history = remote(&cluster, 1, 2, &reader, &["history", "shop"])
        .ends_with(0)
        .stdout;
    assert!(history.contains("ann"), "{history}");
    // No token, no scheme that would show it to everybody, not one of another cluster.
    assert_ne!(remote(&cluster, 0, 1, "", &["status"]).code, 0);
    let stranger = Cluster::raft("stranger", 1, Where::Loopback);
    let other = token(&stranger, "admin", "eve");
    let refused = remote(&cluster, 0, 1, &other, &["status"]);
    assert_ne!(refused.code, 0);
    // The client does not even send it: the certificate is not the one that the token names.
    assert!(
        refused.stderr.contains("certificate") || refused.stderr.contains("trust"),
        "{}",
        refused.stderr
    );
    stranger.finish();
    // Revoked on one server, refused by all.
    let listed = cluster.nodes[2].dhow(&["token", "ls", "--json"]).json();
    let tokens = listed.as_array().unwrap().iter();
    let id = tokens
        .filter(|token| token["name"] == "ann")
        .map(|token| token["id"].as_str().unwrap());
    for id in id {
        cluster.nodes[2].dhow(&["token", "revoke", id]).ends_with(0);
    }
    for to in 0..3 {
        let refused = remote(&cluster, 0, to, &admin, &["status"]);
        assert_ne!(refused.code, 0, "server {to} takes a revoked token");
    }
    cluster.finish();
}
