//! `POST /api/v1/workers/status`: a worker that keeps no ledger says all that it runs, each time. It is written only
//! where it differs from the mirror.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::mirror::{digest, digest_of};
use dhow_core::replica::{Exit, Machine, ReplicaState};
use dhow_core::usage::NodeUsage;
use dhow_wire::grpc::Refusal;
use dhow_wire::grpc::proto::StatusAck;
use dhow_wire::{
    ReplicaStateName, WorkerContainerStatus, WorkerResourceUsage, WorkerStatusAck, WorkerStatusReport,
};

use super::answer::{Answer, json, read};
use crate::gateway::node_gateway::{Inner, NodeGateway};
use crate::gateway::rates::Kind;
use crate::runtime::ReportBody;

/// What is kept of a message: as much as an agent's own.
const MESSAGE_CHARS_MAX: usize = 400;

pub(super) async fn status(
    State(gateway): State<NodeGateway>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let report: WorkerStatusReport = read(body)?;
    let inner = &gateway.inner;
    let node = inner.shown(&headers, report.node_id)?;
    inner.leading_term().await?;
    let state = inner.state_with(node).await?;
    let next_ttl_secs = inner.hear(node, Kind::Call)?;
    let usage = usage_of(&report.resources);
    inner.options.view.observed().used(&state, node, usage);
    let durable_seq = inner.take_inventory(node, &report).await?;
    json(&WorkerStatusAck {
        next_ttl_secs,
        durable_seq,
        ..WorkerStatusAck::default()
    })
}

/// What a plain worker says that it uses, of the node as a whole.
fn usage_of(resources: &WorkerResourceUsage) -> NodeUsage {
    NodeUsage {
        // What is no number, or less than nothing, becomes 0; more than fits, the most.
        cpu_milli: (resources.cpu_used * 1_000.0) as u64,
        memory_bytes: resources.memory_used_bytes,
        replicas: Vec::new(),
    }
}

impl Inner {
    async fn take_inventory(
        &self,
        node: NodeId,
        report: &WorkerStatusReport,
    ) -> Result<Option<u64>, Refusal> {
        let mut replicas = Vec::with_capacity(report.containers.len());
        for container in &report.containers {
            let name =
                ReplicaName::try_from(container).map_err(|error| Refusal::Malformed(error.to_string()))?;
            if let Some(machine) = machine_of(container) {
                replicas.push((name, machine));
            }
        }
        let state = self.state_with(node).await?;
        let known = state.node(node).ok_or(Refusal::UnknownNode)?;
        let told = digest_of(replicas.iter().map(|(name, machine)| (name.clone(), machine)));
        if known.is_ready() && told == digest(&state, node) {
            return Ok(report.seq);
        }
        let incarnation = report.incarnation.unwrap_or_default();
        let body = ReportBody::Inventory {
            seq: report.seq.unwrap_or_default(),
            replicas,
        };
        let ack = self
            .take_report(&state, node, incarnation, body, StatusAck::default())
            .await?;
        Ok(report.seq.and(ack.durable_seq))
    }
}

/// None for a state that this version does not know: of that replica it says nothing.
fn machine_of(container: &WorkerContainerStatus) -> Option<Machine> {
    let state = match container.known_state()? {
        ReplicaStateName::Pending => ReplicaState::Pending,
        ReplicaStateName::Pulling => ReplicaState::Pulling,
        ReplicaStateName::Starting => ReplicaState::Starting,
        ReplicaStateName::Running => ReplicaState::Running,
        ReplicaStateName::Stopping => ReplicaState::Stopping,
        ReplicaStateName::Exited => ReplicaState::Exited,
        ReplicaStateName::Failed => ReplicaState::Failed,
        ReplicaStateName::Lost => ReplicaState::Lost,
    };
    let is_running = state == ReplicaState::Running;
    let message = container.message.as_deref();
    Some(Machine {
        state,
        // One that says nothing of health has no check.
        healthy: is_running && container.healthy.unwrap_or(true),
        pid: container.pid,
        restarts: container.restarts.unwrap_or_default(),
        exit: container.exit_code.map(Exit::Code),
        message: message.map(|text| text.chars().take(MESSAGE_CHARS_MAX).collect::<String>().into()),
        ..Machine::default()
    })
}
