//! The plan tick: asks for a plan now and then, whatever else happens. The safety net, not the way things move.

use std::sync::Arc;

use super::error::InboxError;
use super::inbox::WeakInputSender;
use super::input::ReducerInput;
use super::shutdown::ShutdownToken;
use crate::clock::Clock;

/// Runs until the reducer has ended. A full inbox is no loss: a reducer with that much to do plans anyway.
pub(super) async fn run(
    input: WeakInputSender,
    clock: Arc<dyn Clock>,
    every_ms: u64,
    mut token: ShutdownToken,
) {
    loop {
        let at_ms = clock.monotonic_ms().saturating_add(every_ms);
        tokio::select! {
            biased;
            () = token.ended() => return,
            () = clock.sleep_until_monotonic(at_ms) => {}
        }
        match input.try_send(ReducerInput::PlanTick) {
            Ok(()) | Err(InboxError::Full) => {}
            Err(InboxError::Closed) => return,
        }
    }
}
