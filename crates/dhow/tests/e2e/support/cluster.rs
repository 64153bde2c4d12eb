//! Several daemons that are one cluster, on loopback or in namespaces of their own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_server::net::keys::{ClusterKey, NodeTls};
use dhow_server::net::peer_http::{PeerHttp, TlsDialer};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Daemon, Network, Reply, Scratch, free_port, host, until};

/// Where the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// All on loopback, with a port each.
    Loopback,
    /// Each in a network namespace, so that links can be cut.
    Namespaces,
    /// The same, with a relay before each, so that links can be slow.
    SlowNamespaces,
}

/// The daemons of one cluster of a test, and the network between them where they have one. Nodes are named by their
/// place, from 0; the cluster's own ids are one more.
pub struct Cluster {
    pub nodes: Vec<Daemon>,
    /// Those of a worker tier, which the servers above do not count.
    pub workers: Vec<Daemon>,
    network: Option<Network>,
    name: String,
    /// Where each server takes workers.
    worker_addrs: Vec<String>,
}

impl Cluster {
    /// A raft cluster that has a leader and knows all its nodes.
    pub fn raft(name: &str, count: usize, place: Where) -> Self {
        let mut cluster = Self::prepare(name, count, place, "raft", &json!({}));
        for node in &mut cluster.nodes {
            node.restart();
        }
        cluster.until_complete();
        cluster
    }

    /// A static cluster that has a leader and knows all its nodes. It notices the dead after three seconds.
    pub fn fixed(name: &str, count: usize, place: Where) -> Self {
        Self::fixed_with(name, count, place, 3)
    }

    /// The same with another threshold, in seconds.
    pub fn fixed_with(name: &str, count: usize, place: Where, threshold_secs: u64) -> Self {
        let extra = json!({ "heartbeat_interval": 1, "failure_threshold": threshold_secs });
        let mut cluster = Self::prepare(name, count, place, "static", &extra);
        for node in &mut cluster.nodes {
            node.restart();
        }
        cluster.until_complete();
        cluster
    }

    /// Not started yet; `extra` is put beside the mode's own keys.
    pub fn prepare(name: &str, count: usize, place: Where, mode: &str, extra: &Value) -> Self {
        let network = match place {
            Where::Loopback => None,
            Where::Namespaces => Some(Network::new(name, count)),
            Where::SlowNamespaces => Some(Network::with_relays(name, count)),
        };
        Self::prepare_on(name, count, network, mode, extra)
    }

    fn prepare_on(name: &str, count: usize, network: Option<Network>, mode: &str, extra: &Value) -> Self {
        let scratches: Vec<_> = (0..count)
            .map(|node| Scratch::new(&format!("{name}-{node}")))
            .collect();
        let mark = std::env::temp_dir().join(format!("dhow-e2e-{}-{name}", std::process::id()));
        let mut peers = Vec::new();
        let mut daemons = Vec::new();
        let mut worker_addrs = Vec::new();
        for (node, scratch) in scratches.into_iter().enumerate() {
            let mut daemon = Daemon::at(scratch);
            daemon.mark = mark.clone();
            daemon.node_id = Some(node as u64 + 1);
            let (ip, raft_port) = match &network {
                Some(network) => {
                    daemon.api_port = 3669;
                    daemon.namespace = Some(network.namespace(node));
                    (network.addr(node), 3668)
                }
                None => ("127.0.0.1".to_owned(), free_port()),
            };
            let mut peer = json!({ "id": node + 1, "api_addr": format!("{ip}:{}", daemon.api_port) });
            worker_addrs.push(match &network {
                Some(_) => format!("{ip}:3670"),
                None => format!("{ip}:{}", free_port()),
            });
            if mode != "static" {
                peer["raft_addr"] = json!(format!("{ip}:{raft_port}"));
            }
            peers.push(peer);
            daemons.push(daemon);
        }
        let key = Command::new(env!("CARGO_BIN_EXE_dhow"))
            .args(["cluster", "keygen"])
            .output();
        let key = key.unwrap().stdout;
        for (node, daemon) in daemons.iter_mut().enumerate() {
            let is_tier = mode == "worker-tier";
            let mut mode = json!({ "mode": mode, "node_id": node + 1, "peers": peers });
            if is_tier {
                mode["role"] = json!("server");
                mode["worker_grpc_addr"] = json!(worker_addrs[node]);
            }
            for (name, value) in extra.as_object().unwrap() {
                mode[name] = value.clone();
            }
            let key_file = daemon.scratch.path.join("cluster.key");
            write_key(&key_file, &key);
            daemon.config = Some(
                json!({
                    "cluster": mode,
                    "cluster_key_file": key_file,
                    "resources": { "cpu": 64, "memory": "64Gi" },
                })
                .to_string(),
            );
        }
        Self {
            nodes: daemons,
            workers: Vec::new(),
            network,
            name: name.to_owned(),
            worker_addrs,
        }
    }

    /// Asks a node's API as a server of the cluster does, with a certificate that the cluster's key has signed.
    pub fn ask_as_member(&self, node: usize, method: &str, path: &str, body: &[u8]) -> Reply {
        let key = ClusterKey::read_file(&self.nodes[node].scratch.path.join("cluster.key")).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap().as_secs()).unwrap();
        // Any of them: the one that calls itself will do.
        let id = NodeId(node as u64 + 1);
        let peers = PeerHttp::new(Arc::new(TlsDialer::new(NodeTls::new(&key, id, now).unwrap())));
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_vec()))
            .unwrap();
        let addr = format!("127.0.0.1:{}", self.nodes[node].api_port)
            .parse()
            .unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let response = peers.send(id, addr, request).await.unwrap();
            let status = response.status().as_u16();
            let body = axum::body::Body::new(response.into_body());
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
            Reply { status, body }
        })
    }

    /// Servers of a worker tier, and so many workers that have joined them.
    pub fn worker_tier(name: &str, servers: usize, workers: usize, extra: &Value) -> Self {
        let cluster = Self::prepare(name, servers, Where::Loopback, "worker-tier", extra);
        cluster.with_workers(workers)
    }

    /// The same with a network namespace for each, the workers after the servers.
    pub fn worker_tier_apart(name: &str, servers: usize, workers: usize, extra: &Value) -> Self {
        Self::worker_tier_with_room(name, servers, workers, 0, extra)
    }

    /// The same with room for more workers.
    pub fn worker_tier_with_room(
        name: &str,
        servers: usize,
        workers: usize,
        room: usize,
        extra: &Value,
    ) -> Self {
        let network = Some(Network::new(name, servers + workers + room));
        let cluster = Self::prepare_on(name, servers, network, "worker-tier", extra);
        cluster.with_workers(workers)
    }

    fn with_workers(mut self, workers: usize) -> Self {
        let cluster = &mut self;
        for node in &mut cluster.nodes {
            node.restart();
        }
        cluster.until_complete();
        if workers > 0 {
            let token = cluster.worker_token(&["--uses", &workers.to_string()]);
            for _ in 0..workers {
                let place = cluster.add_worker(&token);
                cluster.workers[place].restart();
                cluster.learn_id(place);
            }
        }
        self
    }

    /// A token with which workers join.
    pub fn worker_token(&self, args: &[&str]) -> String {
        let mut all = [&["token", "create-worker"], args].concat();
        // The workers of a test carry the label that they are found by.
        if !args.contains(&"--label") {
            all.push("--any-label");
        }
        let answer = self.nodes[self.until_leader()].dhow(&all).ends_with(0);
        answer.stdout.trim().to_owned()
    }

    /// One more worker with this token, not started yet. Gives its place among the workers.
    pub fn add_worker(&mut self, token: &str) -> usize {
        let place = self.workers.len();
        let scratch = Scratch::new(&format!("{}-worker-{place}", self.name));
        let mut daemon = Daemon::at(scratch);
        daemon.mark = self.nodes[0].mark.clone();
        // None of the cluster's, until it has one.
        daemon.node_id = Some(u64::MAX);
        daemon.ready_path = "/ready";
        let token_file = daemon.file("token", token);
        let mut config = json!({
            "api_addr": format!("127.0.0.1:{}", daemon.api_port),
            "cluster": {
                "mode": "worker-tier", "role": "worker", "token_file": token_file,
                "servers": self.worker_addrs.iter().map(|addr| format!("https://{addr}")).collect::<Vec<_>>(),
            },
            "labels": { "place": place.to_string() },
            "resources": { "cpu": 64, "memory": "64Gi" },
        });
        if let Some(network) = &self.network {
            // Where the servers find it, it knows by itself.
            daemon.namespace = Some(network.namespace(self.nodes.len() + place));
            config["api_addr"] = json!("127.0.0.1:3669");
        }
        daemon.config = Some(config.to_string());
        self.workers.push(daemon);
        place
    }

    /// The id that the cluster has given the worker.
    pub fn learn_id(&mut self, place: usize) -> u64 {
        let named = place.to_string();
        let id = until("the worker is listed", || {
            let listed = self.nodes[self.leader()?].get("/api/v1/nodes").ok()?.json();
            let own = listed.as_array()?.iter();
            let mut own = own.filter(|node| node["labels"]["place"] == named.as_str());
            own.next_back()?["node_id"].as_u64()
        });
        self.workers[place].node_id = Some(id);
        id
    }

    /// Where the servers take workers.
    pub fn worker_addrs(&self) -> &[String] {
        &self.worker_addrs
    }

    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("it is on loopback")
    }

    /// The place of the one that leads, as one of the others or itself says.
    pub fn leader(&self) -> Option<usize> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        let mut said = running.filter_map(|node| {
            let status = node.get("/api/v1/cluster").ok()?.json();
            let (leader, own) = (status["leader_id"].as_u64()?, status["node_id"].as_u64()?);
            (leader == own).then_some(usize::try_from(own).unwrap() - 1)
        });
        said.next()
    }

    pub fn until_leader(&self) -> usize {
        until("there is a leader", || self.leader())
    }

    /// One that does not lead and runs.
    pub fn follower(&self) -> usize {
        let leader = self.until_leader();
        let others = self.nodes.iter().enumerate();
        let mut others = others.filter(|(place, node)| *place != leader && node.is_running());
        others.next().unwrap().0
    }

    /// Until every node that runs is known as ready.
    pub fn until_complete(&self) {
        let all = self.nodes.iter().chain(&self.workers);
        let running = all.filter(|node| node.is_running()).count();
        until("all nodes are ready", || {
            let leader = self.leader()?;
            let listed = self.nodes[leader].get("/api/v1/nodes").ok()?.json();
            let ready = listed.as_array()?.iter().filter(|node| node["status"] == "ready");
            (ready.count() == running).then_some(())
        });
    }

    /// The daemon and everything that runs on account of it end at once.
    pub fn power_off(&mut self, node: usize) {
        power_off(&mut self.nodes[node]);
    }

    /// The same for everybody else: nothing of the node says anything any more, and nobody is told.
    pub fn freeze(&self, node: usize) {
        let daemon = &self.nodes[node];
        let marked = host::marked(&daemon.scratch.path).into_iter();
        let all = marked.map(|process| process.pid).chain(daemon.workloads());
        all.for_each(|pid| host::signal(pid, Signal::STOP));
    }

    /// As [`Cluster::power_off`], for a worker.
    pub fn power_off_worker(&mut self, place: usize) {
        power_off(&mut self.workers[place]);
    }

    /// Processes of replicas on one node.
    pub fn workloads(&self, node: usize) -> usize {
        self.nodes[node].workloads().len()
    }

    /// Removes what is deployed, ends all daemons and sees that nothing is left.
    pub fn finish(mut self) {
        let leader = self.until_leader();
        let listed = self.nodes[leader].dhow(&["status", "--json"]).json();
        for deployment in listed.as_array().unwrap() {
            let name = deployment["deployment"].as_str().unwrap();
            self.nodes[leader].dhow(&["rm", name, "--wait"]).ends_with(0);
        }
        // What was powered off has had no chance to clean up.
        let all = self.workers.iter_mut().chain(&mut self.nodes);
        let ended = all.filter(|node| node.is_running()).map(|node| {
            let ended = node.term();
            assert_eq!(ended.code(), Some(0), "{}", node.said());
            &*node
        });
        for node in ended.collect::<Vec<_>>() {
            node.nothing_is_left();
            until("no replica is left", || node.workloads().is_empty().then_some(()));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.workers.iter_mut().chain(&mut self.nodes) {
            power_off(node);
        }
    }
}

fn power_off(daemon: &mut Daemon) {
    if daemon.is_running() {
        daemon.kill9();
    }
    let folder = &daemon.scratch.path;
    // Until nothing of it is left: what is ended last may have started something before.
    loop {
        let marked = host::marked(folder).into_iter().map(|process| process.pid);
        let all: Vec<u32> = marked
            .chain(daemon.workloads())
            .filter(|pid| host::is_alive(*pid))
            .collect();
        if all.is_empty() {
            return;
        }
        all.into_iter().for_each(|pid| host::signal(pid, Signal::KILL));
    }
}

fn write_key(path: &Path, key: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
