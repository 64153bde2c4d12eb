//! The newest events in memory, for those who follow along. A follower that is too slow, or begins too early, is
//! told to read the event log's files first; nobody ever waits for a follower.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::event::{EventId, EventRecord};
use super::limits::EVENT_HUB_MAX;

/// The ring of the newest events, which the event log writer fills and the API's streams follow; clones are the same
/// hub.
#[derive(Clone, Debug)]
pub struct EventHub {
    ring: Arc<Mutex<Ring>>,
    last: watch::Sender<EventId>,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Arc<EventRecord>>,
    /// The last record that has left the ring, or was never in it.
    left: EventId,
}

/// The memory no longer holds everything after the place that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events up to {up_to} are no longer in memory; read the event log")]
pub struct TooOld {
    pub up_to: EventId,
}

impl EventHub {
    /// A hub that begins behind this place.
    pub(super) fn new(after: EventId) -> Self {
        let ring = Ring {
            records: VecDeque::new(),
            left: after,
        };
        Self {
            ring: Arc::new(Mutex::new(ring)),
            last: watch::Sender::new(after),
        }
    }

    pub(super) fn publish(&self, records: impl IntoIterator<Item = Arc<EventRecord>>) {
        let mut ring = self.ring();
        let mut last = None;
        for record in records {
            last = Some(record.id());
            ring.records.push_back(record);
            if ring.records.len() > EVENT_HUB_MAX
                && let Some(oldest) = ring.records.pop_front()
            {
                ring.left = oldest.id();
            }
        }
        drop(ring);
        if let Some(last) = last {
            self.last.send_replace(last);
        }
    }

    /// The events after a place, at most `max` of them.
    pub fn since(&self, after: EventId, max: usize) -> Result<Vec<Arc<EventRecord>>, TooOld> {
        let ring = self.ring();
        if after < ring.left {
            return Err(TooOld { up_to: ring.left });
        }
        let first = ring.records.partition_point(|record| record.id() <= after);
        Ok(ring.records.iter().skip(first).take(max).cloned().collect())
    }

    /// Tells when there are newer events: wait until the place in it is above the own one.
    pub fn newest(&self) -> watch::Receiver<EventId> {
        self.last.subscribe()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Records are pushed whole, so a holder that panicked left a ring that can be read.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::runtime::event::{Event, EventKind};
    use dhow_core::ids::Revision;
    use dhow_core::time::ClusterTime;

    fn record(revision: u64) -> Arc<EventRecord> {
        Arc::new(EventRecord {
            revision: Revision(revision),
            part: 0,
            time_ms: ClusterTime(0),
            wall_unix_ms: None,
            event: Event::new(EventKind::Alarm),
        })
    }

    #[test]
    fn holds_the_newest_and_says_when_it_does_not_reach_back() {
        let hub = EventHub::new(EventId::after(Revision(10)));
        let max = EVENT_HUB_MAX as u64;
        hub.publish((11..=10 + max).map(record));
        let all = hub.since(EventId::after(Revision(10)), usize::MAX).unwrap();
        assert_eq!(all.len(), EVENT_HUB_MAX);
        let before = hub.since(EventId::after(Revision(9)), 1).unwrap_err();
        assert_eq!(before.up_to, EventId::after(Revision(10)));
        hub.publish([record(11 + max)]);
        assert!(hub.since(EventId::after(Revision(10)), 1).is_err());
        let rest = hub.since(EventId::after(Revision(9 + max)), 5).unwrap();
        let revisions: Vec<u64> = rest.iter().map(|record| record.revision.0).collect();
        assert_eq!(revisions, [10 + max, 11 + max]);
        assert_eq!(hub.newest().borrow().revision, Revision(11 + max));
    }
}
