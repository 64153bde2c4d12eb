//! Several daemons that are one cluster, on loopback or in namespaces of their own.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Daemon, Network, Scratch, free_port, host, until};

/// Where the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// All on loopback, with a port each.
    Loopback,
    /// Each in a network namespace, so that links can be cut.
    Namespaces,
}

/// See the module. Nodes are named by their place, from 0; the cluster's own ids are one more.
pub struct Cluster {
    pub nodes: Vec<Daemon>,
    network: Option<Network>,
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

    /// The same without a key, on loopback: every program of the host is believed to be a peer.
    pub fn fixed_without_key(name: &str, count: usize) -> Self {
        let extra = json!({ "heartbeat_interval": 1, "failure_threshold": 12 });
        let mut cluster = Self::prepare(name, count, Where::Loopback, "static", &extra);
        for node in &mut cluster.nodes {
            std::fs::remove_file(node.scratch.path.join("cluster.key")).unwrap();
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
        };
        let scratches: Vec<_> = (0..count)
            .map(|node| Scratch::new(&format!("{name}-{node}")))
            .collect();
        let mark = std::env::temp_dir().join(format!("dhow-e2e-{}-{name}", std::process::id()));
        let mut peers = Vec::new();
        let mut daemons = Vec::new();
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
            let mut mode = json!({ "mode": mode, "node_id": node + 1, "peers": peers });
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
            network,
        }
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
        let running = self.nodes.iter().filter(|node| node.is_running()).count();
        until("all nodes are ready", || {
            let leader = self.leader()?;
            let listed = self.nodes[leader].get("/api/v1/nodes").ok()?.json();
            let ready = listed.as_array()?.iter().filter(|node| node["status"] == "ready");
            (ready.count() == running).then_some(())
        });
    }

    /// The daemon and everything that runs on account of it end at once.
    pub fn power_off(&mut self, node: usize) {
        let daemon = &mut self.nodes[node];
        if daemon.is_running() {
            daemon.kill9();
        }
        let (daemon, folder) = (&self.nodes[node], &self.nodes[node].scratch.path);
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
        for node in &mut self.nodes {
            if node.is_running() {
                let ended = node.term();
                assert_eq!(ended.code(), Some(0), "{}", node.said());
            }
        }
        for node in &self.nodes {
            node.nothing_is_left();
            until("no replica is left", || node.workloads().is_empty().then_some(()));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.power_off(node);
        }
    }
}

fn write_key(path: &Path, key: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
