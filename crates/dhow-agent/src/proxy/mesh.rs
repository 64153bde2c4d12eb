//! The tunnels between the proxies of nodes: a replica of another node is reached through that node's proxy.
//!
//! ```text
//!  caller ──▶ this proxy ──TLS 1.3, both sides checked──▶ proxy of the replica's node ──▶ replica
//!                  └── control connection: signs of life, replicas that are ending ──┘
//! ```
//!
//! Used by the balancer, which gives it each table and asks it for the [`Peer`] behind a backend. A connection carries
//! one stream at a time, so that a stalled reader slows nobody else, and goes back into a warm pool. The far side refuses
//! before a byte; the near side takes another replica. Addresses of replicas never leave their node.

mod connection;
mod connections;
mod far;
mod frame;
mod guests;
mod identity;
mod offers;
mod own;
mod peer;
mod refusals;
mod relay;
mod silence;
mod stream;
mod targets;
mod tickets;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::usage::RelayFigures;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use frame::{DATA_MAX_BYTES, Opening, Origin, ShownTicket};
pub use guests::account;
pub use identity::{IDENTITY_MAX_BYTES, IdentityError, MeshIdentity};
pub use own::Timing;
pub use peer::{Peer, Refused};
pub use stream::MeshStream;
pub use targets::{Targets, endpoint_of};

use super::limits::Limits;
use super::{note, table};
use far::Far;
use offers::Offers;
use own::Own;
use peer::Way;
use tickets::TicketCheck;

/// This node's end of all tunnels.
pub struct Mesh {
    own: Arc<Own>,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    far: Arc<Far>,
    offers: Offers,
    tasks: TaskTracker,
}

impl Mesh {
    pub fn new(limits: Limits, tasks: TaskTracker, timing: Timing) -> Self {
        let own = Arc::new(Own::new(timing));
        let far = Arc::new(Far::new(Arc::clone(&own), limits, tasks.clone()));
        Self {
            offers: Offers::new(Arc::clone(&far)),
            far,
            peers: Mutex::default(),
            own,
            tasks,
        }
    }

    /// The node that a backend is on.
    pub fn peer(&self, node: u64) -> Arc<Peer> {
        let made = || Arc::new(Peer::new(node, Arc::clone(&self.own)));
        Arc::clone(self.peers().entry(node).or_insert_with(made))
    }

    /// Shows this certificate from now on, and believes these CAs. Streams that are open stay.
    pub fn identify(&self, identity: &MeshIdentity) -> Result<(), IdentityError> {
        self.own.show(identity)
    }

    /// Takes what a table says of other nodes, and what they can call here.
    pub fn update(&self, mesh: Option<&table::Mesh>, targets: Targets) {
        if let Err(error) = self
            .own
            .believe(mesh.and_then(|mesh| mesh.believed_cas.as_deref()))
        {
            note(&format!(
                "the CAs of other nodes are not what they should be, those from before count: {}",
                dhow_driver::driver::error_chain(&error)
            ));
        }
        let ticket = mesh.and_then(|mesh| mesh.ticket.as_deref());
        let check = TicketCheck::new(mesh.and_then(|mesh| mesh.ticket_key.as_ref()));
        self.own
            .set_tickets(mesh.map_or(0, |mesh| mesh.node), ticket, check);
        let known = ways(mesh);
        let addrs = known.iter().filter_map(|(node, way)| match way {
            Way::At(addr) => Some((*node, *addr)),
            Way::Through(_) | Way::Unknown => None,
        });
        self.own.set_addrs(addrs.collect());
        self.own.relay.set_duty(mesh.and_then(|mesh| mesh.relay));
        for (node, way) in &known {
            self.peer(*node).set_way(way.clone());
        }
        let relays = mesh.into_iter().flat_map(|mesh| &mesh.relays);
        self.offers.set(relays.map(|node| self.peer(*node)).collect());
        self.peers().retain(|node, peer| {
            let is_known = known.contains_key(node);
            if !is_known {
                peer.set_way(Way::Unknown);
            }
            // Some backend may still mean it.
            is_known || Arc::strong_count(peer) > 1
        });
        let removed: BTreeSet<u64> = mesh.into_iter().flat_map(|mesh| &mesh.removed).copied().collect();
        for (_, peer) in self.peers().iter().filter(|(node, _)| removed.contains(node)) {
            peer.cut();
        }
        self.far.set_removed(removed);
        self.far.set_targets(targets);
    }

    /// Takes connections of other nodes until it is stopped.
    pub fn serve(&self, listener: Arc<TcpListener>, stop: CancellationToken) {
        self.tasks.spawn(Arc::clone(&self.far).serve(listener, stop));
    }

    /// What this node has passed on for others.
    pub fn relayed(&self) -> RelayFigures {
        self.own.relay.figures()
    }

    /// What the log says of those who were refused here.
    #[cfg(test)]
    pub fn said(&self) -> Vec<String> {
        self.far.said()
    }

    /// What is done every few seconds: idle connections are let go.
    pub fn sweep(&self) {
        self.peers().values().for_each(|peer| peer.sweep());
        self.far.sweep();
    }

    /// No new streams of others; what is open finishes.
    pub fn end(&self) {
        self.far.end();
        self.offers.end();
        self.peers().values().for_each(|peer| peer.end());
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Peer>>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a table says that other nodes are reached.
fn ways(mesh: Option<&table::Mesh>) -> BTreeMap<u64, Way> {
    let direct = mesh.into_iter().flat_map(|mesh| &mesh.peers);
    let relayed = mesh.into_iter().flat_map(|mesh| &mesh.relayed);
    let direct = direct.map(|peer| (peer.node, Way::At(peer.addr)));
    let relayed = relayed.map(|peer| (peer.node, Way::Through(peer.relays.as_slice().into())));
    direct.chain(relayed).collect()
}
