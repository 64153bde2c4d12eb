//! `/rollouts`: what is being rolled out, and what people do about it.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::ids::ServiceName;
use dhow_wire::api::{Deployed, RolloutRequest, RolloutStatus};

use super::access::Scope;
use super::caller::Caller;
use super::context::Context;
use super::deploy::deployed;
use super::deployments::{checked, known_name};
use super::extract::{self, Path};
use super::problem::Answer;

/// Every service with a rollout that is under way, and the gate at which it waits.
#[utoipa::path(
    get, path = "/api/v1/rollouts", tag = "deployments",
    responses((status = 200, body = Vec<RolloutStatus>))
)]
pub(super) async fn list(State(context): State<Context>, scope: Scope) -> Json<Vec<RolloutStatus>> {
    let mut all = context.manager().rollouts();
    all.retain(|rollout| scope.tells(Some(&rollout.deployment)));
    Json(all)
}

/// Promotes, pauses, resumes or aborts the rollout of a deployment, or of one of its services.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/rollout", tag = "deployments", params(("name" = String, Path)),
    request_body = RolloutRequest, responses((status = 200, body = Deployed))
)]
pub(super) async fn steer(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: extract::Json<RolloutRequest>,
) -> Answer<Json<Deployed>> {
    let service = body.value.service.as_deref();
    let command = DeploymentCommand::Steer {
        deployment: known_name(&name)?,
        service: service.map(|name| checked(ServiceName::new(name))).transpose()?,
        action: body.value.action.into(),
        author: caller.author().await,
    };
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    deployed(&name, applied).map(Json)
}
