//! What a raft log is opened with.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::net::peers::PeerTransport;
use crate::plane::log::store::StoreOptions;
use crate::plane::storage::Storage;

/// Where a member is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RaftPeerAddrs {
    /// Its raft log.
    pub raft_addr: SocketAddr,
    /// Its API.
    pub api_addr: SocketAddr,
}

impl Default for RaftPeerAddrs {
    /// Nowhere. The consensus library wants a value for members without an address; there are none.
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            raft_addr: nowhere,
            api_addr: nowhere,
        }
    }
}

/// How patient the members are with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTimings {
    /// How often a leader says that it is there.
    pub heartbeat_ms: u64,
    /// The least time without a leader before a node may want to lead.
    pub election_min_ms: u64,
    /// How long nobody else is elected after a leader was heard.
    pub election_max_ms: u64,
}

impl Default for RaftTimings {
    fn default() -> Self {
        Self {
            heartbeat_ms: 100,
            election_min_ms: 300,
            election_max_ms: 600,
        }
    }
}

impl RaftTimings {
    /// How long a leader that was heard is taken to be there.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.election_max_ms)
    }

    /// How long nodes wait apart, so that one of them is first.
    pub(super) fn spread(&self) -> Duration {
        Duration::from_millis(self.election_max_ms.saturating_sub(self.election_min_ms).max(1))
    }

    pub(super) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }
}

/// What the daemon opens a raft log with.
#[derive(Clone)]
pub struct RaftOptions {
    /// This node.
    pub node_id: u64,
    /// The members that a new cluster begins with, this node among them. An existing one knows its own.
    pub peers: BTreeMap<u64, RaftPeerAddrs>,
    /// A directory of its own.
    pub dir: PathBuf,
    pub store: StoreOptions,
    /// The way to the others.
    pub transport: Arc<dyn PeerTransport>,
    pub timings: RaftTimings,
    /// Whether what is written is still somewhere. Where it is not, nothing is acknowledged and nobody is voted for.
    pub storage: Storage,
}

impl RaftOptions {
    /// With the usual store and timings.
    pub fn new(
        node_id: u64,
        peers: BTreeMap<u64, RaftPeerAddrs>,
        dir: PathBuf,
        transport: Arc<dyn PeerTransport>,
    ) -> Self {
        Self {
            node_id,
            peers,
            dir,
            store: StoreOptions::default(),
            transport,
            timings: RaftTimings::default(),
            storage: Storage::default(),
        }
    }
}

impl fmt::Debug for RaftOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftOptions")
            .field("node_id", &self.node_id)
            .field("peers", &self.peers)
            .field("dir", &self.dir)
            .field("timings", &self.timings)
            .finish_non_exhaustive()
    }
}
