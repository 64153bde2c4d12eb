//! Where heartbeats come in. The lease is renewed first, before the inbox and whatever its state: a full inbox never
//! costs a lease. Called by whatever receives heartbeats; it must never wait for the reducer for long.

use std::sync::Arc;

use dhow_core::ids::{Generation, NodeId};
use dhow_core::mirror::RolloutId;
use dhow_core::spec::ServiceSpec;
use dhow_core::state::{Phase, State};
use dhow_wire::BootstrapRollout;
use dhow_wire::names::{deployment_on_wire, service_key};
use tokio::sync::oneshot;

use super::inbox::InputSender;
use super::input::{HeartbeatReply, ReducerInput};
use super::limits::BOOTSTRAP_MAX;
use crate::clock::Clock;

/// How long a heartbeat's answer may take. A worker's report has a time-out of several seconds; after this the server
/// answers the node that all is well, and compares again with its next heartbeat.
const ANSWER_MAX_MS: u64 = 2_000;

/// Renews a node's lease, given the monotonic time. It must not block.
pub type RenewLease = dyn Fn(NodeId, u64) + Send + Sync;

/// Takes the heartbeats that the gateway and the sessions in this process hear: it renews the lease and asks the
/// reducer whether the mirror agrees with the node.
#[derive(Clone)]
pub struct HeartbeatIngest {
    input: InputSender,
    clock: Arc<dyn Clock>,
    renew: Arc<RenewLease>,
}

/// An open rollout that a node does not name, with all that it takes to prepare for it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRollout {
    pub rollout: BootstrapRollout,
    /// What each role of the service will run, each one once.
    pub specs: Vec<Arc<ServiceSpec>>,
}

impl OpenRollout {
    /// Those of an answer that the node does not name, as the state has them.
    pub fn unnamed(reply: &HeartbeatReply, named: &[RolloutId], state: &State) -> Vec<Self> {
        let names: Vec<String> = named.iter().map(RolloutId::to_string).collect();
        let unnamed = reply.bootstrap_rollouts.iter();
        let unnamed = unnamed.filter(|rollout| !names.contains(&rollout.rollout_id));
        unnamed.map(|rollout| Self::of(state, rollout.clone())).collect()
    }

    /// All that are open for a node and that it does not name: handed also with the answer to its first report, so that
    /// one that has just come does not wait for its heartbeat.
    pub fn open(state: &State, host: NodeId, named: &[RolloutId]) -> Vec<Self> {
        let unnamed = open_rollouts(state, host, &|id| named.contains(id)).into_iter();
        unnamed.map(|rollout| Self::of(state, rollout)).collect()
    }

    fn of(state: &State, rollout: BootstrapRollout) -> Self {
        Self {
            specs: specs_of(state, &rollout),
            rollout,
        }
    }
}

/// The rollouts that are under way and have replicas assigned to the node, but for those that it names.
pub(super) fn open_rollouts(
    state: &State,
    host: NodeId,
    is_named: &dyn Fn(&RolloutId) -> bool,
) -> Vec<BootstrapRollout> {
    let Some(node) = state.node(host) else {
        return Vec::new();
    };
    let open = node.assignments.services().filter_map(|(id, _)| {
        let service = state.service(id)?;
        let deployment = state.deployment(&service.key.deployment)?;
        let is_open = match deployment.phase {
            Phase::Deploying | Phase::Reverting | Phase::Failed => true,
            Phase::Stable | Phase::Reverted | Phase::Removing => false,
        };
        let id = RolloutId {
            deployment: deployment.name.clone(),
            revision: deployment.revision,
        };
        (is_open && !is_named(&id)).then(|| BootstrapRollout {
            rollout_id: id.to_string(),
            service: service.key.service.to_string(),
            deployment: deployment_on_wire(&deployment.name),
            generation: Some(service.target.0),
            specs: Vec::new(),
        })
    });
    open.take(BOOTSTRAP_MAX).collect()
}

fn specs_of(state: &State, rollout: &BootstrapRollout) -> Vec<Arc<ServiceSpec>> {
    let mut specs: Vec<Arc<ServiceSpec>> = Vec::new();
    let Ok(key) = service_key(rollout.deployment.as_deref(), &rollout.service) else {
        return specs;
    };
    let Some(service) = state.service_named(&key.deployment, &key.service) else {
        return specs;
    };
    let generation = rollout.generation.map_or(service.target, Generation);
    let Some(info) = service.info(generation) else {
        return specs;
    };
    for role in service.roles.iter() {
        let spec = Arc::new(info.spec.for_role(role));
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

impl HeartbeatIngest {
    pub fn new(input: InputSender, clock: Arc<dyn Clock>, renew: Arc<RenewLease>) -> Self {
        Self { input, clock, renew }
    }

    /// A node is alive.
    pub async fn beat(
        &self,
        host: NodeId,
        rollout_id: Option<RolloutId>,
        current_digest: Option<String>,
    ) -> HeartbeatReply {
        let at = self.clock.monotonic_ms();
        (self.renew)(host, at);
        self.input.count_heartbeat();
        let (reply, answer) = oneshot::channel();
        let sent = self.input.try_send(ReducerInput::HeartbeatReceived {
            host,
            rollout_id,
            current_digest,
            at,
            reply,
        });
        if sent.is_err() {
            return HeartbeatReply::default();
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_default(),
            () = self.clock.sleep_until_monotonic(at.saturating_add(ANSWER_MAX_MS)) => HeartbeatReply::default(),
        }
    }
}
