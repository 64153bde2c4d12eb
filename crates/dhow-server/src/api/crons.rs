//! `/crons`: schedules, when they come next, and their runs.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{Command, DeploymentCommand, Outcome};
use dhow_wire::ProblemCode;
use dhow_wire::api::{CronStatus, RunBegun, RunRequest};
use serde::Deserialize;

use super::caller::Caller;
use super::context::Context;
use super::deployments::{known_name, known_service};
use super::extract::{self, Path, Query};
use super::limits::CRON_NEXT_MAX;
use super::problem::{Answer, ApiProblem};

/// The query of `/crons`.
#[derive(Deserialize)]
pub(super) struct Params {
    deployment: Option<String>,
    service: Option<String>,
    next: Option<usize>,
}

/// Schedules with their runs, by deployment and service.
#[utoipa::path(
    get, path = "/api/v1/crons", tag = "deployments",
    params(
        ("deployment" = Option<String>, Query, description = "Of this deployment alone"),
        ("service" = Option<String>, Query, description = "This service of it alone"),
        ("next" = Option<u32>, Query, description = "How many of the next moments are told; 1 where it is absent, at most 100")
    ),
    responses((status = 200, body = Vec<CronStatus>))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(params): Query<Params>,
) -> Answer<Json<Vec<CronStatus>>> {
    let next = params.next.unwrap_or(1).min(CRON_NEXT_MAX);
    let (deployment, service) = (params.deployment.as_deref(), params.service.as_deref());
    Ok(Json(context.manager().crons(deployment, service, next)?))
}

/// Starts a run of a schedule now, by the schedule's own rules for runs that are under way.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/runs", tag = "deployments", params(("name" = String, Path)),
    request_body = RunRequest, responses((status = 200, body = RunBegun))
)]
pub(super) async fn start(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: extract::Json<RunRequest>,
) -> Answer<Json<RunBegun>> {
    let command = DeploymentCommand::StartRun {
        deployment: known_name(&name)?,
        service: known_service(&body.value.service)?,
    };
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    match applied.outcome {
        Outcome::RunBegan { run } => Ok(Json(RunBegun {
            run,
            state_revision: applied.revision.0,
        })),
        Outcome::Done
        | Outcome::Deployed { .. }
        | Outcome::Registered { .. }
        | Outcome::Placed { .. }
        | Outcome::Reported { .. } => Err(ApiProblem::new(
            ProblemCode::Internal,
            "the write has an outcome that does not belong to it",
        )),
    }
}
