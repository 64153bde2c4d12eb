//! `/internal`: what members of the cluster ask each other. Nobody else gets here.
//!
//! Not part of the described API: both ends are of this project, and may change together.

mod copies;
mod door;
mod scale;

use std::sync::Arc;

use axum::extract::FromRef;
use axum::routing::{get, post};
use axum::{Json, Router};
use dhow_core::ids::NodeId;
use tokio_util::sync::CancellationToken;

use super::barrier;
use super::context::Context;
use crate::net::node_door::NodeDoor;
use crate::plane::feature_level::{FEATURE_LEVEL_PATH, FeatureLevelAnswer};

pub use copies::{StaticRoutes, static_routes};

/// What a door to this very node stands on; a worker has nothing else.
#[derive(Clone)]
pub(super) struct DoorContext {
    pub door: Arc<dyn NodeDoor>,
    pub node: NodeId,
    /// Open streams end with it.
    pub end: CancellationToken,
}

impl FromRef<Context> for DoorContext {
    fn from_ref(context: &Context) -> Self {
        let manager = context.manager();
        Self {
            door: Arc::clone(manager.door()),
            node: manager.identity().node_id,
            end: context.end.clone(),
        }
    }
}

pub(super) fn routes() -> Router<Context> {
    door_routes()
        .route("/api/v1/internal/scale", post(scale::scale))
        .route("/api/v1/internal/assignments", get(scale::assignments))
        .route(FEATURE_LEVEL_PATH, get(feature_level))
}

/// What the leader alone answers to the other servers.
pub(super) fn leader_routes() -> Router<Context> {
    Router::new().route(barrier::PATH, get(barrier::reached))
}

/// Which level this server knows, for the leader to ask before it raises the cluster's.
async fn feature_level() -> Json<FeatureLevelAnswer> {
    Json(FeatureLevelAnswer::own())
}

/// The door alone, whatever it is part of.
pub(super) fn door_routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    DoorContext: FromRef<S>,
{
    Router::new()
        .route("/api/v1/internal/door/logs", post(door::logs))
        .route("/api/v1/internal/door/exec", post(door::exec))
        .route("/api/v1/internal/door/pulls", get(door::pulls))
        .route("/api/v1/internal/door/net-check", get(door::net_check))
        .route(
            "/api/v1/internal/door/volumes",
            get(door::volumes).delete(door::remove_volume),
        )
        .route(
            "/api/v1/internal/door/volumes/content",
            get(door::backup_volume).put(door::restore_volume),
        )
        .route("/api/v1/internal/services/{service}/state", get(scale::state))
}
