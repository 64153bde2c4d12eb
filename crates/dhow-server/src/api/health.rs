//! `/health` and `/ready`.

use axum::Json;
use axum::extract::State;
use dhow_wire::ProblemCode;
use dhow_wire::api::HealthDocument;

use super::context::Context;
use super::disk;
use super::problem::{Answer, ApiProblem};

/// The process answers.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = HealthDocument)))]
pub(super) async fn health(State(context): State<Context>) -> Json<HealthDocument> {
    Json(context.api.cluster.health())
}

/// It takes writes: there is a leader, the disk has room, and nobody is shutting down.
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, body = HealthDocument)))]
pub(super) async fn ready(State(context): State<Context>) -> Answer<Json<HealthDocument>> {
    if context.end.is_cancelled() {
        return Err(ApiProblem::new(
            ProblemCode::ShuttingDown,
            "the server is shutting down",
        ));
    }
    if context.manager().view().leadership().leader.is_none() {
        return Err(ApiProblem::new(
            ProblemCode::NoLeader,
            "the cluster has no leader at the moment",
        ));
    }
    disk::check(context.api.data_dir.as_ref()).await?;
    Ok(Json(HealthDocument::ok()))
}
