//! How a deployment is doing.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use dhow_core::ids::{NodeId, ReplicaKey, ServiceName};
use dhow_core::spec::{Endpoint, Expose};
use dhow_core::state::{Deployment, Node, Phase, RevisionOutcome, Service, State};
use dhow_wire::{
    DeploymentSource, DeploymentState, DeploymentStatus, ServedEndpoint, ServiceHealthSummary, ServingNode,
};

use super::files;
use super::sum::ServiceSum;
use crate::clock::shown_utc;
use crate::plane::cron;
use crate::plane::runtime::Observed;

/// Nodes that are named for an endpoint: enough to find one that answers, on one screen.
const SERVING_NODES_MAX: usize = 16;

pub(super) fn services<'a>(
    state: &'a State,
    deployment: &'a Deployment,
) -> impl Iterator<Item = (&'a ServiceName, &'a Service)> {
    let all = deployment.services.iter();
    all.filter_map(|(name, id)| Some((name, state.service(*id)?.as_ref())))
}

pub(super) fn status(
    state: &State,
    observed: &Observed,
    deployment: &Deployment,
    now_unix_secs: i64,
) -> DeploymentStatus {
    let sums: Vec<(&Service, ServiceSum)> = services(state, deployment)
        .map(|(_, service)| (service, ServiceSum::of(state, service)))
        .collect();
    let whole = sums.iter().all(|(_, sum)| sum.is_whole());
    DeploymentStatus {
        deployment: deployment.name.to_string(),
        revision: deployment.revision.0,
        state: state_of(state, deployment, whole),
        services: sums
            .iter()
            .map(|(service, sum)| ServiceHealthSummary {
                next_run_unix_secs: cron::outlook(state, service, now_unix_secs)
                    .and_then(|outlook| outlook.next_unix_secs),
                ..sum.summary(service)
            })
            .collect(),
        message: message(deployment),
        notes: files::notes(state, deployment, None)
            .into_iter()
            .chain(suspension(deployment))
            .collect(),
        served: served_with(state, Some(observed), deployment),
        source: source(state, deployment),
    }
}

/// Where it comes from, as far as the state knows.
fn source(state: &State, deployment: &Deployment) -> Option<DeploymentSource> {
    let name = deployment.owner()?;
    let known = state.sources.get(name);
    let suspended = deployment.suspended.as_ref();
    Some(DeploymentSource {
        name: name.to_string(),
        version: known.and_then(|known| known.taken).map(|taken| taken.version),
        commit: known.and_then(|known| known.commit.as_deref()).map(str::to_owned),
        suspended_until_unix_secs: suspended.map(|suspension| suspension.until_unix_secs),
        looked_unix_secs: None,
        problem: None,
    })
}

/// That the source's word does not count at the moment, or has to be heard again.
fn suspension(deployment: &Deployment) -> Option<String> {
    let (owner, suspension) = (deployment.owner()?, deployment.suspended.as_ref()?);
    Some(format!(
        "the source {owner} is suspended here until {} by {}",
        shown_utc(suspension.until_unix_secs),
        suspension.author
    ))
}

/// Where the endpoints of a deployment are served: on the nodes that run a replica behind them.
pub(crate) fn served(state: &State, deployment: &Deployment) -> Vec<ServedEndpoint> {
    served_with(state, None, deployment)
}

/// The same with how often they are called, where that is known.
fn served_with(state: &State, observed: Option<&Observed>, deployment: &Deployment) -> Vec<ServedEndpoint> {
    let mut all = Vec::new();
    for (_, service) in services(state, deployment) {
        let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
        all.extend(
            endpoints
                .unwrap_or_default()
                .iter()
                .map(|endpoint| served_endpoint(state, observed, service, endpoint)),
        );
    }
    all
}

fn served_endpoint(
    state: &State,
    observed: Option<&Observed>,
    service: &Service,
    endpoint: &Endpoint,
) -> ServedEndpoint {
    let calls = observed.and_then(|observed| observed.calls(&service.key, &endpoint.name));
    ServedEndpoint {
        service: service.key.service.to_string(),
        address: endpoint.address(),
        public: match endpoint.expose {
            Expose::Public => true,
            Expose::Internal | Expose::Cluster => false,
        },
        nodes: serving_nodes(state, service, endpoint),
        requests_per_second: calls.map(|(requests, _)| per_second(requests)),
        errors_per_second: calls.map(|(_, errors)| per_second(errors)),
    }
}

fn per_second(milli: u64) -> f64 {
    // For people: four million calls a second are more than a cluster has.
    f64::from(u32::try_from(milli).unwrap_or(u32::MAX)) / 1_000.0
}

fn serving_nodes(state: &State, service: &Service, endpoint: &Endpoint) -> Vec<ServingNode> {
    let serves = |key: &ReplicaKey| {
        let role = service.role(key.slot.role);
        let target = endpoint.target_role.as_ref();
        target.is_none_or(|target| role == Some(target))
    };
    let running = state.replicas_of(service.id);
    let nodes: BTreeSet<NodeId> = running
        .filter(|(key, replica)| replica.is_running() && serves(key))
        .map(|(_, replica)| replica.node)
        .collect();
    let told = nodes.into_iter().take(SERVING_NODES_MAX).map(|node| ServingNode {
        node_id: node.0,
        host: state.node(node).and_then(|node| host_of(node)),
    });
    told.collect()
}

/// The address of a node as others reach it; none where it only has one of its own machine.
fn host_of(node: &Node) -> Option<String> {
    let addr: SocketAddr = node.info.api_addr.as_deref()?.parse().ok()?;
    let ip = addr.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
}

/// The phase, or that a deployment which had come to rest is not whole at the moment.
pub(super) fn state_of(state: &State, deployment: &Deployment, whole: bool) -> DeploymentState {
    match deployment.phase {
        Phase::Deploying | Phase::Stable | Phase::Reverting | Phase::Reverted
            if is_stopped(state, deployment) =>
        {
            DeploymentState::Stopped
        }
        Phase::Stable | Phase::Reverted if !whole => DeploymentState::Degraded,
        phase => phase.into(),
    }
}

/// Whether people have stopped all of it.
fn is_stopped(state: &State, deployment: &Deployment) -> bool {
    let mut all = services(state, deployment).peekable();
    all.peek().is_some() && all.all(|(_, service)| service.stopped.is_some())
}

/// Why it is in its state: the current revision's own failure, or that of the one it was reverted from.
pub(super) fn message(deployment: &Deployment) -> Option<String> {
    let failed = deployment
        .history
        .iter()
        .rev()
        .find_map(|(revision, record)| match &record.outcome {
            RevisionOutcome::Failed { cause } | RevisionOutcome::Reverted { cause, .. } => {
                Some(format!("revision {revision} failed: {cause}"))
            }
            RevisionOutcome::Rolling
            | RevisionOutcome::Good
            | RevisionOutcome::Superseded
            | RevisionOutcome::Conflicted => None,
        });
    match deployment.phase {
        Phase::Failed | Phase::Reverting | Phase::Reverted | Phase::RevertFailed => failed,
        Phase::Deploying | Phase::Stable | Phase::Removing => None,
    }
}
