//! `/replicas`.

use axum::Json;
use axum::extract::State;
use dhow_wire::ReplicaStatus;
use serde::Deserialize;

use super::context::Context;
use super::extract::Query;
use super::problem::Answer;
use crate::services::ReplicaFilter;

#[derive(Deserialize)]
pub(super) struct Filter {
    deployment: Option<String>,
    service: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    live: bool,
}

/// Replicas by deployment, service and slot.
#[utoipa::path(
    get, path = "/api/v1/replicas", tag = "replicas",
    params(
        ("deployment" = Option<String>, Query),
        ("service" = Option<String>, Query),
        ("all" = Option<bool>, Query, description = "Those that have ended and are remembered, too"),
        ("live" = Option<bool>, Query, description = "Asks each node, and tells where it says something else")
    ),
    responses((status = 200, body = Vec<ReplicaStatus>))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(filter): Query<Filter>,
) -> Answer<Json<Vec<ReplicaStatus>>> {
    // An empty value is what a client sends that has nothing to say.
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let is_live = filter.live;
    let filter = ReplicaFilter {
        deployment: said(filter.deployment),
        service: said(filter.service),
        all: filter.all,
    };
    let manager = context.manager();
    Ok(Json(match is_live {
        true => manager.replicas_live(&filter).await?,
        false => manager.replicas(&filter)?,
    }))
}
