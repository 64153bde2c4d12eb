//! How much of the log is in the states of the other servers, as they tell the leader with every beat, so that whoever has
//! taken something away can wait until no server gives it any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use tokio::sync::watch;

use crate::clock::Clock;

/// A server that no leader has answered for 6 s ends its sessions within 4 s more, and so does one whose state stays
/// behind: what it has not heard of after this time does no harm.
const WAIT_MAX_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
struct ServerProgress {
    applied_index: Option<u64>,
    at_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// Since when this server has led.
    since_ms: Option<u64>,
    /// At most one entry per server.
    servers: BTreeMap<NodeId, ServerProgress>,
}

impl Known {
    /// Whether this server may still serve nodes from a state without that.
    fn is_behind(&self, server: NodeId, index: u64, now_ms: u64) -> bool {
        let since_ms = |at_ms: u64| now_ms.saturating_sub(at_ms);
        match self.servers.get(&server) {
            Some(told) => {
                let has_it = told.applied_index.is_some_and(|applied| applied >= index);
                !has_it && since_ms(told.at_ms) < WAIT_MAX_MS
            }
            // One that has not been heard since the election may hold sessions of the last leader.
            None => self.since_ms.is_none_or(|at_ms| since_ms(at_ms) < WAIT_MAX_MS),
        }
    }
}

/// What the leader has heard of the other servers' states; clones are the same. The task of the leases writes it, and
/// whoever removes a node waits for it.
#[derive(Clone, Debug, Default)]
pub struct HolderProgress {
    known: Arc<watch::Sender<Known>>,
}

impl HolderProgress {
    /// This server leads from now on, or not any more.
    pub fn begin(&self, since_ms: Option<u64>) {
        self.known.send_replace(Known {
            since_ms,
            servers: BTreeMap::new(),
        });
    }

    /// Another server has told how far its state is; none where it does not say.
    pub fn heard(&self, server: NodeId, applied_index: Option<u64>, now_ms: u64) {
        self.known.send_modify(|known| {
            let told = ServerProgress {
                applied_index,
                at_ms: now_ms,
            };
            known.servers.insert(server, told);
        });
    }

    /// Waits until so much of the log is in the states of these other servers, or they serve nobody any more.
    pub async fn until(&self, servers: &[NodeId], index: u64, clock: &dyn Clock) {
        let until_ms = clock.monotonic_ms().saturating_add(WAIT_MAX_MS);
        let mut known = self.known.subscribe();
        let all_have_it = known.wait_for(|known| {
            let now_ms = clock.monotonic_ms();
            !servers
                .iter()
                .any(|server| known.is_behind(*server, index, now_ms))
        });
        tokio::select! {
            _ = all_have_it => {}
            () = clock.sleep_until_monotonic(until_ms) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;
    use crate::clock::FakeClock;

    const OTHERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    #[tokio::test]
    async fn it_is_over_when_all_have_it() {
        let (progress, clock) = (HolderProgress::default(), FakeClock::new(0));
        progress.begin(Some(0));
        let mut waiting = pin!(progress.until(&OTHERS, 7, &clock));
        assert!(poll!(&mut waiting).is_pending(), "nobody has been heard");
        progress.heard(NodeId(2), Some(7), 0);
        progress.heard(NodeId(3), Some(6), 0);
        assert!(poll!(&mut waiting).is_pending());
        progress.heard(NodeId(3), Some(8), 0);
        assert!(poll!(&mut waiting).is_ready());
        assert!(poll!(pin!(progress.until(&[], 9, &clock))).is_ready());
        // Another leader hears it all anew.
        progress.begin(Some(0));
        assert!(poll!(pin!(progress.until(&OTHERS, 7, &clock))).is_pending());
    }

    #[tokio::test]
    async fn nobody_waits_for_servers_that_serve_nobody_any_more() {
        let (progress, clock) = (HolderProgress::default(), FakeClock::new(0));
        progress.begin(Some(0));
        progress.heard(NodeId(2), Some(1), 0);
        clock.advance(WAIT_MAX_MS - 1);
        assert!(poll!(pin!(progress.until(&OTHERS, 7, &clock))).is_pending());
        clock.advance(1);
        assert!(poll!(pin!(progress.until(&OTHERS, 7, &clock))).is_ready());
    }

    #[tokio::test]
    async fn one_that_stays_behind_or_does_not_say_is_waited_for_until_it_has_ended_its_sessions() {
        for applied in [Some(6), None] {
            let (progress, clock) = (HolderProgress::default(), FakeClock::new(0));
            progress.begin(Some(0));
            let mut waiting = pin!(progress.until(&[NodeId(2)], 7, &clock));
            for _ in 0..WAIT_MAX_MS / 500 {
                progress.heard(NodeId(2), applied, clock.monotonic_ms());
                assert!(poll!(&mut waiting).is_pending());
                clock.advance(500);
            }
            waiting.await;
        }
    }
}
