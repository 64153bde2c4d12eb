//! `/cluster`.

use axum::Json;
use axum::extract::State;
use dhow_wire::ClusterStatus;

use super::context::Context;

/// The cluster as the node that answers sees it.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "cluster", responses((status = 200, body = ClusterStatus)))]
pub(super) async fn show(State(context): State<Context>) -> Json<ClusterStatus> {
    Json(context.manager().cluster())
}
