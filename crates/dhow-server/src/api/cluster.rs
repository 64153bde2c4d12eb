//! `/cluster`: what it is, who its servers are, and its backup.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dhow_core::command::{ClusterCommand, Command, Refused};
use dhow_core::ids::NodeId;
use dhow_core::state::NodeRole;
use dhow_wire::api::{MemberAddRequest, WriteDone};
use dhow_wire::backup::write_backup;
use dhow_wire::{ClusterMember, ClusterModeName, ClusterStatus, Problem, ProblemCode};
use serde::Deserialize;

use super::context::Context;
use super::extract::{self, Path, Query};
use super::nodes::Removal;
use super::problem::{Answer, ApiProblem};
use crate::plane::cluster::Newcomer;
use crate::plane::services::past_window;

/// The query of `GET /cluster`.
#[derive(Deserialize)]
pub(super) struct Show {
    #[serde(default)]
    state_hash: bool,
}

/// The cluster as the node that answers sees it.
#[utoipa::path(
    get, path = "/api/v1/cluster", tag = "cluster",
    params(("state_hash" = Option<bool>, Query, description = "Whether to hash the state, which takes a while")),
    responses((status = 200, body = ClusterStatus))
)]
pub(super) async fn show(
    State(context): State<Context>,
    Query(show): Query<Show>,
) -> Answer<Json<ClusterStatus>> {
    let manager = context.manager().clone();
    let status = match show.state_hash {
        true => tokio::task::spawn_blocking(move || manager.cluster_with_hash())
            .await
            .map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?,
        false => manager.cluster(),
    };
    let cluster = &context.api.cluster;
    let mut members = cluster.members();
    if members.len() == 1 {
        members.clear();
    }
    let members = members.iter().map(|member| ClusterMember {
        node_id: member.node.0,
        api_addr: member
            .api_addr
            .map_or_else(|| "off".to_owned(), |addr| addr.to_string()),
        raft_addr: member.raft_addr.map(|addr| addr.to_string()),
        voter: member.is_voter,
        reachable: member.is_reachable,
    });
    Ok(Json(ClusterStatus {
        members: members.collect(),
        notices: cluster.notices(),
        past: context.manager().view().past().map(past_window),
        ..status
    }))
}

fn done(context: &Context) -> Json<WriteDone> {
    Json(WriteDone {
        state_revision: context.manager().state().revision.0,
    })
}

/// Takes a server in that already runs. Answers when it has caught up and has a vote.
#[utoipa::path(
    post, path = "/api/v1/cluster/members", tag = "cluster", request_body = MemberAddRequest,
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn add(
    State(context): State<Context>,
    body: extract::Json<MemberAddRequest>,
) -> Answer<Json<WriteDone>> {
    let node = NodeId(body.value.node_id);
    if !node.is_in_range() {
        return Err(ApiProblem::invalid(Refused::NodeIdRange(node).to_string()));
    }
    keep_id(&context, node).await?;
    let newcomer = Newcomer {
        node,
        raft_addr: body.value.raft_addr,
        api_addr: body.value.api_addr,
    };
    let added = context.api.cluster.add(newcomer).await;
    added.map_err(Problem::from)?;
    Ok(done(&context))
}

/// An id names one node for good: a worker's, or one that was removed, is nobody else's.
async fn keep_id(context: &Context, node: NodeId) -> Answer<()> {
    match context.api.cluster.mode() {
        ClusterModeName::Raft | ClusterModeName::WorkerTier => {}
        // These say themselves that they take nobody in.
        ClusterModeName::SingleNode | ClusterModeName::Static => return Ok(()),
    }
    let state = context.manager().state();
    if state.keeps_node_ids() {
        let keep = ClusterCommand::KeepServerIds { nodes: vec![node] };
        context.write(Command::Cluster(keep), None).await?;
        return Ok(());
    }
    let role = state.node(node).map(|node| node.info.role);
    match role == Some(NodeRole::Worker) {
        true => Err(ApiProblem::new(
            ProblemCode::Refused,
            Refused::NodeRole(node).to_string(),
        )),
        false => Ok(()),
    }
}

/// Takes a server's vote away. Its replicas stay until the node is drained or removed.
#[utoipa::path(
    delete, path = "/api/v1/cluster/members/{id}", tag = "cluster",
    params(
        ("id" = u64, Path),
        ("force" = Option<bool>, Query, description = "Also where too few servers would be left to agree")
    ),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(id): Path<u64>,
    Query(removal): Query<Removal>,
) -> Answer<Json<WriteDone>> {
    let removed = context.api.cluster.remove(NodeId(id), removal.force).await;
    removed.map_err(Problem::from)?;
    Ok(done(&context))
}

/// The whole state of the cluster, as `dhow cluster restore` takes it. Secrets are sealed in it.
#[utoipa::path(
    get, path = "/api/v1/cluster/backup", tag = "cluster",
    responses((status = 200, content_type = "application/octet-stream", body = super::openapi::BackupFile))
)]
pub(super) async fn backup(State(context): State<Context>) -> Answer<Response> {
    let state = context.manager().state();
    // A large state takes a while to write.
    let written = tokio::task::spawn_blocking(move || write_backup(&state)).await;
    let failed = |why: String| ApiProblem::new(ProblemCode::Internal, why);
    let bytes = written.map_err(|error| failed(error.to_string()))?;
    let bytes: Bytes = bytes.map_err(|error| failed(error.to_string()))?.into();
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
