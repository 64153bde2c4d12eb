//! What nodes report. A lease is renewed before this: a full inbox never costs one.

use std::sync::Arc;

use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::mirror::{self, OpenRollout, ReportAnswer, RolloutId, known_answer};
use dhow_core::replica::ReplicaEvent;
use dhow_core::scaler::Bounds;
use dhow_core::spec::ServiceSpec;
use dhow_core::state::{NodeRole, State};
use dhow_wire::grpc::proto::status_report::Body;
use dhow_wire::grpc::proto::{self, StatusAck, StatusReport};
use dhow_wire::grpc::{Refusal, from_body, from_usage, to_open_rollout};

use super::limits::{MESSAGE_CHARS_MAX, REPORT_ANSWER_MAX_MS};
use super::node_gateway::GatewayState;
use crate::plane::runtime::limits::BOOTSTRAP_MAX;
use crate::plane::runtime::{ReportBody, WriteError};

/// The longest digest: a hash in hexadecimal.
const DIGEST_CHARS_MAX: usize = 128;

/// Rollouts that a node may name: as many as it is handed at a time.
const ROLLOUTS_MAX: usize = BOOTSTRAP_MAX;

/// The specs in one answer: a few of the largest. The rest is handed once these are named.
pub(super) const SPECS_BYTES_MAX: usize = 1024 * 1024;

/// So many nodes tell of their load every two seconds: 50 messages a second, as many as the adaptive TTL lets come. In a
/// larger cluster it comes with the heartbeats.
const LOAD_FOLLOWED_MAX: usize = 100;

/// Whether nodes are to tell of the load of services often.
fn follows_load(state: &State) -> bool {
    let is_adaptive = |spec: &Arc<ServiceSpec>| Bounds::of(spec).is_some();
    state.nodes.len() <= LOAD_FOLLOWED_MAX
        && state
            .services
            .values()
            .any(|service| service.spec().is_some_and(is_adaptive))
}

impl GatewayState {
    pub(super) async fn take_status(
        &self,
        node: NodeId,
        ttl_secs: u32,
        report: StatusReport,
    ) -> Result<StatusAck, Refusal> {
        let body = report
            .body
            .ok_or_else(|| Refusal::Malformed("the report says nothing".into()))?;
        let told = from_body(&body).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let told = told.map(short);
        let rollouts = named_rollouts(&report.rollouts);
        let state = self.state_with(node).await?;
        let is_ready = state.node(node).ok_or(Refusal::UnknownNode)?.is_ready();
        let ack = StatusAck {
            next_ttl_secs: ttl_secs,
            ..StatusAck::default()
        };
        let bytes = bytes_of(&body);
        match (body, told) {
            (Body::Heartbeat(beat), _) => {
                if let Some(usage) = &beat.usage {
                    let now_ms = self.options.clock.monotonic_ms();
                    let observed = self.options.view.observed();
                    observed.used(&state, node, from_usage(usage), now_ms);
                }
                let ack = StatusAck {
                    follows_load: follows_load(&state),
                    // A node that was given up and lives tells everything before it counts again.
                    inventory_wanted: !is_ready,
                    ..ack
                };
                self.take_heartbeat(node, &rollouts, beat.digest, ack).await
            }
            (Body::Events(_) | Body::Inventory(_), Some(told)) => {
                let incarnation = report.incarnation.unwrap_or_default();
                let rollout = rollouts.first().cloned();
                let greets = told.is_greeting();
                let ack = self
                    .take_report(&state, node, rollout, incarnation, (told, bytes), ack)
                    .await?;
                let open = match ack.durable_seq {
                    Some(_) if greets => self.open_rollouts(node, &rollouts),
                    Some(_) | None => Vec::new(),
                };
                Ok(StatusAck {
                    bootstrap: fitting(open.iter().map(to_open_rollout)),
                    ..ack
                })
            }
            (Body::Events(_) | Body::Inventory(_), None) => {
                Err(Refusal::Malformed("the report says nothing".into()))
            }
        }
    }

    async fn take_heartbeat(
        &self,
        node: NodeId,
        rollouts: &[RolloutId],
        digest: Option<String>,
        ack: StatusAck,
    ) -> Result<StatusAck, Refusal> {
        let digest = digest.filter(|digest| digest.len() <= DIGEST_CHARS_MAX);
        let reply = self
            .heartbeats
            .beat(node, rollouts.first().cloned(), digest)
            .await;
        let open = reply.bootstrap_rollouts.iter();
        let unnamed = open.filter(|open| !rollouts.contains(&open.id));
        Ok(StatusAck {
            replay_from: reply.replay_from,
            bootstrap: fitting(unnamed.map(to_open_rollout)),
            ..ack
        })
    }

    /// All that are open for a node and that it does not name: handed also with the answer to its first report, so that
    /// one that has just come does not wait for its heartbeat.
    pub(super) fn open_rollouts(&self, node: NodeId, named: &[RolloutId]) -> Vec<OpenRollout> {
        let is_named = |id: &RolloutId| named.contains(id);
        mirror::open_rollouts(&self.options.view.state(), node, is_named, BOOTSTRAP_MAX)
    }

    /// Takes what a node says, of which so many bytes would be written.
    pub(super) async fn take_report(
        &self,
        state: &State,
        node: NodeId,
        rollout: Option<RolloutId>,
        incarnation: u64,
        (body, bytes): (ReportBody, usize),
        ack: StatusAck,
    ) -> Result<StatusAck, Refusal> {
        let is_inventory = matches!(body, ReportBody::Inventory { .. });
        let answer = match known_answer(state, node, incarnation, &body) {
            Some(answer) => answer,
            None => {
                self.allow_bytes(state, node, bytes)?;
                self.hand_in(node, rollout, incarnation, body).await?
            }
        };
        let (durable_seq, inventory_wanted) = match answer {
            ReportAnswer::Durable {
                seq,
                inventory_wanted,
                ..
            } => (seq, inventory_wanted),
            ReportAnswer::ReplayFrom { seq } => {
                return Ok(StatusAck {
                    replay_from: Some(seq),
                    ..ack
                });
            }
            ReportAnswer::InventoryWanted => {
                return Ok(StatusAck {
                    inventory_wanted: true,
                    ..ack
                });
            }
        };
        let is_lost = self
            .options
            .view
            .state()
            .node(node)
            .is_some_and(|node| !node.is_ready());
        if is_lost && is_inventory {
            self.bring_back(node).await?;
        }
        Ok(StatusAck {
            durable_seq: Some(durable_seq),
            inventory_wanted: inventory_wanted || (is_lost && !is_inventory),
            ..ack
        })
    }

    /// A worker may write so much and no more; servers, whose disks these are, as much as they like.
    fn allow_bytes(&self, state: &State, node: NodeId, bytes: usize) -> Result<(), Refusal> {
        let is_worker = state
            .node(node)
            .is_some_and(|node| node.info.role == NodeRole::Worker);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let now_ms = self.options.clock.monotonic_ms();
        match !is_worker || self.rates.allow_bytes(node, bytes, now_ms) {
            true => Ok(()),
            false => Err(Refusal::TooOften),
        }
    }

    /// Waits for a report to be durable, and not longer than its node waits for the answer: one that finds its server
    /// silent leaves it, and thousands that do so at once would be taken for dead. Sending it again does no harm.
    async fn hand_in(
        &self,
        node: NodeId,
        rollout: Option<RolloutId>,
        incarnation: u64,
        body: ReportBody,
    ) -> Result<ReportAnswer, Refusal> {
        let clock = &self.options.clock;
        let until_ms = clock.monotonic_ms().saturating_add(REPORT_ANSWER_MAX_MS);
        let taken = tokio::select! {
            biased;
            taken = self.options.input.report(node, rollout, incarnation, body) => taken,
            () = clock.sleep_until_monotonic(until_ms) => Err(WriteError::Busy),
        };
        let error = match taken {
            Ok(taken) => return Ok(ReportAnswer::taken(taken.durable_seq, taken.inventory_wanted)),
            Err(error) => error,
        };
        let answer = match &error {
            WriteError::Refused(refused) => ReportAnswer::of_refusal(refused),
            WriteError::Busy
            | WriteError::ShuttingDown
            | WriteError::NotLeader { .. }
            | WriteError::Unwritable(_)
            | WriteError::NotTaken(_)
            | WriteError::StorageGone
            | WriteError::Unknown => None,
        };
        answer.ok_or_else(|| self.refusal(error))
    }

    /// The mirror has what the node has: it counts again.
    async fn bring_back(&self, node: NodeId) -> Result<(), Refusal> {
        let back = Command::Node(NodeCommand::Back { node });
        let written = self.options.input.write(back, None).await;
        written.map_err(|error| self.refusal(error))?;
        tracing::info!(%node, "a node that was given up is back");
        Ok(())
    }
}

fn bytes_of(body: &Body) -> usize {
    match body {
        Body::Heartbeat(_) => 0,
        Body::Events(told) => told.events.len(),
        Body::Inventory(told) => told.replicas.len(),
    }
}

/// The same with messages of a length that is kept.
fn short(body: ReportBody) -> ReportBody {
    match body {
        ReportBody::Events { first_seq, events } => {
            let events = events.into_iter();
            ReportBody::Events {
                first_seq,
                events: events.map(|(name, event)| (name, short_event(event))).collect(),
            }
        }
        ReportBody::Inventory { seq, mut replicas } => {
            for (_, machine) in &mut replicas {
                machine.message = machine.message.take().map(short_message);
            }
            ReportBody::Inventory { seq, replicas }
        }
    }
}

fn short_event(event: ReplicaEvent) -> ReplicaEvent {
    match event {
        ReplicaEvent::BecameUnhealthy { message } => ReplicaEvent::BecameUnhealthy {
            message: short_message(message),
        },
        ReplicaEvent::CouldNotStart { message } => ReplicaEvent::CouldNotStart {
            message: short_message(message),
        },
        ReplicaEvent::SettingsFailed { settings, message } => ReplicaEvent::SettingsFailed {
            settings,
            message: short_message(message),
        },
        ReplicaEvent::SettingsPassed { .. }
        | ReplicaEvent::PullBegan
        | ReplicaEvent::StartBegan
        | ReplicaEvent::Started { .. }
        | ReplicaEvent::BecameHealthy
        | ReplicaEvent::RanSteadily
        | ReplicaEvent::Ended { .. }
        | ReplicaEvent::StopBegan
        | ReplicaEvent::Adopted { .. }
        | ReplicaEvent::NodeLost => event,
    }
}

/// On one line, as an agent's own are, so that nothing that a worker says stands on a screen as a line of somebody
/// else's; and not longer than an agent's own.
pub(super) fn short_message(message: Arc<str>) -> Arc<str> {
    let message = match message.contains(char::is_control) {
        true => {
            let parts = message.split(char::is_control).map(str::trim);
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            parts.join(" ").into()
        }
        false => message,
    };
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        None => message,
        Some((end, _)) => message[..end].into(),
    }
}

/// The rollouts that a node names; what is none says nothing.
pub(super) fn named_rollouts(told: &[String]) -> Vec<RolloutId> {
    let named = told.iter().take(ROLLOUTS_MAX);
    named.filter_map(|text| text.parse().ok()).collect()
}

/// As many as fit into an answer: whole rollouts, and the first one at any rate.
fn fitting(open: impl Iterator<Item = proto::OpenRollout>) -> Vec<proto::OpenRollout> {
    let mut fitting: Vec<proto::OpenRollout> = Vec::new();
    let mut size_bytes = 0;
    for rollout in open {
        size_bytes += rollout.spec_json.iter().map(Vec::len).sum::<usize>();
        let is_first = fitting
            .first()
            .is_none_or(|first| first.rollout_id == rollout.rollout_id);
        if size_bytes > SPECS_BYTES_MAX && !is_first {
            // A node that names a rollout has heard of all its services.
            fitting.retain(|whole| whole.rollout_id != rollout.rollout_id);
            break;
        }
        fitting.push(rollout);
    }
    fitting
}
