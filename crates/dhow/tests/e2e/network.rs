//! Services of several nodes find each other: by name from containers, by variables from host programs, at the public
//! port of every node; over TCP, HTTP and UDP. In a raft cluster, in a worker tier and in a static cluster, with the same
//! bridge subnet on every node.

mod nat;
mod on_demand;
mod resolver;

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, Network, Service, Where, busybox_layout, container, skip, until};

/// What the database says.
const WORD: &str = "shop-data";
/// The subnet of the bridge on every node, and the bridge's own address.
const SUBNET: &str = "10.88.4.0/22";
const GATEWAY: &str = "10.88.4.1/22";
/// The public port of the site.
const SITE_PORT: u16 = 8080;

/// Why several hosts with containers cannot be had here.
fn obstacle() -> Option<String> {
    let missing = ["curl", "busybox"].into_iter().find(|program| {
        let tried = Command::new(program).arg("--help").output();
        tried.is_err()
    });
    let missing = missing.map(|program| format!("`{program}` is not installed"));
    Network::obstacle().or(missing)
}

/// A cluster of several hosts, with one replica of `client` and `tool` on each that runs replicas.
struct Stage {
    cluster: Cluster,
    /// Where each node of the cluster is in the network, by its id.
    places: Vec<(u64, usize)>,
}

/// A service that only the nodes with this label run.
fn on(service: Service, label: &str) -> Service {
    service.with("node_selector", json!({ "labels": { "holds": label } }))
}

fn site(layout: &Path, word: &str) -> Service {
    let script =
        format!("mkdir -p /tmp/www; echo {word} > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www");
    container(layout, &script)
}

fn everywhere(service: Service) -> Service {
    service.with("rtype", json!("system"))
}

/// A database, a site and a resolver for `data` alone, and somebody who calls them on every node.
fn shop(layout: &Path) -> Vec<(&'static str, Service)> {
    let pg = json!([{ "name": "pg", "protocol": "tcp", "port": 5432, "target_port": 8000 }]);
    let http = json!([{
        "name": "http", "protocol": "http", "port": SITE_PORT, "target_port": 8000, "expose": "public",
    }]);
    let dns = json!([{ "name": "dns", "protocol": "udp", "port": 53 }]);
    vec![
        ("db", on(site(layout, WORD), "data").with("endpoints", pg)),
        ("site", on(site(layout, "hello"), "data").with("endpoints", http)),
        ("resolver", on(resolver::service(), "data").with("endpoints", dns)),
        ("client", everywhere(container(layout, "exec sleep 3600"))),
        ("tool", everywhere(Service::sleeper())),
    ]
}

impl Stage {
    fn new(cluster: Cluster) -> Self {
        let all = cluster.nodes.iter().chain(&cluster.workers).enumerate();
        let places = all.map(|(place, node)| (node.node_id.unwrap(), place)).collect();
        Self { cluster, places }
    }

    fn server(&self) -> &Daemon {
        &self.cluster.nodes[self.cluster.until_leader()]
    }

    fn label(&self, node: u64, value: &str) {
        let label = format!("holds={value}");
        self.server()
            .dhow(&["node", "label", &node.to_string(), &label])
            .ends_with(0);
    }

    /// The replica of a service on a node.
    fn replica(&self, service: &str, node: u64) -> String {
        let id = until(&format!("{service} runs on node {node}"), || {
            let replicas = self.server().replicas_of(service).into_iter();
            let mut there = replicas.filter(|replica| replica.node_id == Some(node) && replica.healthy);
            there.next().map(|replica| replica.id)
        });
        format!("shop/{id}")
    }

    /// Until a script inside a replica of that node says something.
    fn says(&self, service: &str, node: u64, script: &str, wanted: &str) {
        let replica = self.replica(service, node);
        let mut last = String::new();
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        while std::time::Instant::now() < deadline {
            let answer = self.server().dhow(&["exec", &replica, "--", "sh", "-c", script]);
            if answer.stdout.contains(wanted) {
                return;
            }
            last = format!("{}{}", answer.stdout, answer.stderr);
        }
        panic!("{replica} on node {node} does not get {wanted:?} by {script:?}: {last}");
    }

    fn place(&self, node: u64) -> usize {
        let found = self.places.iter().find(|(id, _)| *id == node);
        found.expect("it is one of the cluster's").1
    }

    /// Asks the public port of a node, from another host.
    fn fetch(&self, from: usize, node: u64) -> Option<String> {
        let network = self.cluster.network();
        let url = format!("http://{}:{SITE_PORT}/", network.addr(self.place(node)));
        let asked = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", network.namespace(from)))
            .args(["busybox", "timeout", "5", "busybox", "wget", "-qO-", &url])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        asked.status.success().then_some(said)
    }

    /// Every node that runs replicas reaches everything, by every way, and every node serves the public port.
    fn all_find_all(&self, callers: &[u64]) {
        for node in callers.iter().copied() {
            let wget = |url: &str| format!("timeout 5 wget -qO- {url}");
            self.says("client", node, &wget("http://db:5432/"), WORD);
            self.says("client", node, &wget("http://db.shop.dhow:5432/"), WORD);
            self.says(
                "client",
                node,
                &wget(&format!("http://site:{SITE_PORT}/")),
                "hello",
            );
            self.says("client", node, &wget("http://$DB_ADDR/"), WORD);
            let lookup = format!("timeout 5 nslookup -type=a {} resolver", resolver::NAME);
            self.says("client", node, &lookup, resolver::ADDRESS);
            let host = "busybox timeout 5 busybox wget -qO- http://$DB_ADDR/";
            self.says("tool", node, host, WORD);
        }
        for (node, place) in &self.places {
            let from = (place + 1) % self.places.len();
            until(&format!("the public port of node {node} answers"), || {
                self.fetch(from, *node).filter(|said| said == "hello")
            });
        }
    }

    fn daemon(&self, node: u64) -> &Daemon {
        let mut all = self.cluster.nodes.iter().chain(&self.cluster.workers);
        let found = all.find(|daemon| daemon.node_id == Some(node));
        found.expect("it is one of the cluster's")
    }

    /// Whether the proxy of a node has said something in its log.
    fn has_said(&self, node: u64, words: &str) -> bool {
        let dir = self.daemon(node).data_dir().join("proxy");
        let found = Command::new("grep").args(["-rqs", words]).arg(&dir).status();
        found.unwrap().success()
    }
}

/// A raft cluster whose nodes have the same subnet on their bridges, as hosts with the same data directory have.
fn with_equal_subnets(name: &str) -> Cluster {
    let mut cluster = Cluster::prepare(name, 3, Where::Namespaces, "raft", &json!({}));
    for node in &mut cluster.nodes {
        let (dir, bridge) = (node.data_dir(), node.scratch.bridge());
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let chosen = json!({ "version": 1, "name": bridge, "subnet": SUBNET });
        std::fs::write(dir.join("network.json"), chosen.to_string()).unwrap();
        node.restart();
    }
    cluster.until_complete();
    cluster
}

/// The subnets that the bridges of all nodes have.
fn bridge_subnets(cluster: &Cluster) -> Vec<String> {
    let subnets = cluster.nodes.iter().map(|node| {
        let namespace = node.namespace.as_deref().unwrap();
        let asked = ["-n", namespace, "-4", "-br", "addr", "show", "type", "bridge"];
        let shown = Command::new("ip").args(asked).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        shown.split_whitespace().nth(2).unwrap_or_default().to_owned()
    });
    subnets.collect()
}

#[test]
fn nodes_of_a_raft_cluster_reach_each_others_services_and_outlive_one_of_them() {
    if let Some(why) = obstacle() {
        return skip("the network of a raft cluster", &why);
    }
    let mut stage = Stage::new(with_equal_subnets("mesh"));
    let layout = match busybox_layout(&stage.cluster.nodes[0].scratch.path) {
        Ok(layout) => layout,
        Err(why) => return skip("the network of a raft cluster", &why),
    };
    stage.label(1, "data");
    stage.server().deploy("shop", &shop(&layout)).ends_with(0);
    assert_eq!(bridge_subnets(&stage.cluster), [GATEWAY; 3]);
    stage.all_find_all(&[1, 2, 3]);
    // Another deployment is none of theirs, on whatever node it is.
    let stranger = [("client", everywhere(container(&layout, "exec sleep 3600")))];
    stage.server().deploy("blog", &stranger).ends_with(0);
    for replica in stage.server().replicas() {
        if replica.deployment == "blog" {
            let name = format!("blog/{}", replica.id);
            let script = "timeout 5 wget -qO- http://db.shop:5432/";
            let asked = stage.server().dhow(&["exec", &name, "--", "sh", "-c", script]);
            assert_ne!(asked.code, 0, "{}", asked.stdout);
        }
    }
    stage.server().dhow(&["rm", "blog", "--wait"]).ends_with(0);
    a_forged_address_gets_nothing(&stage);
    a_dead_node_is_passed_over(&mut stage, &layout);
    stage.cluster.finish();
}

/// Two nodes have the site; then one of them has no power any more.
fn a_dead_node_is_passed_over(stage: &mut Stage, layout: &Path) {
    stage.label(3, "data");
    let two: Vec<_> = shop(layout)
        .into_iter()
        .map(|(name, service)| match name {
            "site" => (name, service.replicas(2)),
            _ => (name, service),
        })
        .collect();
    stage.server().deploy("shop", &two).ends_with(0);
    stage.replica("site", 3);
    for node in [1, 2] {
        for _ in 0..4 {
            assert_eq!(stage.fetch(stage.place(node), node).as_deref(), Some("hello"));
        }
    }
    stage.cluster.network().cut(2);
    stage.cluster.power_off(2);
    for node in [1, 2] {
        // Somebody has to call, for a node that nobody calls is not watched.
        until(&format!("node {node} passes the dead one over"), || {
            let _ = stage.fetch(stage.place(node), node);
            stage.has_said(node, "node 3 is silent").then_some(())
        });
        for _ in 0..10 {
            assert_eq!(
                stage.fetch(stage.place(node), node).as_deref(),
                Some("hello"),
                "node {node}"
            );
        }
    }
    stage.cluster.network().heal(2);
}

/// A container that takes another one's address, as only somebody could who has broken out of its limits.
fn a_forged_address_gets_nothing(stage: &Stage) {
    let replicas = stage.server().replicas();
    let pid = |service: &str| {
        let mut found = replicas
            .iter()
            .filter(|replica| replica.service == service && replica.node_id == Some(1));
        found.next().and_then(|replica| replica.pid).expect("it runs")
    };
    let inside = |pid: u32, args: &[&str]| {
        let asked = Command::new("nsenter")
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        (asked.status.success(), said)
    };
    let address_of = |pid: u32| {
        let (_, shown) = inside(pid, &["ip", "-4", "-br", "addr", "show", "dev", "eth0"]);
        let found = shown.split_whitespace().nth(2).expect("it has an address");
        found.to_owned()
    };
    let (client, address) = (pid("client"), address_of(pid("site")));
    let bare = |address: &str| address.split('/').next().unwrap_or_default().to_owned();
    let (own, forged) = (bare(&address_of(client)), bare(&address));
    let url = database_url(client);
    let ask = |source: &str| {
        let args = ["curl", "-s", "-m", "3", "--interface", source, &url];
        inside(client, &args)
    };
    assert!(ask(&own).1.contains(WORD), "with its own it is served");
    assert!(inside(client, &["ip", "addr", "add", &address, "dev", "eth0"]).0);
    assert!(!ask(&forged).0, "nothing with another's address gets through");
    assert!(inside(client, &["ip", "addr", "del", &address, "dev", "eth0"]).0);
    assert!(ask(&own).1.contains(WORD), "nothing else is disturbed");
}

#[test]
fn workers_reach_each_others_services_and_a_removed_one_is_shut_out() {
    if let Some(why) = obstacle() {
        return skip("the network of a worker tier", &why);
    }
    let soon = json!({ "failover_heartbeat_ttl": 12 });
    let cluster = Cluster::worker_tier_with_room("mesh-tier", 3, 2, 1, &soon);
    let mut stage = Stage::new(cluster);
    let layout = match busybox_layout(&stage.cluster.nodes[0].scratch.path) {
        Ok(layout) => layout,
        Err(why) => return skip("the network of a worker tier", &why),
    };
    let workers: Vec<u64> = stage
        .cluster
        .workers
        .iter()
        .map(|worker| worker.node_id.unwrap())
        .collect();
    stage.label(workers[0], "data");
    on_demand::services_of_others_are_found(&mut stage, &layout, workers[1]);
    stage.server().deploy("shop", &shop(&layout)).ends_with(0);
    stage.all_find_all(&workers);
    keys_are_the_proxies_own(&stage);
    // A worker whose certificate is of the next CA is believed at once.
    stage.server().dhow(&["cluster", "rotate-worker-ca"]).ends_with(0);
    let newcomer = join(&mut stage);
    stage.all_find_all(&[newcomer]);
    // The servers do not hear worker 1 any more and remove it. It still reaches worker 0, whose proxy knows better.
    let removed = workers[1];
    let place = stage.place(removed);
    let pid = client_pid(&stage, removed);
    for server in 0..3 {
        stage.cluster.network().part(server, place);
    }
    assert!(reads_database(pid), "it goes on without servers");
    until("the servers have given it up", || {
        let shown = stage
            .server()
            .dhow(&["node", "show", &removed.to_string(), "--json"]);
        (shown.json()["status"] == "unreachable").then_some(())
    });
    assert!(reads_database(pid), "it is lost, not removed");
    stage
        .server()
        .dhow(&["node", "rm", &removed.to_string()])
        .ends_with(0);
    until("the others do not let it in", || {
        (!reads_database(pid)).then_some(())
    });
    let named = format!("node {removed} is refused: it was removed");
    assert!(stage.has_said(workers[0], &named));
    stage.all_find_all_but(&[workers[0], newcomer], removed);
    stage.cluster.power_off_worker(1);
    stage.cluster.finish();
}

impl Stage {
    /// The same where one node is not the cluster's any more.
    fn all_find_all_but(&mut self, callers: &[u64], gone: u64) {
        let places = self.places.clone();
        self.places.retain(|(node, _)| *node != gone);
        self.all_find_all(callers);
        self.places = places;
    }
}

/// The process of the client on a node.
fn client_pid(stage: &Stage, node: u64) -> u32 {
    let replicas = stage.server().replicas_of("client").into_iter();
    let mut there = replicas.filter(|replica| replica.node_id == Some(node) && replica.runs());
    there.next().and_then(|replica| replica.pid).expect("it runs")
}

/// Where that process is told that the database is.
fn database_url(pid: u32) -> String {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environ = String::from_utf8_lossy(&environ).into_owned();
    let addr = environ.split('\0').find_map(|line| line.strip_prefix("DB_ADDR="));
    format!("http://{}/", addr.expect("it has the variables"))
}

/// Asks the database as that container does, without the servers' help.
fn reads_database(pid: u32) -> bool {
    let asked = Command::new("nsenter")
        .arg(format!("--net=/proc/{pid}/ns/net"))
        .args(["curl", "-s", "-m", "5", &database_url(pid)])
        .output()
        .unwrap();
    String::from_utf8_lossy(&asked.stdout).contains(WORD)
}

/// One more worker joins.
fn join(stage: &mut Stage) -> u64 {
    let token = stage.cluster.worker_token(&[]);
    let place = stage.cluster.add_worker(&token);
    stage.cluster.workers[place].restart();
    let id = stage.cluster.learn_id(place);
    stage.places.push((id, stage.cluster.nodes.len() + place));
    id
}

/// The key in the folder of a worker's proxy is not the worker's.
fn keys_are_the_proxies_own(stage: &Stage) {
    for worker in &stage.cluster.workers {
        let own = std::fs::read_to_string(worker.data_dir().join("worker/identity/key.pem")).unwrap();
        let kept = std::fs::read_to_string(worker.data_dir().join("proxy/table/mesh.json")).unwrap();
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_ne!(kept["key_pem"].as_str().unwrap().trim(), own.trim());
    }
}

#[test]
fn peers_of_a_static_cluster_reach_each_others_services() {
    if let Some(why) = obstacle() {
        return skip("the network of a static cluster", &why);
    }
    let stage = Stage::new(Cluster::fixed_with("mesh-static", 3, Where::Namespaces, 12));
    let layout = match busybox_layout(&stage.cluster.nodes[0].scratch.path) {
        Ok(layout) => layout,
        Err(why) => return skip("the network of a static cluster", &why),
    };
    stage.label(2, "data");
    stage.server().deploy("shop", &shop(&layout)).ends_with(0);
    stage.all_find_all(&[1, 2, 3]);
    stage.cluster.finish();
}

#[test]
fn daemons_of_one_host_reach_each_others_services_with_nothing_configured() {
    let cluster = Cluster::raft("mesh-host", 3, Where::Loopback);
    let label = |node: &str, value: &str| {
        let server = &cluster.nodes[cluster.until_leader()];
        server
            .dhow(&["node", "label", node, &format!("holds={value}")])
            .ends_with(0);
    };
    label("1", "data");
    label("2", "caller");
    let port = crate::support::free_port();
    let endpoint = json!([{ "name": "http", "protocol": "http", "port": port }]);
    let script = format!(
        "mkdir -p $E2E_MARK.www; echo {WORD} > $E2E_MARK.www/index.html; \
         exec busybox httpd -f -p 127.0.0.1:$PORT -h $E2E_MARK.www"
    );
    let services = [
        (
            "db",
            on(Service::shell(&script), "data").with("endpoints", endpoint),
        ),
        ("tool", on(Service::sleeper(), "caller")),
    ];
    let server = &cluster.nodes[cluster.until_leader()];
    server.deploy("shop", &services).ends_with(0);
    let asked = "busybox timeout 5 busybox wget -qO- http://$DB_ADDR/";
    until("the other daemon's service answers", || {
        let answer = server.dhow(&["exec", "shop/tool-default-0", "--", "sh", "-c", asked]);
        answer.stdout.contains(WORD).then_some(())
    });
    let shown = server.dhow(&["node", "show", "2", "--json"]).json();
    let mesh_addr = shown["mesh_addr"].as_str().unwrap_or_default();
    assert!(mesh_addr.starts_with("127.86."), "{shown}");
    let _ = std::fs::remove_dir_all(format!("{}.www", cluster.nodes[0].mark.display()));
    cluster.finish();
}
