//! The writer of the past: a task that brings it to where the state is, now and then, on a thread that may block. It reads
//! the log of commands beside the reducer, which does not know of it.

use std::sync::{Arc, Weak};

use dhow_core::state::State;
use tokio::sync::watch;

use super::limits::{PAST_PAUSE_MS, PAST_SYNC_MS, PAST_TICK_MS};
use super::shutdown::ShutdownToken;
use crate::clock::Clock;
use crate::plane::log::Log;
use crate::plane::past::Past;

/// What the task works with.
pub(super) struct PastWriter {
    pub past: Past,
    pub states: watch::Receiver<Arc<State>>,
    /// Does not keep the log open.
    pub log: Weak<dyn Log>,
    pub clock: Arc<dyn Clock>,
}

impl PastWriter {
    /// Runs until the reducer has ended; then it writes the rest.
    pub async fn run(mut self, mut token: ShutdownToken) {
        let mut synced_ms = self.clock.monotonic_ms();
        loop {
            let is_sync_due = self.clock.monotonic_ms().saturating_sub(synced_ms) >= PAST_SYNC_MS;
            if is_sync_due {
                synced_ms = self.clock.monotonic_ms();
            }
            self.write(is_sync_due).await;
            // Entries of a moment go together, so that they compress well and cost one write.
            let pause_ms = self.clock.monotonic_ms().saturating_add(PAST_PAUSE_MS);
            tokio::select! {
                biased;
                () = token.ended() => break,
                () = self.clock.sleep_until_monotonic(pause_ms) => {}
            }
            // What failed is tried again although nothing happens, and old chapters are forgotten.
            let tick_ms = self.clock.monotonic_ms().saturating_add(PAST_TICK_MS);
            tokio::select! {
                biased;
                () = token.ended() => break,
                changed = self.states.changed() => if changed.is_err() { break },
                () = self.clock.sleep_until_monotonic(tick_ms) => {}
            }
        }
        self.write(true).await;
    }

    async fn write(&mut self, sync: bool) {
        let state = self.states.borrow_and_update().clone();
        let (past, log, now_unix_ms) = (self.past.clone(), self.log.clone(), self.clock.wall_unix_ms());
        let work = move || {
            if let Some(log) = log.upgrade() {
                past.catch_up(log.as_ref(), &state, now_unix_ms);
            }
            if sync {
                past.sync();
            }
        };
        // Ended in the middle, it goes on from there the next time.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}
