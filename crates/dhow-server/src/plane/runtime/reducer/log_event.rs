//! What comes back from the log: entries to apply, proposals that did not make it, leadership.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command, Outcome};
use dhow_core::directory::Touched;
use dhow_core::ids::NodeId;
use dhow_wire::log_form::decode_entry;

use super::in_flight::{Stepped, Waiting};
use super::propose::told;
use super::{Channels, Reducer};
use crate::plane::log::store::LogPosition;
use crate::plane::log::{CommittedPart, Leadership, LogEvent};
use crate::plane::runtime::applier::Effects;
use crate::plane::runtime::error::{RuntimeFailure, WriteError};
use crate::plane::runtime::input::{Applied, ReportAck};
use crate::plane::runtime::limits::APPLY_BATCH_MAX;

/// Entries that were applied together. Their callers get no answer before the state that has them is published.
#[derive(Default)]
struct Batch {
    answers: Vec<(Waiting, Vec<Stepped>)>,
    applied: usize,
}

impl Reducer {
    /// Takes an event and what else the log has by now, then publishes the state and answers.
    pub(super) fn take_log_events(
        &mut self,
        first: LogEvent,
        channels: &mut Channels,
    ) -> Result<(), RuntimeFailure> {
        let mut batch = Batch::default();
        let mut outcome = self.take_log_event(first, &mut batch);
        let mut count = 1;
        while outcome.is_ok() && count < APPLY_BATCH_MAX && !self.install.is_running() {
            let Ok(event) = channels.log_events.try_recv() else {
                break;
            };
            outcome = self.take_log_event(event, &mut batch);
            count += 1;
        }
        self.finish(batch);
        outcome
    }

    fn take_log_event(&mut self, event: LogEvent, batch: &mut Batch) -> Result<(), RuntimeFailure> {
        match event {
            LogEvent::Committed { at, parts } => self.take_committed(at, parts, batch),
            LogEvent::Failed(cause) => Err(RuntimeFailure::Log(cause)),
            LogEvent::Refused { proposal, cause } => {
                let (error, failure) = told(cause, true);
                if let Some(waiting) = self.in_flight.remove(proposal) {
                    self.fail(waiting, error);
                }
                failure.map_or(Ok(()), Err)
            }
            LogEvent::Leadership(leadership) => self.take_leadership(leadership),
            LogEvent::SnapshotInstalled { at } => {
                if at.index > self.applied.index {
                    let (before, wall) = (self.state.clone(), self.clock.wall_unix_ms());
                    self.install.start(Arc::clone(&self.log), before, wall);
                }
                Ok(())
            }
        }
    }

    /// The position moves once all of it is applied, so that no snapshot is ever made of a part.
    fn take_committed(
        &mut self,
        at: LogPosition,
        parts: Vec<CommittedPart>,
        batch: &mut Batch,
    ) -> Result<(), RuntimeFailure> {
        // What a replay has applied already may be told again by the log.
        let known = self.applied.index;
        for part in parts {
            let mut steps = Vec::with_capacity(part.entries.len());
            for entry in part.entries.iter().filter(|entry| entry.index > known) {
                steps.push(self.step(entry.index, &entry.payload, batch)?);
            }
            if let Some(waiting) = part.proposal.and_then(|proposal| self.in_flight.remove(proposal)) {
                batch.answers.push((waiting, steps));
            }
        }
        if at.index > known {
            self.applied = at;
        }
        Ok(())
    }

    /// Applies one command of the log.
    fn step(&mut self, index: u64, payload: &[u8], batch: &mut Batch) -> Result<Stepped, RuntimeFailure> {
        let entry = decode_entry(payload).map_err(|cause| RuntimeFailure::Entry { index, cause })?;
        let wall = Some(self.clock.wall_unix_ms());
        let result = self
            .recorder
            .apply(&mut self.state, &entry, wall, &mut self.touched);
        // The state's own time: the beginning of a term moves it beyond its entry's, and times in the state must not
        // lie ahead of the planner's.
        self.timer.committed(self.state.time, self.clock.monotonic_ms());
        self.snapshots.applied(payload.len());
        batch.applied += 1;
        Ok(Stepped {
            revision: self.state.revision,
            result,
        })
    }

    fn take_leadership(&mut self, leadership: Leadership) -> Result<(), RuntimeFailure> {
        self.leadership = leadership;
        self.publisher.lead(leadership, self.clock.monotonic_ms());
        self.planning.stop();
        self.begin_term()
    }

    /// Proposes the beginning of the term that this server leads, without which it does not plan. A log that does
    /// not take it, because the disk is full or it is busy, is asked again until it does.
    pub(super) fn begin_term(&mut self) -> Result<(), RuntimeFailure> {
        self.begin_again = None;
        let Some(leader) = self.leadership.leader.filter(|_| self.leadership.is_here) else {
            return Ok(());
        };
        let leader = NodeId(leader);
        let began = Command::Cluster(ClusterCommand::TermBegan {
            leader,
            wall_unix_ms: Some(self.clock.wall_unix_ms()),
        });
        self.propose(began, None, Waiting::TermBegan)
    }

    /// The order matters: readers find what was applied before its caller is told, and nodes are woken after
    /// the state has their news.
    fn finish(&mut self, batch: Batch) {
        if batch.applied > 0 {
            let records = std::mem::take(&mut self.recorder.records);
            let woken = std::mem::take(&mut self.recorder.woken);
            self.event_log.applied(&records);
            let touched = std::mem::take(&mut self.touched);
            self.publish(woken, touched);
        }
        // Entries without a command move the position alone.
        self.publisher.reached(self.applied.index);
        for (waiting, steps) in batch.answers {
            self.answer(waiting, steps);
        }
        if self.snapshots.is_due() && !self.is_draining {
            let (log, events) = (Arc::clone(&self.log), self.event_log.clone());
            self.snapshots
                .start(log, self.state.clone(), self.applied, events);
        }
    }

    /// Shows the state to readers, and has those woken whose news it holds.
    pub(super) fn publish(&mut self, woken: BTreeSet<NodeId>, touched: Touched) {
        self.publisher.publish(&self.state);
        self.publisher.reached(self.applied.index);
        let revision = self.state.revision;
        let wake = woken.into_iter().map(|node| (node, revision)).collect();
        self.outbox.put(Effects { wake, touched });
        self.planning.state_changed();
    }

    fn answer(&mut self, waiting: Waiting, steps: Vec<Stepped>) {
        let last = steps.last().cloned();
        match waiting {
            // Whoever waited may have gone; the change is made all the same.
            Waiting::Write(reply) => drop(reply.send(written(last))),
            Waiting::Report { ack, .. } => drop(ack.send(acknowledged(last))),
            Waiting::Plan => {
                let has_effect = steps.iter().any(|step| step.result.is_ok());
                for refused in steps.iter().filter_map(|step| step.result.as_ref().err()) {
                    tracing::debug!(%refused, "a command of the plan was refused");
                }
                self.planning.part_ended(has_effect);
            }
            Waiting::Manifests { source, version } => match written(last) {
                Ok(_) => {
                    self.manifests_refused.remove(&source);
                    let source = source.as_deref().unwrap_or_default();
                    tracing::info!(source, version, "a set of manifests is in force");
                }
                Err(error) => self.refuse_manifests(source, version, &error),
            },
            Waiting::TermBegan => {
                if let Err(error) = written(last) {
                    tracing::error!(%error, "the beginning of the term was refused; this server does not plan");
                }
            }
        }
    }
}

/// What a write came to. A proposal that came back without its entry is a fault of the log.
fn written(step: Option<Stepped>) -> Result<Applied, WriteError> {
    let Stepped { revision, result } = step.ok_or(WriteError::Unknown)?;
    match result {
        Ok(outcome) => Ok(Applied { revision, outcome }),
        Err(refused) => Err(WriteError::Refused(refused)),
    }
}

fn acknowledged(step: Option<Stepped>) -> Result<ReportAck, WriteError> {
    match written(step)?.outcome {
        Outcome::Reported {
            durable_seq,
            diverged,
        } => Ok(ReportAck {
            durable_seq,
            inventory_wanted: !diverged.is_empty(),
        }),
        Outcome::Done
        | Outcome::Deployed { .. }
        | Outcome::Registered { .. }
        | Outcome::RunBegan { .. }
        | Outcome::Placed { .. } => Err(WriteError::Unknown),
    }
}
