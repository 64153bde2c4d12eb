//! What a worker answers: the door to its replicas for servers of its cluster, and on its own socket how it is.
//!
//! Everything else is asked of a server: a worker knows only its own part, and its certificate lets it do nothing for
//! others. Served by the worker's daemon; it must never answer a caller whose certificate is no server's.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use dhow_core::ids::NodeId;
use dhow_wire::ProblemCode;
use dhow_wire::api::HealthDocument;
use tokio_util::sync::CancellationToken;

use super::access::Peer;
use super::internal::{DoorContext, door_routes};
use super::problem::{Answer, ApiProblem};
use super::serve::{Bound, serve_router};
use crate::clock::Clock;
use crate::identity::Identity;
use crate::node_door::NodeDoor;

/// The door, below the one path that servers ask at.
const DOOR: &str = "/api/v1/internal/";

/// How the worker stands with its cluster: what is wrong, where something is.
pub type WorkerStanding = dyn Fn() -> Option<String> + Send + Sync;

/// What a worker's API stands on.
#[derive(Clone)]
pub struct WorkerApi {
    pub node: NodeId,
    pub door: Arc<dyn NodeDoor>,
    pub standing: Arc<WorkerStanding>,
    /// Where its servers are, for those who ask the wrong one.
    pub servers: Arc<str>,
}

/// Serves until `cancel`, as the API of a server does.
pub async fn serve_worker(api: WorkerApi, clock: Arc<dyn Clock>, bound: Bound, cancel: CancellationToken) {
    let router = router(api, cancel.clone());
    serve_router(router, clock, bound, cancel).await;
}

fn router(api: WorkerApi, end: CancellationToken) -> Router {
    let door = DoorContext {
        door: Arc::clone(&api.door),
        node: api.node,
        end,
    };
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .fallback(elsewhere)
        .with_state(api)
        .merge(door_routes().with_state(door))
        .layer(middleware::from_fn(guard))
}

/// The process answers.
async fn health() -> Json<HealthDocument> {
    Json(HealthDocument::ok())
}

/// It has a session with the leader.
async fn ready(State(api): State<WorkerApi>) -> Answer<Json<HealthDocument>> {
    match (api.standing)() {
        None => Ok(Json(HealthDocument::ok())),
        Some(why) => Err(ApiProblem::new(ProblemCode::NoLeader, why)),
    }
}

async fn elsewhere(State(api): State<WorkerApi>) -> ApiProblem {
    ApiProblem::new(
        ProblemCode::WrongMode,
        format!(
            "node {} is a worker, which knows only its own part: ask a server of the cluster with --host or DHOW_HOST; \
             workers connect to {}",
            api.node, api.servers
        ),
    )
}

/// Servers get to the door, people on this host to the rest.
async fn guard(request: Request, next: Next) -> Response {
    let is_door = request.uri().path().starts_with(DOOR);
    let is_server = matches!(
        request.extensions().get::<Peer>(),
        Some(Peer::Tls {
            identity: Some(Identity::Member(_)),
            ..
        })
    );
    if is_door && !is_server {
        let detail = "only servers of the cluster may ask this, with their certificates";
        return ApiProblem::new(ProblemCode::Forbidden, detail).into_response();
    }
    next.run(request).await
}
