//! Several nodes and the network between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dhow_server::plane::log::ProposeError;
use dhow_server::plane::log::raft::{Member, MemberError, RaftLog, RaftOptions, RaftPeerAddrs, RaftTimings};
use dhow_server::plane::log::store::StoreOptions;

use crate::network::Network;
use crate::node::{Node, dir_of};

/// How long a cluster may take for anything before a test gives up; far more than it needs.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// No silence is so long that anybody wants to lead, however slow the machine is.
const CALM: RaftTimings = RaftTimings {
    heartbeat_ms: 100,
    election_min_ms: 3_600_000,
    election_max_ms: 7_200_000,
};

pub struct Cluster {
    pub network: Network,
    pub timings: RaftTimings,
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

/// Makes a new node a voter. One that is too slow to answer is asked again.
async fn add(leader: &RaftLog, id: u64) {
    loop {
        match leader.add(id, addrs(id)).await {
            Ok(()) => break,
            Err(MemberError::Unreachable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let is_it = |member: &Member| member.id == id && member.is_voter;
    assert!(leader.members().iter().any(is_it), "it shows once it is told");
}

impl Cluster {
    /// A cluster of nodes 1 to `count`, with a leader. On a machine that is slow enough another one is elected at any
    /// time.
    pub async fn start(count: u64) -> Cluster {
        let mut cluster = Cluster::prepare(count);
        for id in 1..=count {
            cluster.open(id).await;
        }
        cluster.leader().await;
        cluster
    }

    /// A cluster that node 1 leads until it hands over: nobody is ever elected by themselves.
    pub async fn calm(count: u64) -> Cluster {
        Cluster::calm_with(count, |options| options).await
    }

    /// The same with other options.
    pub async fn calm_with(count: u64, change: impl Fn(RaftOptions) -> RaftOptions) -> Cluster {
        let mut cluster = Cluster::prepare(count);
        cluster.timings = CALM;
        // An only voter waits for nobody, and adds the others.
        let mut first = change(cluster.options(1));
        first.peers.retain(|id, _| *id == 1);
        cluster.open_with(first).await;
        let leader = cluster.leader().await.log.clone();
        for id in 2..=count {
            let options = change(cluster.options(id));
            cluster.open_with(options).await;
            add(&leader, id).await;
        }
        cluster
    }

    /// The same before any node is open.
    pub fn prepare(count: u64) -> Cluster {
        Cluster {
            network: Network::default(),
            timings: RaftTimings::default(),
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
            timings: self.timings,
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

    /// Writes through whoever leads until it is acknowledged or found, once.
    pub async fn write(&self, command: &str) {
        self.write_but(0, command).await;
    }

    /// The same through anybody but one server, which may still believe that it leads.
    pub async fn write_but(&self, but: u64, command: &str) {
        loop {
            let leader = self.leader_but(but).await;
            let term = leader.leadership().term;
            match leader.write(command).await {
                Ok(()) => return,
                Err(ProposeError::Unknown) => {
                    if self.was_made(but, term, command).await {
                        return;
                    }
                }
                Err(ProposeError::NotLeader { .. } | ProposeError::Full) => {}
                Err(ProposeError::Store(error)) => panic!("{command}: {error}"),
            }
        }
    }

    /// What became of a write of that term that nobody answered for: who leads in a later one has all that can ever
    /// come of it.
    async fn was_made(&self, but: u64, term: u64, command: &str) -> bool {
        loop {
            let leader = self.leader_but(but).await;
            let is_later = leader.leadership().term > term;
            if let Ok(all) = leader.read().await {
                if all.iter().any(|made| made == command.as_bytes()) {
                    return true;
                }
                if is_later {
                    return false;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
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
