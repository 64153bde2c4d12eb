//! `/replicas`.

use axum::Json;
use axum::extract::State;
use dhow_wire::{ReplicaStateName, ReplicaStatus};
use serde::Deserialize;

use super::context::Context;
use super::extract::Query;
use super::health::{WAITS, waiting_replicas};
use super::problem::Answer;
use crate::plane::services::ReplicaFilter;

/// The query of `/replicas`.
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
    let mut replicas = match is_live {
        true => manager.replicas_live(&filter).await?,
        false => manager.replicas(&filter)?,
    };
    let own = manager.identity().node_id;
    let waiting = waiting_replicas(&**manager.door(), own).await;
    for name in waiting {
        let is_it = |replica: &&mut ReplicaStatus| {
            replica.node_id == Some(own.0)
                && replica.deployment == name.deployment.as_str()
                && replica.id == name.id()
                && replica
                    .generation
                    .is_none_or(|generation| generation == name.generation.0)
        };
        if let Some(replica) = replicas.iter_mut().find(is_it) {
            // What the cluster last knew of it was before the host was started again.
            (replica.state, replica.healthy, replica.pid) = (ReplicaStateName::Pending, false, None);
            replica.message = Some(WAITS.to_owned());
        }
    }
    Ok(Json(replicas))
}
