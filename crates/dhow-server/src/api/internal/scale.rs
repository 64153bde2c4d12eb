//! Scale requests of the leader to this node, and what this node says about its replicas.

use axum::Json;
use axum::extract::{Request, State};
use dhow_core::ids::ReplicaName;
use dhow_core::replica::ReplicaState;
use dhow_wire::names::{deployment_on_wire, service_key};
use dhow_wire::{ClusterContainerSummary, InternalScaleRequest, NodeServiceState, ProblemCode};
use serde::{Deserialize, Serialize};

use crate::api::context::Context;
use crate::api::extract::{self, Path, Query};
use crate::api::internal::DoorContext;
use crate::api::limits::SCALE_BYTES_MAX;
use crate::api::problem::{Answer, ApiProblem};
use crate::node_door::NodeReplica;
use crate::scale::{HeldListing, ScaleDesk, ScaleRefused};

/// What a request that was taken is answered with: it is written down, and the agent works on it.
#[derive(Debug, Serialize)]
pub(in crate::api) struct Taken {
    node_id: u64,
    service: String,
    replicas: u64,
}

/// Makes this node have just these replicas of a service.
pub(in crate::api) async fn scale(State(context): State<Context>, request: Request) -> Answer<Json<Taken>> {
    let desk = desk(&context)?;
    extract::check_media_type(request.headers(), &["application/json"])?;
    let bytes = extract::read(request, SCALE_BYTES_MAX).await?;
    let request: InternalScaleRequest = extract::parse(&bytes)?;
    let asked = request.effective_assignments();
    let asked = asked.map_err(|error| ApiProblem::invalid(error.to_string()))?;
    let replicas = asked
        .iter()
        .map(|assignment| assignment.indices.len() as u64)
        .sum();
    let service = request.service.clone();
    desk.take(request).await.map_err(problem)?;
    Ok(Json(Taken {
        node_id: context.manager().identity().node_id.0,
        service,
        replicas,
    }))
}

/// What this node has been told, for the leader to compare.
pub(in crate::api) async fn assignments(State(context): State<Context>) -> Answer<Json<HeldListing>> {
    Ok(Json(desk(&context)?.listing()))
}

fn desk(context: &Context) -> Answer<&ScaleDesk> {
    context.api.cluster.desk().ok_or_else(|| {
        let detail = "only nodes of a static cluster are told what to run this way; in this mode their session \
                      with the leader says it";
        ApiProblem::new(ProblemCode::WrongMode, detail)
    })
}

fn problem(refused: ScaleRefused) -> ApiProblem {
    let detail = refused.to_string();
    match refused {
        ScaleRefused::OldEpoch { .. } | ScaleRefused::NoSpec { .. } => {
            ApiProblem::new(ProblemCode::Refused, detail)
        }
        ScaleRefused::NoGeneration { .. }
        | ScaleRefused::Names(_)
        | ScaleRefused::Role(_)
        | ScaleRefused::TooMany(_) => ApiProblem::invalid(detail),
        ScaleRefused::Disk { .. } => ApiProblem::new(ProblemCode::Internal, detail),
    }
}

#[derive(Debug, Deserialize)]
pub(in crate::api) struct StateQuery {
    deployment: Option<String>,
}

/// What this node runs of a service, as the node itself knows it; in every mode.
pub(in crate::api) async fn state(
    State(context): State<DoorContext>,
    Path(service): Path<String>,
    Query(query): Query<StateQuery>,
) -> Answer<Json<NodeServiceState>> {
    let key = service_key(query.deployment.as_deref(), &service);
    let key = key.map_err(|error| ApiProblem::invalid(error.to_string()))?;
    let own = context.node;
    let present = context.door.replicas(own).await?;
    let own_of = present
        .into_iter()
        .filter(|replica| replica.name.service_key() == key);
    Ok(Json(summed(own.0, own_of.collect())))
}

fn summed(node_id: u64, replicas: Vec<NodeReplica>) -> NodeServiceState {
    let runs = |replica: &&NodeReplica| replica.machine.state == ReplicaState::Running;
    let running = replicas.iter().filter(runs);
    NodeServiceState {
        node_id,
        running: u32::try_from(running.clone().count()).unwrap_or(u32::MAX),
        healthy: running.clone().all(|replica| replica.machine.healthy),
        containers: replicas.iter().map(|replica| summary(node_id, replica)).collect(),
    }
}

fn summary(node_id: u64, replica: &NodeReplica) -> ClusterContainerSummary {
    let name: &ReplicaName = &replica.name;
    ClusterContainerSummary {
        node_id,
        id: name.id(),
        service: name.service.to_string(),
        replica: name.index,
        image: replica.image.clone().unwrap_or_default(),
        state: replica.machine.state.word().to_owned(),
        pid: replica.machine.pid,
        overlay_ip: None,
        deployment: deployment_on_wire(&name.deployment),
    }
}
