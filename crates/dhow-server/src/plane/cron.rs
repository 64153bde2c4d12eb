//! Fires cron services by the wall clock, in UTC, where this server leads.
//!
//! The daemon starts it beside the runtime. Each firing carries an idempotency key made of the service and its
//! scheduled time, which the state remembers: a restart, another leader or a clock that steps back fires nothing
//! twice, and of the firings that were missed while no server ran, the last one alone is made up for. A clock that is
//! set back by more than minutes was wrong before: the schedule says so and goes on by the present one.

mod calendar;
mod table;

use std::sync::Arc;

use dhow_core::command::{Command, PlanCommand, Refused, RequestId};
use dhow_core::ids::ServiceId;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::plane::runtime::{InputSender, RuntimeView, WriteError};
use table::{Due, Table};
pub(crate) use table::{Outlook, outlook};

/// How often the schedules are looked at: they have minutes.
const TICK_MS: u64 = 1_000;

/// Runs until it is cancelled.
pub async fn run(view: RuntimeView, input: InputSender, clock: Arc<dyn Clock>, cancel: CancellationToken) {
    let mut table = Table::default();
    loop {
        let now_unix_secs = clock.wall_unix_ms().div_euclid(1_000);
        if view.leadership().is_here {
            for due in table.look(&view.state(), now_unix_secs) {
                if is_settled(due, fire(&input, due).await) {
                    table.fired(due, now_unix_secs);
                }
            }
        } else {
            // What another leader fires is in the state when this one leads again.
            table = Table::default();
        }
        let next_ms = clock.monotonic_ms().saturating_add(TICK_MS);
        tokio::select! {
            () = cancel.cancelled() => return,
            () = input.closed() => return,
            () = clock.sleep_until_monotonic(next_ms) => {}
        }
    }
}

async fn fire(input: &InputSender, due: Due) -> Result<(), WriteError> {
    let command = PlanCommand::CronFired {
        service: due.service,
        scheduled_unix_secs: due.scheduled_unix_secs,
    };
    let request = RequestId {
        request: table::request(due.service, due.scheduled_unix_secs),
        body_hash: [0; 32],
    };
    input
        .write(Command::Plan(command), Some(request))
        .await
        .map(|_| ())
}

/// Whether there is nothing to try again.
fn is_settled(due: Due, result: Result<(), WriteError>) -> bool {
    let service: ServiceId = due.service;
    match result {
        Ok(()) => true,
        Err(WriteError::Refused(Refused::NotNow(why))) => {
            tracing::info!(%service, why, "a run of a schedule is left out");
            true
        }
        Err(WriteError::Refused(why)) => {
            tracing::debug!(%service, %why, "a run of a schedule was refused");
            !why.is_stale()
        }
        Err(error) => {
            tracing::warn!(%service, %error, "a run of a schedule waits");
            false
        }
    }
}

#[cfg(test)]
mod tests;
