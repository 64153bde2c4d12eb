//! Those who have proved who they are, each with so many connections: one that makes more loses its oldest, so that nobody
//! takes the place of others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// The connections of callers that have proved who they are, by name.
#[derive(Debug)]
pub(super) struct Seats {
    per_known: usize,
    taken: BTreeMap<Arc<str>, VecDeque<(u64, CancellationToken)>>,
    count: usize,
    next: u64,
}

impl Seats {
    pub fn new(per_known: usize) -> Self {
        Self {
            per_known,
            taken: BTreeMap::new(),
            count: 0,
            next: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// A seat for a connection, which `gone` ends. Gives its number.
    pub fn take(&mut self, name: &Arc<str>, gone: CancellationToken) -> u64 {
        self.next += 1;
        let own = self.taken.entry(Arc::clone(name)).or_default();
        own.push_back((self.next, gone));
        self.count += 1;
        if own.len() > self.per_known
            && let Some((_, oldest)) = own.pop_front()
        {
            self.count -= 1;
            oldest.cancel();
        }
        self.next
    }

    pub fn leave(&mut self, name: &Arc<str>, number: u64) {
        let Some(own) = self.taken.get_mut(name) else {
            return;
        };
        let before = own.len();
        own.retain(|(seat, _)| *seat != number);
        self.count -= before - own.len();
        if own.is_empty() {
            self.taken.remove(name);
        }
    }
}
