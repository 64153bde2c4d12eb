//! `/cluster/worker-ca`: a new generation of the workers' CA. Nothing stops for it: workers take certificates of the
//! new one by themselves, and those of the old one are believed for as long as one may be good for something.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command};
use dhow_wire::ProblemCode;
use dhow_wire::api::WorkerCaRotated;

use super::caller::Caller;
use super::context::Context;
use super::problem::{Answer, ApiProblem};
use crate::net::keys::WORKER_CERT_LIFETIME;

/// Makes a new CA of the workers the one that makes certificates.
#[utoipa::path(
    post, path = "/api/v1/cluster/worker-ca/rotate", tag = "cluster",
    responses((status = 200, body = WorkerCaRotated))
)]
pub(super) async fn rotate(State(context): State<Context>, caller: Caller) -> Answer<Json<WorkerCaRotated>> {
    if context.api.worker_tokens.is_none() {
        let detail = "this cluster has no workers: it has no worker tier";
        return Err(ApiProblem::new(ProblemCode::WrongMode, detail));
    }
    let now_unix_secs = context.wall_unix_secs();
    let life_secs = i64::try_from(WORKER_CERT_LIFETIME.as_secs()).unwrap_or(i64::MAX);
    // The last certificate of the old one is made now; once it has expired it may still be renewed for a while.
    let believed_until_unix_secs = now_unix_secs
        .saturating_add(life_secs)
        .saturating_add(context.api.renew_expired_secs);
    let command = ClusterCommand::RotateWorkerCa {
        now_unix_secs,
        believed_until_unix_secs,
    };
    let applied = context
        .write(Command::Cluster(command), caller.request_id(&[]))
        .await?;
    Ok(Json(WorkerCaRotated {
        state_revision: applied.revision.0,
        generation: context.manager().state().worker_cas.newest(),
        believed_until_unix_secs,
    }))
}
