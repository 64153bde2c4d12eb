//! What a losing half had written, on its way into the leader's log as conflicted revisions.

use dhow_core::branches::Lost;
use dhow_core::command::{Command, DeploymentCommand};
use tokio_util::sync::CancellationToken;

use super::network::StaticNetwork;
use crate::plane::log::copied::CopiedLog;
use crate::plane::runtime::{Event, EventLogSender, InputSender, RuntimeView, WriteError};

/// The pause before it is tried again.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Writes them into the log, where this peer leads. A revision that is there already is not written twice.
pub(crate) async fn take(
    input: &InputSender,
    event_log: &EventLogSender,
    lost: &Lost,
) -> Result<(), WriteError> {
    for revision in &lost.revisions {
        let record = DeploymentCommand::RecordConflicted {
            spec: revision.spec.clone(),
            author: revision.author.clone(),
            wall_unix_secs: revision.wall_unix_secs,
        };
        match input.write(Command::Deployment(record), None).await {
            Ok(_) => {}
            // It was let in once on the other half; should the rules have changed since, people are told.
            Err(WriteError::Refused(refused)) => event_log.note(Event::alarm(format!(
                "a conflicted revision of {} could not be kept: {refused}",
                revision.spec.deployment
            ))),
            Err(error) => return Err(error),
        }
    }
    for other in &lost.others {
        event_log.note(Event::alarm(format!(
            "the cluster was divided, and the other half is not in force where {other}"
        )));
    }
    Ok(())
}

/// Tells the leader what was lost here, until it has it; until `end`.
pub async fn tell_conflicts(
    log: CopiedLog,
    network: StaticNetwork,
    view: RuntimeView,
    input: InputSender,
    event_log: EventLogSender,
    end: CancellationToken,
) {
    let mut changes = log.kept_lost().changes();
    loop {
        changes.borrow_and_update();
        let lost = log.kept_lost().all();
        let told = match lost.is_empty() {
            true => true,
            false => tell(&log, &network, &view, &input, &event_log, lost).await,
        };
        tokio::select! {
            () = end.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(PAUSE), if !told => {}
        }
    }
}

async fn tell(
    log: &CopiedLog,
    network: &StaticNetwork,
    view: &RuntimeView,
    input: &InputSender,
    event_log: &EventLogSender,
    lost: Lost,
) -> bool {
    let leadership = view.leadership();
    let told = match leadership.leader {
        None => return false,
        Some(_) if leadership.is_here => {
            let taken = take(input, event_log, &lost).await;
            taken.map_err(|error| error.to_string())
        }
        Some(leader) => network.conflicts(leader, &lost).await.map_err(|error| error.0),
    };
    if let Err(error) = told {
        tracing::debug!(error, "conflicted revisions could not be told yet");
        return false;
    }
    let log = log.clone();
    let forgotten = tokio::task::spawn_blocking(move || log.kept_lost().told(&lost.revisions, &lost.others));
    matches!(forgotten.await, Ok(Ok(())))
}
