//! Certificates that the cluster orders, from a real ACME server that asks the hosts: ordered, shown by every node, renewed,
//! and told of where that fails. The clients are curl and openssl, as people have them.

use serde_json::{Value, json};

use crate::ingress::{Certificates, Client, obstacle, web};
use crate::support::{
    Cluster, Daemon, Network, Pebble, PebbleOptions, Scratch, Service, Where, free_port, skip, until,
};

/// Short enough to see one renewed, when two thirds of it are over.
const VALIDITY_SECS: u64 = 18;

/// A service whose certificate is ordered.
fn ordered(host: &str) -> Service {
    web(free_port(), json!({ "host": host, "tls": { "acme": true } }))
}

/// Where certificates are ordered, for the configuration of a daemon.
fn config_of(pebble: &Pebble, certificates: &Certificates) -> Value {
    json!({
        "directory": pebble.directory,
        "authority_file": certificates.ca(),
        "email": "ops@shop.test",
        "agree_to_terms": true,
    })
}

#[test]
fn a_certificate_is_ordered_and_renewed_and_a_failure_is_told() {
    if let Some(why) = obstacle().or_else(Pebble::obstacle) {
        return skip("certificates from an ACME server", &why);
    }
    let (http, https) = (free_port(), free_port());
    let mut daemon = Daemon::at(Scratch::new("acme-one"));
    let dir = daemon.scratch.path.clone();
    let certificates = Certificates::new(&dir);
    certificates.make("pebble", "IP:127.0.0.1", 30);
    let pebble = Pebble::start(&PebbleOptions {
        dir: &dir,
        namespace: None,
        ip: "127.0.0.1".into(),
        ports: [free_port(), free_port(), free_port(), free_port()],
        http_port: http,
        validity_secs: VALIDITY_SECS,
    });
    let client = Client {
        ca: pebble.root(&dir),
        namespace: None,
        ip: "127.0.0.1".into(),
        http,
        https,
    };
    let mut config = json!({
        "api_addr": format!("127.0.0.1:{}", daemon.api_port),
        "network": { "ingress_addr": "127.0.0.1", "http_port": http, "https_port": https },
    });
    daemon.config = Some(config.to_string());
    daemon.restart();
    // Nobody orders where nobody says from whom.
    daemon
        .deploy("shop", &[("web", ordered("shop.test"))])
        .ends_with(4)
        .says(&["orders no certificates", "`acme`"]);
    config["acme"] = config_of(&pebble, &certificates);
    daemon.config = Some(config.to_string());
    daemon.kill9();
    daemon.restart();
    pebble.unname("lost.test");
    let services = [("web", ordered("shop.test")), ("lost", ordered("lost.test"))];
    daemon.deploy("shop", &services).ends_with(0);
    served_without(&daemon, &client);
    until("it is ordered and shown", || {
        client.ask("https://shop.test/", &["--http2"]).ok()
    });
    let sent = client.ask("http://shop.test/", &["-o", "/dev/null", "-w", "%{http_code}"]);
    assert_eq!(sent.unwrap(), "308");
    let first = client.shown("shop.test");
    failure_is_told(&daemon);
    // The next daemon goes on with it, and nothing is ordered that is not due.
    daemon.kill9();
    daemon.restart();
    until("it is renewed", || {
        let shown = client.shown("shop.test");
        (!shown.is_empty() && shown != first).then_some(())
    });
    client.ask("https://shop.test/", &[]).unwrap();
    let said = daemon.said();
    for secret in ["PRIVATE", "key_pkcs8"] {
        assert!(!said.contains(secret), "no key is logged");
    }
    drop(pebble);
    daemon.finish();
}

/// Without a certificate it is served all the same, and nobody is sent to where it is not.
fn served_without(daemon: &Daemon, client: &Client) {
    let status = daemon.dhow(&["status", "shop"]).ends_with(0).stdout;
    assert!(status.contains("without TLS, at port 80"), "{status}");
    until("plain requests are answered", || {
        let args = ["-o", "/dev/null", "-w", "%{http_code}"];
        (client.ask("http://lost.test/", &args).as_deref() == Ok("200")).then_some(())
    });
    assert!(client.ask("https://lost.test/", &[]).is_err());
}

/// Where somebody looks, in the server's own words; and what the cluster keeps is not a person's.
fn failure_is_told(daemon: &Daemon) {
    let status = until("the failure is told", || {
        let status = daemon.dhow(&["status", "shop"]).ends_with(0).stdout;
        status.contains("failed once").then_some(status)
    });
    for part in ["lost/http", "lost.test", "tried again at"] {
        assert!(status.contains(part), "{part} in {status}");
    }
    let explained = daemon.dhow(&["explain", "shop/lost"]).ends_with(0).stdout;
    assert!(explained.contains("failed once"), "{explained}");
    let listed = daemon.dhow(&["secret", "ls"]).ends_with(0).stdout;
    assert!(!listed.contains("acme"), "{listed}");
    daemon.dhow(&["secret", "rm", "acme/cert/shop.test"]).ends_with(4);
}

/// A service for each host, each at a port of its own.
fn services_of<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<(String, Service)> {
    let services = hosts.zip(8_080..).map(|(host, port)| {
        let service = web(port, json!({ "host": host, "tls": { "acme": true } }));
        (format!("web{port}"), service)
    });
    services.collect()
}

#[test]
fn every_node_answers_for_a_host_and_shows_its_certificate_whoever_leads() {
    if let Some(why) = obstacle().or_else(Network::obstacle).or_else(Pebble::obstacle) {
        return skip("certificates from an ACME server on every node", &why);
    }
    let mut cluster = Cluster::prepare("acme-nodes", 3, Where::Namespaces, "raft", &json!({}));
    let dir = cluster.nodes[0].scratch.path.clone();
    let certificates = Certificates::new(&dir);
    let ip = cluster.network().addr(0);
    certificates.make("pebble", &format!("IP:{ip}"), 30);
    let pebble = Pebble::start(&PebbleOptions {
        dir: &dir,
        namespace: Some(cluster.network().namespace(0)),
        ip,
        ports: [14_000, 15_000, 8_053, 8_055],
        http_port: 80,
        validity_secs: VALIDITY_SECS,
    });
    let acme = config_of(&pebble, &certificates);
    for node in &mut cluster.nodes {
        let mut config: Value = serde_json::from_str(node.config.as_ref().unwrap()).unwrap();
        config["acme"] = acme.clone();
        node.config = Some(config.to_string());
        node.restart();
    }
    cluster.until_complete();
    // Each is asked by the ACME server: of each node's own host, and of one that is at all of them.
    let addrs: Vec<String> = (0..3).map(|node| cluster.network().addr(node)).collect();
    pebble.name("shop.test", &addrs);
    let hosts: Vec<String> = (0..3).map(|node| format!("n{node}.test")).collect();
    for (host, addr) in hosts.iter().zip(&addrs) {
        pebble.name(host, std::slice::from_ref(addr));
    }
    let ca = pebble.root(&dir);
    let leader = cluster.until_leader();
    let services = services_of(hosts.iter().map(String::as_str).chain(["shop.test"]));
    let services: Vec<(&str, Service)> = services
        .iter()
        .map(|(name, of)| (name.as_str(), of.clone()))
        .collect();
    cluster.nodes[leader].deploy("shop", &services).ends_with(0);
    let clients: Vec<Client> = (0..3)
        .map(|node| Client {
            ca: ca.clone(),
            namespace: Some(cluster.network().namespace(node)),
            ip: addrs[node].clone(),
            http: 80,
            https: 443,
        })
        .collect();
    for client in &clients {
        for host in hosts.iter().map(String::as_str).chain(["shop.test"]) {
            until("each node shows each certificate", || {
                client.ask(&format!("https://{host}/"), &[]).ok()
            });
        }
    }
    // Another leader goes on: what it shows is renewed, by those that are left.
    let first: Vec<String> = clients.iter().map(|client| client.shown("shop.test")).collect();
    cluster.nodes[leader].kill9();
    for (node, client) in clients.iter().enumerate().filter(|(node, _)| *node != leader) {
        until("each node that is left shows the next one", || {
            let shown = client.shown("shop.test");
            (!shown.is_empty() && shown != first[node]).then_some(())
        });
        client.ask("https://shop.test/", &[]).unwrap();
    }
    drop(pebble);
    cluster.nodes[leader].restart();
    cluster.finish();
}
