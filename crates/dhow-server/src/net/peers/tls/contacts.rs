//! What is known of each peer: when it was last heard, whether it can be reached, how much was said.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Counted since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Questions to the peer.
    pub asked: u64,
    /// Those that it answered.
    pub answered: u64,
    /// Those without an answer.
    pub failed: u64,
    /// Connections to it that were made.
    pub connected: u64,
    /// Questions that came from it.
    pub heard: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Contact {
    last_heard: Option<Instant>,
    /// The last attempt failed, and nothing was heard since.
    is_unreachable: bool,
    counts: PeerCounts,
}

/// One entry for each member that was asked or heard, of which there are a handful.
#[derive(Debug, Default)]
pub(super) struct Contacts(Mutex<BTreeMap<u64, Contact>>);

impl Contacts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Contact>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, node: u64, change: impl FnOnce(&mut Contact)) {
        change(self.lock().entry(node).or_default());
    }

    /// A sign of life, from whichever side the connection was made.
    pub fn heard(&self, node: u64) {
        self.change(node, |contact| {
            contact.last_heard = Some(Instant::now());
            contact.is_unreachable = false;
        });
    }

    pub fn asked(&self, node: u64) {
        self.change(node, |contact| contact.counts.asked += 1);
    }

    pub fn answered(&self, node: u64) {
        self.change(node, |contact| contact.counts.answered += 1);
    }

    pub fn failed(&self, node: u64) {
        self.change(node, |contact| {
            contact.counts.failed += 1;
            contact.is_unreachable = true;
        });
    }

    pub fn connected(&self, node: u64) {
        self.change(node, |contact| contact.counts.connected += 1);
    }

    pub fn was_asked(&self, node: u64) {
        self.change(node, |contact| contact.counts.heard += 1);
    }

    pub fn last_heard(&self, node: u64) -> Option<Instant> {
        self.lock().get(&node)?.last_heard
    }

    pub fn is_unreachable(&self, node: u64) -> bool {
        self.lock()
            .get(&node)
            .is_some_and(|contact| contact.is_unreachable)
    }

    pub fn counts(&self, node: u64) -> PeerCounts {
        self.lock()
            .get(&node)
            .map(|contact| contact.counts)
            .unwrap_or_default()
    }
}
