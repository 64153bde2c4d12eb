//! What becomes of an input.

use std::sync::Arc;

use dhow_core::command::{ApplyReason, Command};
use dhow_core::ids::NodeId;
use dhow_core::mirror::{RolloutId, report_command};
use dhow_wire::log_form::LogFormError;
use dhow_wire::manifest::VerifiedSet;

use super::in_flight::Waiting;
use super::{Reducer, heartbeat};
use crate::plane::runtime::error::{RuntimeFailure, WriteError};
use crate::plane::runtime::input::{HeartbeatReply, HostReport, ReducerInput, ReportBody, WriteRequest};
use crate::plane::runtime::limits::{HEARTBEAT_STALE_MS, INVENTORY_MAX, REPORT_EVENTS_MAX};

impl Reducer {
    pub(super) fn take_input(&mut self, input: ReducerInput) -> Result<(), RuntimeFailure> {
        match input {
            ReducerInput::HostEvent {
                host,
                rollout_id,
                event,
            } => self.take_report(host, rollout_id, event),
            ReducerInput::ManifestSetUpdated(set) => self.take_manifests(set),
            ReducerInput::HeartbeatReceived {
                host,
                rollout_id,
                current_digest,
                at,
                reply,
            } => {
                let answer = self.heartbeat(host, rollout_id.as_ref(), current_digest.as_deref(), at);
                // Whoever asked may have given up.
                let _ = reply.send(answer);
                Ok(())
            }
            ReducerInput::PlanTick => {
                self.planning.schedule(self.clock.monotonic_ms());
                Ok(())
            }
            ReducerInput::Write(WriteRequest {
                command,
                request,
                reply,
            }) => self.propose(command, request, Waiting::Write(reply)),
            ReducerInput::Read { reply } => {
                let _ = reply.send(self.publisher.state());
                Ok(())
            }
        }
    }

    fn heartbeat(
        &self,
        host: NodeId,
        rollout: Option<&RolloutId>,
        digest: Option<&str>,
        at_ms: u64,
    ) -> HeartbeatReply {
        let waited_ms = self.clock.monotonic_ms().saturating_sub(at_ms);
        // A follower's mirror is behind the leader's, and an old heartbeat behind its node.
        if !self.leadership.is_here || waited_ms > HEARTBEAT_STALE_MS {
            return HeartbeatReply::default();
        }
        let is_ahead = self.in_flight.has_reports_of(host);
        heartbeat::reply(&self.state, host, rollout, digest, is_ahead)
    }

    fn take_report(
        &mut self,
        host: NodeId,
        rollout: Option<RolloutId>,
        event: HostReport,
    ) -> Result<(), RuntimeFailure> {
        let (count, limit) = match &event.body {
            ReportBody::Events { events, .. } => (events.len(), REPORT_EVENTS_MAX),
            ReportBody::Inventory { replicas, .. } => (replicas.len(), INVENTORY_MAX),
        };
        let waiting = Waiting::Report { host, ack: event.ack };
        if count > limit {
            tracing::warn!(node = %host, count, limit, "a node's report is too long");
            waiting.fail(WriteError::Unwritable(Arc::new(LogFormError::TooLarge {
                what: "report",
                size_bytes: count as u64,
                limit_bytes: limit as u64,
            })));
            return Ok(());
        }
        tracing::trace!(node = %host, rollout = rollout.map(tracing::field::display), count, "a node reports");
        let command = report_command(&self.state, host, event.incarnation, event.body);
        self.propose(Command::Agent(command), None, waiting)
    }

    fn take_manifests(&mut self, set: VerifiedSet) -> Result<(), RuntimeFailure> {
        let (version, source) = (set.version(), set.source().cloned());
        let taken = match &source {
            None => self.state.manifests,
            Some(name) => self.state.sources.get(name).and_then(|source| source.taken),
        };
        let is_newer = taken.is_none_or(|known| known.version < version.version)
            || set.why() == ApplyReason::SuspensionOver;
        // The poll sends a set until it is in force; and only a leader puts one in force.
        if !is_newer || !self.leadership.is_here {
            return Ok(());
        }
        let command = set.into_command(self.clock.wall_unix_ms().div_euclid(1_000));
        let waiting = Waiting::Manifests {
            source,
            version: version.version,
        };
        self.propose(command, None, waiting)
    }
}
