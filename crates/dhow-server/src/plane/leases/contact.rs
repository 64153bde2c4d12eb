//! What the servers' own channel knows of its peers.

use dhow_core::ids::NodeId;

/// Asked by the leader twice a second for each server and peer. It must not block.
pub trait PeerContact: Send + Sync + 'static {
    /// Where a peer cannot be reached: the monotonic time of its last sign of life, in milliseconds of the server's
    /// clock. None where it answers, or where nothing is known.
    fn silent_since(&self, node: NodeId) -> Option<u64>;
}
