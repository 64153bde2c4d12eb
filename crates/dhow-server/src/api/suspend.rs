//! `?suspend=SECONDS`: a change of what a source has brought, which counts in place of the source for a while.

use dhow_core::command::DeploymentCommand;
use serde::Deserialize;

use super::caller::Caller;
use super::context::Context;
use super::problem::{Answer, ApiProblem};

/// A source whose word is not to count for longer than that is not followed any more: `dhow source rm` says so.
const SUSPEND_SECS_MAX: u64 = 30 * 24 * 3_600;

/// The query of a change that a suspension may come with.
#[derive(Deserialize)]
pub(super) struct SuspendQuery {
    suspend: Option<u64>,
}

impl SuspendQuery {
    pub(super) fn new(suspend: Option<u64>) -> Self {
        Self { suspend }
    }

    /// The command, or the same with its suspension.
    pub(super) async fn around(
        &self,
        context: &Context,
        caller: &Caller,
        command: DeploymentCommand,
    ) -> Answer<DeploymentCommand> {
        let Some(secs) = self.suspend else {
            return Ok(command);
        };
        if !(1..=SUSPEND_SECS_MAX).contains(&secs) {
            return Err(ApiProblem::invalid(
                "a source is suspended for 1 s to 30 days; `dhow source rm` follows it no longer",
            ));
        }
        Ok(DeploymentCommand::Suspending {
            for_ms: secs.saturating_mul(1_000),
            until_unix_secs: context.wall_unix_secs().saturating_add_unsigned(secs),
            author: caller.author().await,
            command: Box::new(command),
        })
    }
}
