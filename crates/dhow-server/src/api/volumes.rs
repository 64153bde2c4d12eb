//! `/volumes`: what volumes there are on all nodes, their removal, and archives of what is in them.
//!
//! Nodes are asked through the door to them; who uses a volume is read from the state. Which node keeps a volume is
//! written into the log by the leader; content goes through whichever server was asked.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::ids::{DeploymentName, NodeId};
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::State as ClusterState;
use dhow_wire::ProblemCode;
use dhow_wire::api::{
    SilentNode, VolumeHome, VolumeHomeRequest, VolumeInfo, VolumeListing, VolumeRemoved, WriteDone,
};
use futures_util::{StreamExt, TryStreamExt};
use serde::Deserialize;

use super::audit::About;
use super::caller::Caller;
use super::context::Context;
use super::deployments::known_name;
use super::extract::{OptionalJson, Path, Query};
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::{DoorError, NodeVolume, VolumeBytes, VolumeName};
use crate::plane::services::volumes::{kept_on, usage};

/// Nodes that are asked at a time.
const NODES_AT_ONCE: usize = 64;
/// A node counts the files of its volumes, at a million a second.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a volume is sent as.
const TAR_MEDIA_TYPE: &str = "application/x-tar";

/// Which volumes are asked for.
#[derive(Deserialize)]
pub(super) struct Which {
    deployment: Option<String>,
    name: Option<String>,
    node: Option<u64>,
}

/// Of which node one volume is.
#[derive(Deserialize)]
pub(super) struct OnNode {
    node: Option<u64>,
    /// Only where no kept revision names it.
    #[serde(default)]
    unnamed: bool,
}

/// The volumes of every node, with who uses them.
#[utoipa::path(
    get, path = "/api/v1/volumes", tag = "volumes",
    params(
        ("deployment" = Option<String>, Query, description = "Of this deployment alone"),
        ("name" = Option<String>, Query, description = "Those of this name alone"),
        ("node" = Option<u64>, Query, description = "On this node alone")
    ),
    responses((status = 200, body = VolumeListing))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(which): Query<Which>,
) -> Answer<Json<VolumeListing>> {
    Ok(Json(listing(&context, &which).await))
}

async fn listing(context: &Context, which: &Which) -> VolumeListing {
    let state = context.manager().state();
    let nodes: Vec<(NodeId, bool)> = state
        .nodes
        .values()
        .filter(|node| which.node.is_none_or(|only| only == node.id.0))
        .map(|node| (node.id, node.is_ready()))
        .collect();
    let asked = nodes.into_iter().map(|(node, is_ready)| async move {
        let found = match is_ready {
            true => volumes_of(context, node).await,
            false => Err("it is unreachable".to_owned()),
        };
        (node, found)
    });
    let mut answers = futures_util::stream::iter(asked).buffer_unordered(NODES_AT_ONCE);
    let mut listing = VolumeListing::default();
    while let Some((node, found)) = answers.next().await {
        match found {
            Ok(found) => listing.volumes.extend(
                found
                    .into_iter()
                    .filter(|found| wanted(which, &found.volume))
                    .map(|found| info(&state, node, found)),
            ),
            Err(why) => listing.silent.push(SilentNode { node_id: node.0, why }),
        }
    }
    let key = |volume: &VolumeInfo| (volume.deployment.clone(), volume.name.clone(), volume.node_id);
    listing.volumes.sort_by_key(key);
    listing.silent.sort_by_key(|silent| silent.node_id);
    listing
}

async fn volumes_of(context: &Context, node: NodeId) -> Result<Vec<NodeVolume>, String> {
    let asked = context.manager().door().volumes(node);
    match tokio::time::timeout(NODE_TIMEOUT, asked).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(DoorError::Unreachable { why, .. })) => Err(why),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it has not answered within {} s", NODE_TIMEOUT.as_secs())),
    }
}

fn wanted(which: &Which, volume: &VolumeName) -> bool {
    let is = |asked: &Option<String>, found: &str| asked.as_ref().is_none_or(|asked| asked == found);
    is(&which.deployment, &volume.deployment) && is(&which.name, &volume.name)
}

fn info(state: &ClusterState, node: NodeId, found: NodeVolume) -> VolumeInfo {
    let VolumeName { deployment, name } = found.volume;
    let usage = usage(state, &deployment, &name, Some(node));
    VolumeInfo {
        unused_since_unix_secs: found.used_unix_secs.filter(|_| usage.replicas.is_empty()),
        services: usage.services,
        replicas: usage.replicas,
        is_named: usage.is_named,
        node_id: node.0,
        used_bytes: found.used_bytes,
        is_larger: found.is_larger,
        limit_bytes: found.limit_bytes,
        created_unix_secs: found.created_unix_secs,
        deployment,
        name,
    }
}

/// The one volume of this name, on the node that is named or on the only one that has it.
async fn one(context: &Context, (deployment, name): (&str, &str), node: Option<u64>) -> Answer<VolumeInfo> {
    let which = Which {
        deployment: Some(deployment.to_owned()),
        name: Some(name.to_owned()),
        node,
    };
    let VolumeListing { mut volumes, silent } = listing(context, &which).await;
    let unheard = match silent.first() {
        Some(silent) => format!("; node {} was not heard: {}", silent.node_id, silent.why),
        None => String::new(),
    };
    match volumes.len() {
        1 => Ok(volumes.remove(0)),
        0 => {
            let place = node.map_or_else(|| "on any node".to_owned(), |node| format!("on node {node}"));
            let detail = format!("there is no volume `{deployment}/{name}` {place}{unheard}");
            Err(ApiProblem::not_found(detail))
        }
        _ => {
            let nodes: Vec<String> = volumes.iter().map(|found| found.node_id.to_string()).collect();
            Err(ApiProblem::invalid(format!(
                "several nodes have a volume `{deployment}/{name}`: say which with `node`, one of {}",
                nodes.join(", ")
            )))
        }
    }
}

fn refused(detail: String) -> ApiProblem {
    ApiProblem::new(ProblemCode::Refused, detail)
}

/// Who uses it, in the words of a refusal.
fn check_unused(state: &ClusterState, (deployment, name): (&str, &str), node: NodeId) -> Answer<()> {
    let replicas = usage(state, deployment, name, Some(node)).replicas;
    match replicas.as_slice() {
        [] => Ok(()),
        used => Err(refused(format!(
            "`{deployment}/{name}` is used on node {node} by {}: stop its services first, by `dhow stop`",
            used.join(", ")
        ))),
    }
}

/// Removes a volume that no replica uses, with all that is in it.
#[utoipa::path(
    delete, path = "/api/v1/volumes/{deployment}/{name}", tag = "volumes",
    params(
        ("deployment" = String, Path), ("name" = String, Path),
        ("node" = Option<u64>, Query, description = "On this node; the only one that has it where this is absent"),
        ("unnamed" = Option<bool>, Query, description = "Only where no present or kept revision names it")
    ),
    responses((status = 200, body = VolumeRemoved))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path((deployment, name)): Path<(String, String)>,
    Query(on): Query<OnNode>,
    caller: Caller,
) -> Answer<Json<VolumeRemoved>> {
    let found = one(&context, (&deployment, &name), on.node).await?;
    let node = NodeId(found.node_id);
    if on.unnamed && found.is_named {
        return Err(refused(format!(
            "a present or kept revision of `{deployment}` names the volume `{name}`"
        )));
    }
    check_unused(&context.manager().state(), (&deployment, &name), node)?;
    let volume = VolumeName {
        deployment: deployment.clone(),
        name: name.clone(),
    };
    context.manager().door().remove_volume(node, volume).await?;
    // Its services may go elsewhere from now on.
    let state = context.manager().state();
    let knows = state.feature_level >= DeploymentSpec::VOLUMES_SINCE;
    if knows && state.deployment(&known_name(&deployment)?).is_some() {
        bind(&context, &caller, (&deployment, &name), node, false).await?;
    }
    Ok(Json(VolumeRemoved {
        node_id: node.0,
        freed_bytes: found.used_bytes,
    }))
}

async fn bind(
    context: &Context,
    caller: &Caller,
    (deployment, name): (&str, &str),
    node: NodeId,
    kept: bool,
) -> Answer<WriteDone> {
    let command = DeploymentCommand::BindVolume {
        deployment: known_name(deployment)?,
        volume: name.into(),
        node,
        kept,
    };
    let applied = context
        .write(Command::Deployment(command), caller.request_id(name.as_bytes()))
        .await?;
    Ok(WriteDone {
        state_revision: applied.revision.0,
    })
}

/// Says which node keeps a volume, before its content is put there. Services that mount it start there from then on.
#[utoipa::path(
    post, path = "/api/v1/volumes/{deployment}/{name}/home", tag = "volumes",
    params(("deployment" = String, Path), ("name" = String, Path)),
    request_body = Option<VolumeHomeRequest>, responses((status = 200, body = VolumeHome))
)]
pub(super) async fn home(
    State(context): State<Context>,
    Path((deployment, name)): Path<(String, String)>,
    caller: Caller,
    body: OptionalJson<VolumeHomeRequest>,
) -> Answer<Json<VolumeHome>> {
    let state = context.manager().state();
    let known = known_name(&deployment)?;
    if usage(&state, &deployment, &name, None).services.is_empty() {
        return Err(ApiProblem::not_found(format!(
            "no service of `{deployment}` mounts a volume `{name}`: deploy it first, scaled to 0"
        )));
    }
    let node = chosen_home(&context, &state, (&known, &name), body.value.node_id).await?;
    check_unused(&state, (&deployment, &name), node)?;
    bind(&context, &caller, (&deployment, &name), node, true).await?;
    Ok(Json(VolumeHome { node_id: node.0 }))
}

async fn chosen_home(
    context: &Context,
    state: &ClusterState,
    (deployment, name): (&DeploymentName, &str),
    asked: Option<u64>,
) -> Answer<NodeId> {
    let kept: BTreeSet<NodeId> = kept_on(state, deployment, name);
    if let Some(node) = asked.map(NodeId) {
        let is_shared = !kept.is_empty() && !kept.contains(&node);
        if is_shared && usage(state, deployment.as_str(), name, None).services.len() > 1 {
            let nodes: Vec<String> = kept.iter().map(ToString::to_string).collect();
            return Err(refused(format!(
                "services share `{deployment}/{name}` on node {}: remove it there first",
                nodes.join(", ")
            )));
        }
        return match state.node(node) {
            Some(_) => Ok(node),
            None => Err(ApiProblem::not_found(format!("there is no node {node}"))),
        };
    }
    let which = Which {
        deployment: Some(deployment.to_string()),
        name: Some(name.to_owned()),
        node: None,
    };
    let candidates = match kept.is_empty() {
        false => kept,
        true => {
            let found = listing(context, &which).await.volumes;
            found.iter().map(|found| NodeId(found.node_id)).collect()
        }
    };
    let mut ready = state.nodes.values().filter(|node| node.is_open());
    match (candidates.len(), candidates.first(), ready.next(), ready.next()) {
        (1, Some(only), _, _) => Ok(*only),
        // Nobody has it, and there is one place for it.
        (0, _, Some(only), None) => Ok(only.id),
        (0, ..) => Err(ApiProblem::invalid(format!(
            "no node keeps `{deployment}/{name}` yet: say with `node_id` which is to"
        ))),
        _ => {
            let nodes: Vec<String> = candidates.iter().map(ToString::to_string).collect();
            Err(ApiProblem::invalid(format!(
                "several nodes keep a volume `{deployment}/{name}`: say which with `node_id`, one of {}",
                nodes.join(", ")
            )))
        }
    }
}

/// What is in a volume, as a tar stream. A volume that is in use is taken as each file is when its turn comes. A stream
/// that is not whole lacks the archive's end mark.
#[utoipa::path(
    get, path = "/api/v1/volumes/{deployment}/{name}/content", tag = "volumes",
    params(
        ("deployment" = String, Path), ("name" = String, Path),
        ("node" = Option<u64>, Query, description = "On this node; the only one that has it where this is absent")
    ),
    responses((status = 200, content_type = "application/x-tar", body = super::openapi::BackupFile))
)]
pub(super) async fn backup(
    State(context): State<Context>,
    Path((deployment, name)): Path<(String, String)>,
    Query(on): Query<OnNode>,
) -> Answer<Response> {
    let found = one(&context, (&deployment, &name), on.node).await?;
    let about = About(format!("from node {}", found.node_id));
    let volume = VolumeName { deployment, name };
    let bytes = context
        .manager()
        .door()
        .backup_volume(NodeId(found.node_id), volume)
        .await?;
    let mut response = tar_answer(bytes);
    response.extensions_mut().insert(about);
    Ok(response)
}

/// Puts a tar stream in the place of what a volume has, whole or not at all. Refused while a replica uses it.
#[utoipa::path(
    put, path = "/api/v1/volumes/{deployment}/{name}/content", tag = "volumes",
    params(
        ("deployment" = String, Path), ("name" = String, Path),
        ("node" = u64, Query, description = "The node that keeps it, as `home` answers")
    ),
    request_body(content = super::openapi::BackupFile, content_type = "application/x-tar"),
    responses((status = 200, body = VolumeHome))
)]
pub(super) async fn restore(
    State(context): State<Context>,
    Path((deployment, name)): Path<(String, String)>,
    Query(on): Query<OnNode>,
    request: Request,
) -> Answer<Response> {
    let node = on.node.map(NodeId);
    let node = node.ok_or_else(|| ApiProblem::bad_request("`node` says which node keeps it"))?;
    known_name(&deployment)?;
    check_unused(&context.manager().state(), (&deployment, &name), node)?;
    let volume = VolumeName { deployment, name };
    let bytes = tar_body(request.into_body());
    context
        .manager()
        .door()
        .restore_volume(node, volume, bytes)
        .await?;
    let mut response = Json(VolumeHome { node_id: node.0 }).into_response();
    response.extensions_mut().insert(About(format!("on node {node}")));
    Ok(response)
}

/// An archive as an answer. What breaks off breaks the connection.
pub(super) fn tar_answer(bytes: VolumeBytes) -> Response {
    let body = Body::from_stream(bytes);
    ([(header::CONTENT_TYPE, TAR_MEDIA_TYPE)], body).into_response()
}

/// An archive that comes in.
pub(super) fn tar_body(body: Body) -> VolumeBytes {
    let broken = |error: axum::Error| DoorError::Failed(format!("the archive broke off: {error}"));
    body.into_data_stream()
        .map_ok(Bytes::from)
        .map_err(broken)
        .boxed()
}
