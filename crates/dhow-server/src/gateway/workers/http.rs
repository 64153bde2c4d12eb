//! The protocol as JSON over the API's port, for a client that cannot speak gRPC. The same rules, with a token in a
//! header in place of a certificate.

mod answer;
mod poll;
mod register;
mod status;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use utoipa::OpenApi;

use crate::gateway::node_gateway::NodeGateway;

/// What the API's description says of these routes.
#[derive(OpenApi)]
#[openapi(paths(register::register, poll::poll, status::status))]
pub struct WorkerRoutes;

/// The largest body: a status of a node with some thousand replicas at 300 bytes each is below 1 MiB.
pub const WORKER_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The routes on which workers that speak JSON join and report. The API answers them on the leader.
pub fn worker_routes(gateway: NodeGateway) -> Router {
    Router::new()
        .route("/api/v1/workers/register", post(register::register))
        .route("/api/v1/workers/status", post(status::status))
        .layer(DefaultBodyLimit::max(WORKER_BODY_BYTES_MAX))
        .with_state(gateway)
}

/// The route on which such a worker waits for its work.
pub fn worker_poll_routes(gateway: NodeGateway) -> Router {
    Router::new()
        .route("/api/v1/workers/poll", post(poll::poll))
        .layer(DefaultBodyLimit::max(WORKER_BODY_BYTES_MAX))
        .with_state(gateway)
}
