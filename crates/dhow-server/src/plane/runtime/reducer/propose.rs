//! The way into the log.

use bytes::Bytes;
use dhow_core::command::{Command, Entry, PlanCommand, Refused, RequestId};
use dhow_core::ids::NodeId;
use dhow_wire::log_form::{LogFormError, encode_entry};
use std::sync::Arc;

use super::in_flight::Waiting;
use super::{OWN_PROPOSALS_MAX, Reducer};
use crate::plane::log::ProposeError;
use crate::plane::runtime::error::{RuntimeFailure, WriteError};
use crate::plane::runtime::event::Event;
use crate::plane::runtime::limits::{PLAN_CHUNK_BYTES, PLAN_CHUNK_COMMANDS};

/// How long after the log did not take the beginning of a term it is proposed again: a disk that is full is looked at
/// by people, and a queue that is full is soon empty.
const BEGIN_AGAIN_MS: u64 = 1_000;

impl Reducer {
    /// Proposes one command; whoever waits hears at once where the log does not take it.
    pub(super) fn propose(
        &mut self,
        command: Command,
        request: Option<RequestId>,
        waiting: Waiting,
    ) -> Result<(), RuntimeFailure> {
        if !self.leadership.is_here {
            let leader = self.leadership.leader.map(NodeId);
            self.fail(waiting, WriteError::NotLeader { leader });
            return Ok(());
        }
        if command.needed_level() > self.state.feature_level {
            // A server of the older version would apply it without what it does not know.
            let refused = Refused::NotNow(
                "not all servers of this cluster know configs and secrets as files: upgrade them first",
            );
            self.fail(waiting, WriteError::Refused(refused));
            return Ok(());
        }
        match self.encode(command, request) {
            Ok(bytes) => self.hand_in(vec![bytes], waiting),
            Err(cause) => {
                self.fail(waiting, WriteError::Unwritable(Arc::new(cause)));
                Ok(())
            }
        }
    }

    /// Proposes the commands of a plan in as few writes as they fit into. What finds no room is planned again.
    pub(super) fn propose_plan(&mut self, commands: Vec<PlanCommand>) -> Result<(), RuntimeFailure> {
        let mut chunk = Vec::new();
        let mut chunk_bytes = 0;
        let mut chunks = Vec::new();
        for command in commands {
            let bytes = match self.encode(Command::Plan(command), None) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "a command of the plan cannot be written and is left out");
                    continue;
                }
            };
            let is_full = chunk.len() >= PLAN_CHUNK_COMMANDS || chunk_bytes + bytes.len() > PLAN_CHUNK_BYTES;
            if is_full && !chunk.is_empty() {
                chunks.push(std::mem::take(&mut chunk));
                chunk_bytes = 0;
            }
            chunk_bytes += bytes.len();
            chunk.push(bytes);
        }
        if !chunk.is_empty() {
            chunks.push(chunk);
        }
        for chunk in chunks.into_iter().take(OWN_PROPOSALS_MAX - 1) {
            self.planning.part_proposed();
            self.hand_in(chunk, Waiting::Plan)?;
        }
        Ok(())
    }

    fn encode(&self, command: Command, request: Option<RequestId>) -> Result<Bytes, LogFormError> {
        let entry = Entry {
            time: self.now(),
            term: self.term(),
            request,
            command,
        };
        encode_entry(&entry, self.state.feature_level).map(Bytes::from)
    }

    fn hand_in(&mut self, entries: Vec<Bytes>, waiting: Waiting) -> Result<(), RuntimeFailure> {
        if self.storage.is_gone() {
            self.fail(waiting, WriteError::StorageGone);
            return Ok(());
        }
        let id = self.in_flight.next_id();
        match self.log.propose(id, entries) {
            Ok(()) => {
                self.in_flight.insert(id, waiting);
                Ok(())
            }
            Err(cause) => {
                let (error, failure) = told(cause, false);
                self.fail(waiting, error);
                failure.map_or(Ok(()), Err)
            }
        }
    }

    /// Tells whoever waits that a proposal did not make it.
    pub(super) fn fail(&mut self, waiting: Waiting, error: WriteError) {
        match &waiting {
            Waiting::Plan => self.planning.part_ended(false),
            Waiting::Manifests { source, version } => self.refuse_manifests(source.clone(), *version, &error),
            Waiting::TermBegan => {
                let at_ms = self.clock.monotonic_ms().saturating_add(BEGIN_AGAIN_MS);
                self.begin_again = Some(self.clock.sleep_until_monotonic(at_ms));
            }
            Waiting::Write(_) | Waiting::Report { .. } => {}
        }
        waiting.fail(error);
    }

    /// The poll sends a set again and again until it is in force: the reducer logs each reason once.
    pub(super) fn refuse_manifests(&mut self, source: Option<Arc<str>>, version: u64, error: &WriteError) {
        let whose = source.as_deref().unwrap_or("the manifests");
        let reason = format!("version {version} of {whose} was not taken: {error}");
        if self.manifests_refused.get(&source) != Some(&reason) {
            tracing::warn!(version, %error, "the set of manifests was not taken");
            self.event_log.note(Event::alarm(reason.clone()));
            self.manifests_refused.insert(source, reason);
        }
    }
}

/// What to tell the caller, and whether the log can go on. `was_taken` says that the log had the proposal: where the
/// disk then failed, nobody knows what is on it.
pub(in crate::plane::runtime) fn told(
    cause: ProposeError,
    was_taken: bool,
) -> (WriteError, Option<RuntimeFailure>) {
    let store = match cause {
        ProposeError::Full => return (WriteError::Busy, None),
        ProposeError::NotLeader { leader } => {
            let leader = leader.map(NodeId);
            return (WriteError::NotLeader { leader }, None);
        }
        ProposeError::Unknown => return (WriteError::Unknown, None),
        ProposeError::Store(store) => store,
    };
    if store.is_harmless() {
        return (WriteError::NotTaken(store), None);
    }
    let error = match was_taken {
        true => WriteError::Unknown,
        false => WriteError::NotTaken(Arc::clone(&store)),
    };
    (error, Some(RuntimeFailure::Log(store)))
}
