//! Scale requests of the leader to this node, and what this node says about its replicas.

use axum::Json;
use axum::extract::{Request, State};
use dhow_wire::names::service_key;
use dhow_wire::{InternalScaleRequest, NodeServiceState, ProblemCode};
use serde::{Deserialize, Serialize};

use crate::api::context::Context;
use crate::api::extract::{self, Path, Query};
use crate::api::internal::DoorContext;
use crate::api::limits::SCALE_BYTES_MAX;
use crate::api::problem::{Answer, ApiProblem};
use crate::plane::scale::{HeldListing, ScaleDesk, ScaleRefused};

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
        ScaleRefused::OldEpoch { .. } | ScaleRefused::FarEpoch { .. } | ScaleRefused::NoSpec { .. } => {
            ApiProblem::new(ProblemCode::Refused, detail)
        }
        ScaleRefused::NoGeneration { .. }
        | ScaleRefused::Names(_)
        | ScaleRefused::Role(_)
        | ScaleRefused::TooMany(_) => ApiProblem::invalid(detail),
        ScaleRefused::StorageGone => ApiProblem::new(ProblemCode::StorageGone, detail),
        ScaleRefused::Disk { .. } => ApiProblem::new(ProblemCode::Internal, detail),
    }
}

/// The query of a service's state on this node.
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
    Ok(Json(context.door.service_state(context.node, key).await?))
}
