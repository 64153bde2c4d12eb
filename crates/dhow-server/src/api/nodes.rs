//! `/nodes`.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::spec::check::{FieldPath, label_finding};
use dhow_core::state::Drain;
use dhow_wire::api::{NodeDrainRequest, NodeLabelRequest, WriteDone};
use dhow_wire::{ClusterModeName, NodeStatus, ProblemCode};
use serde::Deserialize;

use super::caller::Caller;
use super::context::Context;
use super::extract::{self, OptionalJson, Path, Query};
use super::limits::LABELS_MAX;
use super::problem::{Answer, ApiProblem};

/// The nodes of the cluster, by id.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", responses((status = 200, body = Vec<NodeStatus>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<NodeStatus>> {
    Json(context.manager().nodes())
}

/// One node.
#[utoipa::path(
    get, path = "/api/v1/nodes/{id}", tag = "nodes", params(("id" = u64, Path)),
    responses((status = 200, body = NodeStatus))
)]
pub(super) async fn show(State(context): State<Context>, Path(id): Path<u64>) -> Answer<Json<NodeStatus>> {
    Ok(Json(context.manager().node(NodeId(id))?))
}

async fn write(
    context: &Context,
    caller: &Caller,
    body: &[u8],
    command: NodeCommand,
) -> Answer<Json<WriteDone>> {
    let applied = context
        .write(Command::Node(command), caller.request_id(body))
        .await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

/// Moves its replicas away and gives it no new ones.
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/drain", tag = "nodes", params(("id" = u64, Path)),
    request_body = Option<NodeDrainRequest>, responses((status = 200, body = WriteDone))
)]
pub(super) async fn drain(
    State(context): State<Context>,
    Path(id): Path<u64>,
    caller: Caller,
    body: OptionalJson<NodeDrainRequest>,
) -> Answer<Json<WriteDone>> {
    let NodeDrainRequest {
        shutdown,
        deadline_secs,
        ignore_system,
    } = body.value;
    if shutdown && ignore_system {
        return Err(ApiProblem::invalid(
            "a node whose `system` replicas stay does not end: leave out `shutdown` or `ignore_system`",
        ));
    }
    let node = NodeId(id);
    let command = match deadline_secs.is_some() || ignore_system {
        // What every version knows.
        false => NodeCommand::SetDrain {
            node,
            drain: Drain::Draining { shutdown },
        },
        true => NodeCommand::Drain {
            node,
            shutdown,
            deadline_ms: deadline_secs.map(|secs| secs.saturating_mul(1_000)),
            ignore_system,
        },
    };
    write(&context, &caller, &body.bytes, command).await
}

/// Lets it have replicas again.
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/undrain", tag = "nodes", params(("id" = u64, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn undrain(
    State(context): State<Context>,
    Path(id): Path<u64>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let command = NodeCommand::SetDrain {
        node: NodeId(id),
        drain: Drain::No,
    };
    write(&context, &caller, &[], command).await
}

/// Sets and unsets labels; what people set wins over the node's own.
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/labels", tag = "nodes", params(("id" = u64, Path)),
    request_body = NodeLabelRequest, responses((status = 200, body = WriteDone))
)]
pub(super) async fn label(
    State(context): State<Context>,
    Path(id): Path<u64>,
    caller: Caller,
    body: extract::Json<NodeLabelRequest>,
) -> Answer<Json<WriteDone>> {
    let NodeLabelRequest { set, unset } = body.value;
    if set.len() + unset.len() > LABELS_MAX {
        return Err(ApiProblem::invalid(format!(
            "one request changes at most {LABELS_MAX} labels"
        )));
    }
    let labels = FieldPath::of("set");
    let mut findings = set
        .iter()
        .filter_map(|(key, value)| label_finding(&labels, key, value));
    if let Some(finding) = findings.next() {
        return Err(ApiProblem::invalid(finding.message.to_string()));
    }
    let node = NodeId(id);
    write(
        &context,
        &caller,
        &body.bytes,
        NodeCommand::Label { node, set, unset },
    )
    .await
}

/// A server that takes part in consensus would be back at once, and then without its id.
fn check_no_member(context: &Context, node: NodeId) -> Answer<()> {
    let cluster = &context.api.cluster;
    let has_votes = match cluster.mode() {
        ClusterModeName::Raft | ClusterModeName::WorkerTier => true,
        ClusterModeName::SingleNode | ClusterModeName::Static => false,
    };
    let is_member = has_votes && cluster.members().iter().any(|member| member.node == node);
    match is_member {
        false => Ok(()),
        true => Err(ApiProblem::new(
            ProblemCode::Refused,
            format!(
                "node {node} is a server that the cluster counts on: take its vote away first with \
                 `dhow cluster remove {node}`"
            ),
        )),
    }
}

/// The query of the removal of a node, or of a server's vote.
#[derive(Deserialize)]
pub(super) struct Removal {
    #[serde(default)]
    pub(super) force: bool,
}

/// Forgets a node that has no replicas; its id is not given again.
#[utoipa::path(
    delete, path = "/api/v1/nodes/{id}", tag = "nodes",
    params(
        ("id" = u64, Path),
        ("force" = Option<bool>, Query, description = "Also one that has: they are given up and placed elsewhere")
    ),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(id): Path<u64>,
    Query(removal): Query<Removal>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let node = NodeId(id);
    check_no_member(&context, node)?;
    if removal.force
        && context
            .manager()
            .state()
            .node(node)
            .is_some_and(|node| node.is_ready())
    {
        // Its own key would be taken for the removal's.
        let lost = Command::Node(NodeCommand::Lost { node });
        context.write(lost, None).await?;
    }
    let done = write(&context, &caller, &[], NodeCommand::Remove { node }).await?;
    until_all_servers_know(&context).await;
    Ok(done)
}

/// Any server may have the session of a node: what was written before counts for it once that server has it, too.
async fn until_all_servers_know(context: &Context) {
    let (view, cluster) = (context.manager().view(), &context.api.cluster);
    let own = cluster.node_id();
    let others: Vec<NodeId> = cluster
        .members()
        .into_iter()
        .map(|member| member.node)
        .filter(|node| *node != own)
        .collect();
    let holders = view.observed().holders();
    holders
        .until(&others, view.applied_index(), context.manager().clock().as_ref())
        .await;
}
