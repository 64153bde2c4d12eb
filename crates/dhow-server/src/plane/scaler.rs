//! The scaler of adaptive services, where this server leads: looks at the load that nodes tell, and proposes other counts.
//!
//! The daemon starts it beside the runtime. What it decides by is pure and stands in `dhow_core::scaler`; each change is an
//! entry of the log with its figures, which every server checks again. It remembers only since when a service could do
//! with fewer replicas: another leader waits for a whole cooldown of its own before it takes any away.

use std::sync::Arc;

use dhow_core::command::Command;
use dhow_core::scaler::{SINCE_LEVEL, ScalerWatch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::plane::runtime::{ClusterTimer, InputSender, RuntimeView, WriteError};

/// How often the loads are looked at. Requests that wait for a first replica have them looked at at once.
const LOOK_MS: u64 = 1_000;
/// The pause after a look: nodes tell of requests that wait as often as they like.
const REST_MS: u64 = 50;

/// Runs until it is cancelled.
pub async fn run(view: RuntimeView, input: InputSender, clock: Arc<dyn Clock>, cancel: CancellationToken) {
    let mut leading: Option<Leading> = None;
    loop {
        match view.leadership().is_here {
            true => {
                let leading = leading.get_or_insert_with(|| Leading::begin(&view, &*clock));
                leading.look(&view, &input, &*clock).await;
            }
            // What the next leader decides is in the state when this one leads again.
            false => leading = None,
        }
        let rest_until_ms = clock.monotonic_ms().saturating_add(REST_MS);
        let next_ms = clock.monotonic_ms().saturating_add(LOOK_MS);
        tokio::select! {
            () = cancel.cancelled() => return,
            () = input.closed() => return,
            () = clock.sleep_until_monotonic(next_ms) => {}
            () = view.observed().called_for() => clock.sleep_until_monotonic(rest_until_ms).await,
        }
    }
}

/// What the scaler remembers while this server leads.
struct Leading {
    watch: ScalerWatch,
    timer: ClusterTimer,
}

impl Leading {
    fn begin(view: &RuntimeView, clock: &dyn Clock) -> Self {
        Self {
            watch: ScalerWatch::default(),
            timer: ClusterTimer::new(view.state().time, clock.monotonic_ms()),
        }
    }

    async fn look(&mut self, view: &RuntimeView, input: &InputSender, clock: &dyn Clock) {
        let (state, now_ms) = (view.state(), clock.monotonic_ms());
        self.timer.committed(state.time, now_ms);
        if state.feature_level < SINCE_LEVEL {
            return;
        }
        let loads = view.observed().loads(&state, now_ms);
        for command in self.watch.look(&state, &loads, self.timer.now(now_ms)) {
            match input.write(Command::Plan(command), None).await {
                Ok(_) => {}
                // The next look decides anew.
                Err(WriteError::Refused(why)) => tracing::debug!(%why, "another count was refused"),
                Err(error) => tracing::warn!(%error, "another count of a service waits"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
