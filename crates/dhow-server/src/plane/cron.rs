//! Fires cron services by the wall clock of their zone, where this server leads.
//!
//! The daemon starts it beside the runtime. It alone reads the calendar: each firing is an entry of the log that names the
//! service and the moment, and the state takes each moment once. So a restart, another leader or a clock that steps back
//! starts nothing twice, and of the firings that were missed while no server ran, the last one alone is made up for, or
//! none. A clock that is set back by more than minutes was wrong before: the schedule says so and goes on by the present
//! one.

mod calendar;
mod table;

use std::sync::Arc;

use dhow_core::command::{Command, JobCommand, PlanCommand, Refused, RequestId};
use dhow_core::ids::ServiceId;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::plane::runtime::{InputSender, RuntimeView, WriteError};
use table::{Due, Table};
pub(crate) use table::{Outlook, coming, outlook};

/// How often the schedules are looked at, and how soon again where one is due.
const TICK_MS: u64 = 1_000;
const TICK_MIN_MS: i64 = 10;
/// From this feature level on the state keeps the moments of a schedule.
const JOBS_LEVEL: u32 = 5;

/// Runs until it is cancelled.
pub async fn run(view: RuntimeView, input: InputSender, clock: Arc<dyn Clock>, cancel: CancellationToken) {
    let mut table = Table::default();
    loop {
        let now_unix_secs = clock.wall_unix_ms().div_euclid(1_000);
        if view.leadership().is_here {
            let state = view.state();
            for due in table.look(&state, now_unix_secs) {
                if is_settled(due, fire(&input, due, state.feature_level).await) {
                    table.fired(due, now_unix_secs);
                }
            }
        } else {
            // What another leader fires is in the state when this one leads again.
            table = Table::default();
        }
        let next_ms = clock.monotonic_ms().saturating_add(wait_ms(&table, &*clock));
        tokio::select! {
            () = cancel.cancelled() => return,
            () = input.closed() => return,
            () = clock.sleep_until_monotonic(next_ms) => {}
        }
    }
}

/// Until the next look.
fn wait_ms(table: &Table, clock: &dyn Clock) -> u64 {
    let next = table.next_unix_secs().map(|next| next.saturating_mul(1_000));
    let until = next.map(|next| next.saturating_sub(clock.wall_unix_ms()).max(TICK_MIN_MS));
    until.map_or(TICK_MS, |until| until.unsigned_abs().min(TICK_MS))
}

async fn fire(input: &InputSender, due: Due, feature_level: u32) -> Result<(), WriteError> {
    let (command, request) = command_of(due, feature_level);
    input.write(Command::Plan(command), request).await.map(|_| ())
}

fn command_of(due: Due, feature_level: u32) -> (PlanCommand, Option<RequestId>) {
    if feature_level < JOBS_LEVEL {
        // Servers of the version before remember a moment by the request for it.
        let request = RequestId {
            request: table::request(due.service, due.scheduled_unix_secs),
            body_hash: [0; 32],
        };
        let fired = PlanCommand::CronFired {
            service: due.service,
            scheduled_unix_secs: due.scheduled_unix_secs,
        };
        return (fired, Some(request));
    }
    let due = JobCommand::Due {
        service: due.service,
        due_unix_secs: due.scheduled_unix_secs,
        follows_unix_secs: due.follows_unix_secs,
        is_missed: due.is_missed,
    };
    (PlanCommand::Job(due), None)
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
