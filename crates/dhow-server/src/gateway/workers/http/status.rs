//! `POST /api/v1/workers/status`: a worker that keeps no ledger says all that it runs, each time. It is written only
//! where it differs from the mirror.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::{DeploymentName, Generation, NodeId, ReplicaName};
use dhow_core::mirror::OpenRollout;
use dhow_core::replica::{Exit, Machine, ReplicaState, RestartRule};
use dhow_core::state::{Node, Replica, State as ClusterState, Wanted};
use dhow_core::usage::{NodeUsage, ReplicaUsage};
use dhow_wire::grpc::Refusal;
use dhow_wire::grpc::proto::StatusAck;
use dhow_wire::names::deployment_on_wire;
use dhow_wire::{
    BootstrapRollout, ReplicaStateName, WorkerContainerStatus, WorkerStatusAck, WorkerStatusReport,
};

use super::answer::{Answer, read};
use crate::gateway::node_gateway::{GatewayState, NodeGateway};
use crate::gateway::status::{SPECS_BYTES_MAX, named_rollouts, short_message};
use crate::plane::runtime::ReportBody;

/// What a worker of the JSON form runs: renews its lease.
#[utoipa::path(
    post, path = "/api/v1/workers/status", tag = "workers", request_body = WorkerStatusReport,
    params(("X-Dhow-Internal-Token" = String, Header, description = "The token that registration gave")),
    responses((status = 200, body = WorkerStatusAck))
)]
pub(in crate::gateway) async fn status(
    State(gateway): State<NodeGateway>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let bytes = body.as_ref().map_or(0, Bytes::len);
    let report: WorkerStatusReport = read(body)?;
    let inner = &gateway.inner;
    let (shown, next_ttl_secs) = inner.proved(&headers, report.node_id).await?;
    let state = inner.known(shown.node).await?;
    let usage = usage_of(&state, shown.node, &report)?;
    inner
        .options
        .view
        .observed()
        .used(&state, shown.node, usage, inner.options.clock.monotonic_ms());
    let durable_seq = inner.take_inventory(shown.node, &report, bytes).await?;
    let named = named_rollouts(&report.rollouts);
    let open = inner.open_rollouts(shown.node, &named);
    shown.answer(&WorkerStatusAck {
        next_ttl_secs,
        durable_seq,
        // It tells everything each time, so that nothing has to be sent again.
        replay_from: None,
        bootstrap: fitting(open),
        term: Some(shown.term),
    })
}

/// As many as fit into an answer, and the first one at any rate.
fn fitting(open: Vec<OpenRollout>) -> Vec<BootstrapRollout> {
    let mut size_bytes = 0;
    let mut fits = |rollout: &BootstrapRollout| {
        // A spec that was deployed can be written.
        let text = serde_json::to_vec(rollout).unwrap_or_default();
        let is_first = size_bytes == 0;
        size_bytes += text.len();
        is_first || size_bytes <= SPECS_BYTES_MAX
    };
    let whole = open.into_iter().map(|open| BootstrapRollout {
        rollout_id: open.id.to_string(),
        service: open.service.to_string(),
        deployment: deployment_on_wire(&open.id.deployment),
        generation: Some(open.generation.0),
        specs: open.specs,
    });
    whole.take_while(|rollout| fits(rollout)).collect()
}

/// What a plain worker says that it uses: the node as a whole, and its replicas where it measures them.
fn usage_of(state: &ClusterState, node: NodeId, report: &WorkerStatusReport) -> Result<NodeUsage, Refusal> {
    let resources = &report.resources;
    let mut usage = NodeUsage {
        endpoints: Vec::new(),
        // What is no number, or less than nothing, becomes 0; more than fits, the most.
        cpu_milli: (resources.cpu_used * 1_000.0) as u64,
        memory_bytes: resources.memory_used_bytes,
        replicas: Vec::new(),
        canaries: Vec::new(),
        // Nothing of the cluster's passes it.
        tells_calls: true,
    };
    let measured =
        |told: &&WorkerContainerStatus| told.cpu_used_milli.is_some() || told.memory_used_bytes.is_some();
    let measured: Vec<_> = report.containers.iter().filter(measured).collect();
    let Some(known) = state.node(node).filter(|_| !measured.is_empty()) else {
        return Ok(usage);
    };
    let own = Own::of(state, known);
    let mut told = BTreeMap::new();
    for container in measured.into_iter().take(NodeUsage::REPLICAS_MAX) {
        let Some((name, known)) = own.of_container(container, &told)? else {
            continue;
        };
        told.insert(name.clone(), known.replica.machine.clone());
        let used = ReplicaUsage {
            cpu_milli: container.cpu_used_milli.unwrap_or_default(),
            memory_bytes: container.memory_used_bytes.unwrap_or_default(),
            started_unix_secs: None,
        };
        usage.replicas.push((name, used));
    }
    Ok(usage)
}

impl GatewayState {
    async fn take_inventory(
        &self,
        node: NodeId,
        report: &WorkerStatusReport,
        bytes: usize,
    ) -> Result<Option<u64>, Refusal> {
        let state = self.state_with(node).await?;
        let known = state.node(node).ok_or(Refusal::UnknownNode)?;
        let tells_generations = report.containers.iter().any(|told| told.generation.is_some());
        if known.is_plain && tells_generations {
            let told = NodeCommand::TellsGenerations { node };
            let written = self.options.input.write(Command::Node(told), None).await;
            written.map_err(|error| self.refusal(error))?;
        }
        let own = Own::of(&state, known);
        let told = own.told(&report.containers)?;
        if known.is_ready() && !own.differs(&told) {
            return Ok(report.seq);
        }
        let incarnation = report.incarnation.unwrap_or_default();
        let body = ReportBody::Inventory {
            seq: report.seq.unwrap_or_default(),
            replicas: told.into_iter().collect(),
        };
        let ack = self
            .take_report(
                &state,
                node,
                None,
                incarnation,
                (body, bytes),
                StatusAck::default(),
            )
            .await?;
        Ok(report.seq.and(ack.durable_seq))
    }
}

/// What the state has on a node, by name: assigned, or still to end.
struct Own<'a>(BTreeMap<ReplicaName, OwnReplica<'a>>);

/// One of them.
#[derive(Clone, Copy)]
struct OwnReplica<'a> {
    replica: &'a Replica,
    /// Its service lets it end well: one that is to run always has failed where it ended, whatever its exit code.
    may_end: bool,
}

impl<'a> Own<'a> {
    fn of(state: &'a ClusterState, node: &Node) -> Self {
        let replicas = node.replica_keys().filter_map(|key| {
            let replica = state.replicas.get(&key)?.as_ref();
            let info = state.service(key.service)?.info(key.generation);
            let may_end = info.is_none_or(|info| RestartRule::of(&info.spec).lets_end());
            Some((state.replica_name(&key)?, OwnReplica { replica, may_end }))
        });
        Self(replicas.collect())
    }

    /// What a report means, of those that are the node's: what it runs beside that is nobody's business here.
    fn told(&self, containers: &[WorkerContainerStatus]) -> Result<BTreeMap<ReplicaName, Machine>, Refusal> {
        let mut told = BTreeMap::new();
        for container in containers {
            if let Some((name, known)) = self.of_container(container, &told)? {
                told.insert(name, machine_of(container, known));
            }
        }
        Ok(told)
    }

    /// Which of them a line of a report speaks of, given those that the lines before it spoke of.
    fn of_container(
        &self,
        container: &WorkerContainerStatus,
        told: &BTreeMap<ReplicaName, Machine>,
    ) -> Result<Option<(ReplicaName, OwnReplica<'a>)>, Refusal> {
        let name = ReplicaName::try_from(container).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let name = self.meant(name, container, told);
        Ok(name.and_then(|name| self.0.get(&name).map(|known| (name.clone(), *known))))
    }

    /// Without a generation a status is that of a plain worker: it means what the node was assigned. Where two
    /// deployments have a service of that name there, the first line means the first of them.
    fn meant(
        &self,
        name: ReplicaName,
        container: &WorkerContainerStatus,
        told: &BTreeMap<ReplicaName, Machine>,
    ) -> Option<ReplicaName> {
        if container.generation.is_some() {
            return Some(name);
        }
        let any_deployment = container.deployment.is_none();
        let is_meant = |own: &&ReplicaName| {
            (any_deployment || own.deployment == name.deployment)
                && own.service == name.service
                && own.role == name.role
                && own.index == name.index
                && !told.contains_key(*own)
        };
        // Rather the deployment that is meant where none is said, then what is to run, then the newest.
        let rank = |own: &&ReplicaName| {
            let is_stopping = self
                .0
                .get(*own)
                .is_none_or(|known| known.replica.wanted == Wanted::Stop);
            let is_named = own.deployment != DeploymentName::fallback();
            let age = Generation(u32::MAX - own.generation.0);
            (is_named, own.deployment.clone(), is_stopping, age)
        };
        self.0.keys().filter(is_meant).min_by_key(rank).cloned()
    }

    /// Whether the report says anything that the state does not have.
    fn differs(&self, told: &BTreeMap<ReplicaName, Machine>) -> bool {
        self.0.iter().any(|(name, OwnReplica { replica, .. })| {
            let known = &replica.machine;
            match told.get(name) {
                Some(machine) => {
                    machine != known || (replica.wanted == Wanted::Stop && known.state.is_ended())
                }
                None if replica.wanted == Wanted::Stop => true,
                None => known.state != ReplicaState::Pending && !known.state.is_ended(),
            }
        })
    }
}

/// What is not said is as it was known; a state that this version does not know says nothing.
fn machine_of(container: &WorkerContainerStatus, own: OwnReplica<'_>) -> Machine {
    let known = &own.replica.machine;
    let Some(said) = container.known_state().map(state_of) else {
        return known.clone();
    };
    let is_to_run = own.replica.wanted == Wanted::Run && !own.may_end;
    let state = match said {
        ReplicaState::Exited if is_to_run => ReplicaState::Failed,
        said => said,
    };
    let is_running = state == ReplicaState::Running;
    let message = container.message.as_deref();
    let exit = match said {
        // One that has ended and does not say how has ended as its state says.
        ReplicaState::Exited => Some(Exit::Code(0)),
        ReplicaState::Failed => Some(Exit::Unknown),
        // How the one before it ended is over.
        ReplicaState::Running => None,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Backoff
        | ReplicaState::Stopping
        | ReplicaState::Lost => known.exit,
    };
    // One that says nothing of health has no check.
    let healthy = is_running && container.healthy.unwrap_or(true);
    Machine {
        state,
        healthy,
        pid: container.pid.or(known.pid.filter(|_| is_running)),
        restarts: container.restarts.unwrap_or(known.restarts),
        failures: known.failures,
        exit: container.exit_code.map(Exit::Code).or(exit),
        oom: known.oom && !is_running,
        message: message
            .map(|text| short_message(text.into()))
            .or_else(|| known.message.clone().filter(|_| !healthy)),
    }
}

fn state_of(name: ReplicaStateName) -> ReplicaState {
    match name {
        ReplicaStateName::Pending => ReplicaState::Pending,
        ReplicaStateName::Pulling => ReplicaState::Pulling,
        ReplicaStateName::Starting => ReplicaState::Starting,
        ReplicaStateName::Running => ReplicaState::Running,
        ReplicaStateName::Stopping => ReplicaState::Stopping,
        ReplicaStateName::Exited => ReplicaState::Exited,
        ReplicaStateName::Failed => ReplicaState::Failed,
        ReplicaStateName::Lost => ReplicaState::Lost,
    }
}
