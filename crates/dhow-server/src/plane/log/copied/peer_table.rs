//! What is known of the other peers: when each was last heard, and what it said of itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::message::PeerBeat;

/// How a peer is, for people and for those who ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHealth {
    pub node: u64,
    pub is_reachable: bool,
    pub beat: Option<PeerBeat>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// Whether it has answered or failed once.
    was_asked: bool,
    /// When it answered last; none where it never has.
    heard_ms: Option<u64>,
    /// When it was first asked without an answer since then.
    silent_ms: Option<u64>,
    leaving: bool,
    beat: Option<PeerBeat>,
    /// It was there and did not take a copy; it is not waited for until it answers again.
    missed_copies: bool,
}

/// The other peers as this one hears them.
#[derive(Debug)]
pub(super) struct PeerTable {
    own: u64,
    /// Where silence is counted from for a peer that was never heard.
    since_ms: u64,
    threshold_ms: u64,
    peers: Mutex<BTreeMap<u64, Peer>>,
}

impl PeerTable {
    pub fn new(own: u64, others: &[u64], since_ms: u64, threshold_ms: u64) -> Self {
        let others = others.iter().filter(|peer| **peer != own);
        Self {
            own,
            since_ms,
            threshold_ms,
            peers: Mutex::new(others.map(|peer| (*peer, Peer::default())).collect()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Peer>> {
        // Each change is whole before the lock is let go of.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn others(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }

    /// A peer answered.
    pub fn heard(&self, node: u64, now_ms: u64, beat: PeerBeat) {
        if let Some(peer) = self.lock().get_mut(&node) {
            *peer = Peer {
                was_asked: true,
                heard_ms: Some(now_ms),
                silent_ms: None,
                leaving: beat.leaving,
                beat: Some(beat),
                missed_copies: false,
            };
        }
    }

    /// A peer has taken copies up to here.
    pub fn has(&self, node: u64, epoch: u64, index: u64) {
        if let Some(beat) = self.lock().get_mut(&node).and_then(|peer| peer.beat.as_mut()) {
            (beat.epoch, beat.index) = (epoch, index);
        }
    }

    /// A peer has promised to an epoch.
    pub fn promised(&self, node: u64, epoch: u64) {
        if let Some(peer) = self.lock().get_mut(&node) {
            peer.beat.get_or_insert_default().promised = epoch;
        }
    }

    /// A peer did not answer.
    pub fn silent(&self, node: u64, asked_ms: u64) {
        if let Some(peer) = self.lock().get_mut(&node) {
            peer.was_asked = true;
            peer.silent_ms.get_or_insert(asked_ms);
        }
    }

    pub fn leaves(&self, node: u64) {
        if let Some(peer) = self.lock().get_mut(&node) {
            peer.leaving = true;
        }
    }

    pub fn missed_copies(&self, node: u64) {
        if let Some(peer) = self.lock().get_mut(&node) {
            peer.missed_copies = true;
        }
    }

    /// Whether every peer has been asked once.
    pub fn were_all_asked(&self) -> bool {
        self.lock().values().all(|peer| peer.was_asked)
    }

    /// The lowest id that may lead, this peer included where it is not about to end. A peer that was never heard
    /// counts until it has been silent for the threshold.
    pub fn lowest(&self, now_ms: u64, own_leaves: bool) -> Option<u64> {
        let peers = self.lock();
        let fit = peers
            .iter()
            .filter(|(_, peer)| !peer.leaving && self.is_there(peer, now_ms));
        let own = (!own_leaves).then_some(self.own);
        fit.map(|(node, _)| *node).chain(own).min()
    }

    /// The lowest id that was heard within the threshold and is not about to end; this peer is not counted.
    pub fn lowest_heard(&self, now_ms: u64) -> Option<u64> {
        let peers = self.lock();
        let mut fit = peers
            .iter()
            .filter(|(_, peer)| peer.heard_ms.is_some() && !peer.leaving && self.is_there(peer, now_ms));
        fit.next().map(|(node, _)| *node)
    }

    /// Peers that copies are sent to and waited for.
    pub fn copied_to(&self, now_ms: u64) -> Vec<u64> {
        let peers = self.lock();
        let fit = peers.iter().filter(|(_, peer)| {
            peer.heard_ms.is_some() && !peer.missed_copies && !peer.leaving && self.is_there(peer, now_ms)
        });
        fit.map(|(node, _)| *node).collect()
    }

    /// Peers that are there and lack copies.
    pub fn behind(&self) -> Vec<u64> {
        let peers = self.lock();
        let behind = peers.iter().filter(|(_, peer)| peer.missed_copies);
        behind.map(|(node, _)| *node).collect()
    }

    /// The highest epoch that anybody has spoken of, as far as a cluster can have reached it.
    pub fn highest_epoch(&self, limit: u64) -> u64 {
        let peers = self.lock();
        let beats = peers.values().filter_map(|peer| peer.beat);
        let epochs = beats.map(|beat| beat.epoch.max(beat.promised));
        epochs.filter(|epoch| *epoch <= limit).max().unwrap_or(0)
    }

    /// When a peer that does not answer was first asked in vain.
    pub fn silent_since(&self, node: u64) -> Option<u64> {
        self.lock().get(&node)?.silent_ms
    }

    pub fn list(&self, now_ms: u64) -> Vec<PeerHealth> {
        let peers = self.lock();
        let others = peers.iter().map(|(node, peer)| PeerHealth {
            node: *node,
            is_reachable: peer.heard_ms.is_some() && peer.silent_ms.is_none() && self.is_there(peer, now_ms),
            beat: peer.beat,
        });
        others.collect()
    }

    fn is_there(&self, peer: &Peer, now_ms: u64) -> bool {
        let last_ms = peer.heard_ms.unwrap_or(self.since_ms);
        now_ms.saturating_sub(last_ms) < self.threshold_ms
    }
}
