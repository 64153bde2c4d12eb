//! Several nodes and the network between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dhow_server::log::raft::{RaftOptions, RaftPeerAddrs};
use dhow_server::log::store::StoreOptions;

use crate::network::Network;
use crate::node::{Node, dir_of};

/// How long a cluster may take for anything before a test gives up; far more than it needs.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub struct Cluster {
    pub network: Network,
    pub nodes: BTreeMap<u64, Node>,
    pub peers: BTreeMap<u64, RaftPeerAddrs>,
    pub dir: tempfile::TempDir,
}

pub fn addrs(id: u64) -> RaftPeerAddrs {
    let addr = |base: u16| SocketAddr::from(([127, 0, 0, 1], base + id as u16));
    RaftPeerAddrs {
        raft_addr: addr(1_000),
        api_addr: addr(2_000),
    }
}

pub fn store_options() -> StoreOptions {
    StoreOptions {
        segment_size_bytes: 256 * 1024,
        max_record_bytes: 64 * 1024,
        ..StoreOptions::default()
    }
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("it never came to this: {what}"));
}

impl Cluster {
    /// A cluster of nodes 1 to `count`, with a leader.
    pub async fn start(count: u64) -> Cluster {
        let mut cluster = Cluster::prepare(count);
        for id in 1..=count {
            cluster.open(id).await;
        }
        cluster.leader().await;
        cluster
    }

    /// The same before any node is open.
    pub fn prepare(count: u64) -> Cluster {
        Cluster {
            network: Network::default(),
            nodes: BTreeMap::new(),
            peers: (1..=count).map(|id| (id, addrs(id))).collect(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn options(&self, id: u64) -> RaftOptions {
        let mut peers = self.peers.clone();
        peers.insert(id, addrs(id));
        let transport = self.network.transport(id);
        RaftOptions {
            store: store_options(),
            ..RaftOptions::new(id, peers, dir_of(self.dir.path(), id), transport)
        }
    }

    pub async fn open(&mut self, id: u64) {
        self.open_with(self.options(id)).await;
    }

    pub async fn open_with(&mut self, options: RaftOptions) {
        let id = options.node_id;
        let node = Node::open(options).await.unwrap();
        self.network.plug(id, node.log.handler());
        self.nodes.insert(id, node);
    }

    pub async fn stop(&mut self, id: u64) {
        self.network.unplug(id);
        self.nodes.remove(&id).unwrap().stop().await;
    }

    pub async fn restart(&mut self, id: u64) {
        self.stop(id).await;
        self.open(id).await;
    }

    pub async fn stop_all(&mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }

    pub fn others(&self, id: u64) -> Vec<u64> {
        self.nodes.keys().copied().filter(|other| *other != id).collect()
    }

    pub fn isolate(&self, id: u64) {
        self.network
            .isolate(id, self.peers.keys().copied().filter(|other| *other != id));
    }

    /// Waits for a node that is sure to lead.
    pub async fn leader(&self) -> &Node {
        self.leader_but(0).await
    }

    /// The same, but not this one.
    pub async fn leader_but(&self, but: u64) -> &Node {
        let leads = |node: &&Node| node.id != but && node.leadership().is_here;
        until("somebody leads", || self.nodes.values().any(|node| leads(&node))).await;
        match self.nodes.values().find(leads) {
            Some(leader) => leader,
            // It was so a moment ago.
            None => Box::pin(self.leader_but(but)).await,
        }
    }

    /// Writes through whoever leads until it is acknowledged; a write of unknown outcome is not repeated.
    pub async fn write(&self, command: &str) {
        self.write_but(0, command).await;
    }

    /// The same through anybody but one server, which may still believe that it leads.
    pub async fn write_but(&self, but: u64, command: &str) {
        loop {
            match self.leader_but(but).await.write(command).await {
                Ok(()) => return,
                Err(dhow_server::log::ProposeError::Unknown) => {
                    panic!("nobody knows what became of {command}")
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until all nodes have applied the same, with these commands in it; returns it.
    pub async fn agree(&self, wanted: &[&str]) -> Vec<Bytes> {
        let wanted: Vec<Bytes> = wanted
            .iter()
            .map(|command| Bytes::from(command.to_string()))
            .collect();
        let all = || self.nodes.values().map(Node::commands);
        until("all nodes agree", || {
            let first = all().next().unwrap();
            all().all(|commands| commands == first) && wanted.iter().all(|command| first.contains(command))
        })
        .await;
        all().next().unwrap()
    }
}
