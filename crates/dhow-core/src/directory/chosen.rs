//! Which replicas of a large service one node calls.

use std::sync::Arc;

use imbl::OrdMap;

use super::{Listing, READY_MAX, ReadyReplica};
use crate::ids::NodeId;

/// The replicas of a large service that one node calls: those that it has itself, those of its zone, then others such that
/// each node has its own choice, which moves little when replicas come and go.
pub(super) fn chosen(listing: &Listing, node: NodeId, zones: &OrdMap<NodeId, Arc<str>>) -> Listing {
    let own_zone = zones.get(&node);
    let rank = |ready: &ReadyReplica| {
        let is_here = ready.node == node;
        let is_near = own_zone.is_some() && zones.get(&ready.node) == own_zone;
        let mut hash = mixed(node.0);
        for part in [
            ready.node.0,
            u64::from(ready.index),
            u64::from(ready.generation.0),
        ] {
            hash = mixed(hash ^ part);
        }
        for byte in ready.role.as_str().bytes() {
            hash = mixed(hash ^ u64::from(byte));
        }
        // Every node knows the canary: its share of all requests is the sum of theirs.
        let is_canary = listing.canary.as_ref();
        let is_canary = is_canary.is_some_and(|canary| canary.generations.contains(&ready.generation));
        (!is_canary, !is_here, !is_near, hash)
    };
    let mut ranked: Vec<_> = listing.ready.iter().map(|ready| (rank(ready), ready)).collect();
    if ranked.len() > READY_MAX {
        // Their order does not matter, and a service may have 100,000.
        ranked.select_nth_unstable(READY_MAX - 1);
    }
    Listing {
        canary: listing.canary.clone(),
        cold_start: listing.cold_start,
        endpoints: Arc::clone(&listing.endpoints),
        ready: ranked
            .into_iter()
            .take(READY_MAX)
            .map(|(_, ready)| ready.clone())
            .collect(),
    }
}

/// Spreads a number over all of its bits; the same on every machine.
fn mixed(number: u64) -> u64 {
    let mut n = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
