//! `/health` and `/ready`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_wire::ProblemCode;
use dhow_wire::api::HealthDocument;

use super::context::Context;
use super::disk;
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::{NodeDoor, PresentReplica};
use crate::plane::runtime::WriteError;

/// The process answers.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = HealthDocument)))]
pub(super) async fn health(State(context): State<Context>) -> Json<HealthDocument> {
    Json(context.api.cluster.health())
}

/// It takes writes: there is a leader, its data directory is there and has room, and nobody is shutting down.
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, body = HealthDocument)))]
pub(super) async fn ready(State(context): State<Context>) -> Answer<Json<HealthDocument>> {
    if context.end.is_cancelled() {
        return Err(ApiProblem::new(
            ProblemCode::ShuttingDown,
            "the server is shutting down",
        ));
    }
    if context.manager().view().storage().is_gone() {
        return Err(WriteError::StorageGone.into());
    }
    let manager = context.manager();
    let no_leader = manager.view().leadership().leader.is_none();
    let no_leader = no_leader.then(|| "the cluster has no leader at the moment".to_owned());
    let waiting = waiting(&**manager.door(), manager.identity().node_id).await;
    match no_leader
        .into_iter()
        .chain(waiting)
        .reduce(|a, b| format!("{a}; {b}"))
    {
        None => disk::check(context.api.data_dir.as_ref())
            .await
            .map(|()| Json(HealthDocument::ok())),
        Some(why) => Err(ApiProblem::new(ProblemCode::NoLeader, why)),
    }
}

/// What a message about a replica that waits says.
pub(super) const WAITS: &str = "waits until a server has confirmed that it is still this node's";

/// The replicas of a node that wait until a server has confirmed them; nobody where it does not answer.
async fn waiting_replicas(door: &dyn NodeDoor, node: NodeId) -> Vec<ReplicaName> {
    let waiting = own_replicas(door, node).await.into_iter();
    let waiting = waiting.filter(|replica| replica.waits);
    waiting.map(|replica| replica.name).collect()
}

/// What a node has; nothing where it does not answer.
pub(super) async fn own_replicas(door: &dyn NodeDoor, node: NodeId) -> Vec<PresentReplica> {
    // A node that is busy with its disk is not waited for: this is asked by what looks whether the server lives.
    const ANSWER_WITHIN: Duration = Duration::from_secs(1);
    let answer = tokio::time::timeout(ANSWER_WITHIN, door.replicas(node)).await;
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// The same as a sentence; none where nothing waits.
pub(super) async fn waiting(door: &dyn NodeDoor, node: NodeId) -> Option<String> {
    /// Names that a sentence has room for.
    const NAMED_MAX: usize = 5;
    let waiting = waiting_replicas(door, node).await;
    if waiting.is_empty() {
        return None;
    }
    let mut named: Vec<String> = waiting
        .iter()
        .take(NAMED_MAX)
        .map(ReplicaName::to_string)
        .collect();
    if waiting.len() > NAMED_MAX {
        named.push(format!("{} more", waiting.len() - NAMED_MAX));
    }
    Some(format!(
        "this host was started again, and until a server has confirmed what is still node {node}'s these wait: {}",
        named.join(", ")
    ))
}
