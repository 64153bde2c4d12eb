//! `/rebalance`: which replicas would be moved, and that they are.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::ids::DeploymentName;
use dhow_core::rebalance::{MOVES_MAX, Proposal, Scope, propose};
use dhow_wire::ProblemCode;
use dhow_wire::api::{RebalancePlan, RebalanceRequest};
use serde::Deserialize;

use super::caller::Caller;
use super::context::Context;
use super::deployments::known_name;
use super::extract::{self, Query};
use super::problem::{Answer, ApiProblem};

/// The query of `/rebalance`.
#[derive(Deserialize)]
pub(super) struct Params {
    deployment: Option<String>,
    max: Option<u32>,
}

/// Which replicas would be moved so that services are spread as if they were placed now. Changes nothing.
#[utoipa::path(
    get, path = "/api/v1/rebalance", tag = "deployments",
    params(
        ("deployment" = Option<String>, Query, description = "Of this deployment alone"),
        ("max" = Option<u32>, Query, description = "At most so many moves; 1,000 where it is absent")
    ),
    responses((status = 200, body = RebalancePlan))
)]
pub(super) async fn plan(
    State(context): State<Context>,
    Query(params): Query<Params>,
) -> Answer<Json<RebalancePlan>> {
    let (plan, _) = worked_out(&context, params.deployment.as_deref(), params.max).await?;
    Ok(Json(plan))
}

/// Moves replicas, each within what its service promises of a rollout; or stops what was begun.
#[utoipa::path(
    post, path = "/api/v1/rebalance", tag = "deployments",
    request_body = RebalanceRequest, responses((status = 200, body = RebalancePlan))
)]
pub(super) async fn begin(
    State(context): State<Context>,
    caller: Caller,
    body: extract::Json<RebalanceRequest>,
) -> Answer<Json<RebalancePlan>> {
    let RebalanceRequest {
        deployment,
        max,
        stop,
    } = &body.value;
    let (plan, moves) = match stop {
        true => (RebalancePlan::default(), Vec::new()),
        false => {
            let (plan, proposal) = worked_out(&context, deployment.as_deref(), *max).await?;
            if proposal.moves.is_empty() {
                return Ok(Json(plan));
            }
            (plan, proposal.moves)
        }
    };
    let author = caller.author().await;
    let command = DeploymentCommand::Rebalance { moves, author };
    let request = caller.request_id(&body.bytes);
    context.write(Command::Deployment(command), request).await?;
    Ok(Json(plan))
}

/// Works out the moves, which is work in a large cluster.
async fn worked_out(
    context: &Context,
    deployment: Option<&str>,
    max: Option<u32>,
) -> Answer<(RebalancePlan, Proposal)> {
    let deployment: Option<DeploymentName> = deployment.map(known_name).transpose()?;
    let scope = Scope {
        deployment,
        moves_max: max.unwrap_or(MOVES_MAX),
    };
    let state = context.manager().state();
    if let Some(name) = &scope.deployment
        && state.deployment(name).is_none()
    {
        let missing = dhow_core::command::Missing::Deployment(name.clone());
        return Err(ApiProblem::new(ProblemCode::NotFound, missing.to_string()));
    }
    let worked = tokio::task::spawn_blocking(move || {
        let proposal = propose(&state, &scope);
        (RebalancePlan::of(&state, &proposal), proposal)
    });
    worked
        .await
        .map_err(|_| ApiProblem::new(ProblemCode::Internal, "working out the moves failed"))
}
