//! The mirror compared with the nodes themselves: each is asked what it runs of a service, at this moment. Nodes that
//! should have nothing of it are asked as well, because one of them may run what is another's by now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dhow_core::ids::{DeploymentName, NodeId, ServiceKey, ServiceName};
use dhow_core::state::State;
use dhow_wire::{ClusterContainerSummary, NodeServiceState, ReplicaStatus};
use futures_util::StreamExt;

use super::replicas::ReplicaFilter;
use crate::net::node_door::NodeDoor;

/// A node that has not answered by then is said not to.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Questions that are on their way at a time.
const QUESTIONS_MAX: usize = 64;

/// Questions to nodes that should have nothing of a service. A cluster where these were more is asked only for what it
/// should have: with 64 at a time, and nodes that do not answer, 512 take 24 s.
const OTHERS_MAX: usize = 512;

/// Which node is asked for which service: its id, the deployment, the service.
type Question = (u64, String, String);
/// What a node has of a service, or why that is not known.
type Answers = BTreeMap<Question, Result<NodeServiceState, String>>;

/// Every node that can be reached, with every service that was asked for; none where these are too many.
pub(super) fn others(state: &State, filter: &ReplicaFilter) -> Vec<Question> {
    let keys = state.services.values().map(|service| &service.key);
    let keys: Vec<&ServiceKey> = keys
        .filter(|key| filter.takes(&key.deployment, &key.service))
        .collect();
    let nodes = state.nodes.values().filter(|node| node.is_ready());
    let nodes: Vec<u64> = nodes.map(|node| node.id.0).collect();
    if nodes.len().saturating_mul(keys.len()) > OTHERS_MAX {
        return Vec::new();
    }
    let of_node = |node: u64| {
        keys.iter()
            .map(move |key| (node, key.deployment.to_string(), key.service.to_string()))
    };
    nodes.into_iter().flat_map(of_node).collect()
}

/// Asks every node that the listing names, and the others, and notes where it says something else.
pub(super) async fn compare(
    door: &dyn NodeDoor,
    listed: Vec<ReplicaStatus>,
    others: Vec<Question>,
) -> Vec<ReplicaStatus> {
    let named = listed.iter().filter_map(|replica| {
        Some((
            replica.node_id?,
            replica.deployment.clone(),
            replica.service.clone(),
        ))
    });
    let questions: BTreeSet<Question> = named.chain(others).collect();
    let asked = futures_util::stream::iter(questions).map(|question| async {
        let answer = ask(door, &question).await;
        (question, answer)
    });
    let answers: Answers = asked.buffer_unordered(QUESTIONS_MAX).collect().await;
    let mut compared: Vec<ReplicaStatus> = listed
        .iter()
        .map(|replica| ReplicaStatus {
            live: differs(&answers, replica),
            ..replica.clone()
        })
        .collect();
    compared.extend(unknown(&answers, &listed));
    compared
}

async fn ask(door: &dyn NodeDoor, question: &Question) -> Result<NodeServiceState, String> {
    let (node, deployment, service) = question;
    let names = DeploymentName::new(deployment)
        .ok()
        .zip(ServiceName::new(service).ok());
    let (deployment, service) = names.ok_or_else(|| "no such name".to_owned())?;
    let asked = door.service_state(NodeId(*node), ServiceKey { deployment, service });
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("node {node} does not answer")),
    }
}

/// What the node says, where it is something else than the mirror.
fn differs(answers: &Answers, replica: &ReplicaStatus) -> Option<String> {
    let key = (
        replica.node_id?,
        replica.deployment.clone(),
        replica.service.clone(),
    );
    let state = match answers.get(&key)? {
        Ok(state) => state,
        Err(why) => return Some(format!("unknown: {why}")),
    };
    let of_id: Vec<&ClusterContainerSummary> = state
        .containers
        .iter()
        .filter(|container| container.id == replica.id)
        .collect();
    // Two generations of one slot may be there at a time.
    let same = |container: &&&ClusterContainerSummary| {
        container.state == replica.state.as_str() && container.pid == replica.pid
    };
    if of_id.iter().any(|container| same(&container)) {
        return None;
    }
    match of_id.first() {
        None if is_over(replica) => None,
        None => Some("not there".into()),
        Some(container) => Some(shown(container)),
    }
}

/// Whether nothing of it needs to be on its node any more.
fn is_over(replica: &ReplicaStatus) -> bool {
    use dhow_wire::ReplicaStateName as S;
    match replica.state {
        S::Exited | S::Failed | S::Pending => true,
        S::Pulling | S::Starting | S::Running | S::Stopping | S::Lost => false,
    }
}

fn shown(container: &ClusterContainerSummary) -> String {
    match container.pid {
        Some(pid) => format!("{}, pid {pid}", container.state),
        None => container.state.clone(),
    }
}

/// What nodes run that the mirror knows nothing of.
fn unknown(answers: &Answers, listed: &[ReplicaStatus]) -> Vec<ReplicaStatus> {
    let mut found = Vec::new();
    for ((node, deployment, service), answer) in answers {
        let Ok(state) = answer else { continue };
        for container in &state.containers {
            let is_listed = listed.iter().any(|replica| {
                replica.deployment == *deployment
                    && replica.id == container.id
                    && replica.node_id == Some(*node)
            });
            let Some(running) = container.state.parse().ok().filter(|_| !is_listed) else {
                continue;
            };
            found.push(ReplicaStatus {
                deployment: deployment.clone(),
                service: service.clone(),
                id: container.id.clone(),
                replica: container.replica,
                role: role_of(&container.id, service, container.replica),
                node_id: Some(*node),
                image: Some(container.image.clone()).filter(|image| !image.is_empty()),
                state: running,
                healthy: false,
                restarts: 0,
                pid: container.pid,
                exit_code: None,
                generation: None,
                revision: None,
                started_unix_secs: None,
                cpu_used_milli: None,
                memory_used_bytes: None,
                message: None,
                live: Some("only its node knows of it".into()),
            });
        }
    }
    found
}

/// The middle of `{service}-{role}-{index}`.
fn role_of(id: &str, service: &str, index: u32) -> String {
    let rest = id.strip_prefix(service).and_then(|rest| rest.strip_prefix('-'));
    let role = rest.and_then(|rest| rest.strip_suffix(&format!("-{index}")));
    role.unwrap_or_default().to_owned()
}
