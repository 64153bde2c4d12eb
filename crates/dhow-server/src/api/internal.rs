//! `/internal`: what members of the cluster ask each other. Nobody else gets here.
//!
//! Not part of the described API: both ends are of this project, and may change together.

mod door;
mod scale;

use axum::Router;
use axum::routing::{get, post};

use super::context::Context;

pub(super) fn routes() -> Router<Context> {
    Router::new()
        .route("/api/v1/internal/door/logs", post(door::logs))
        .route("/api/v1/internal/door/exec", post(door::exec))
        .route("/api/v1/internal/door/pulls", get(door::pulls))
        .route("/api/v1/internal/scale", post(scale::scale))
        .route("/api/v1/internal/assignments", get(scale::assignments))
        .route("/api/v1/internal/services/{service}/state", get(scale::state))
}
