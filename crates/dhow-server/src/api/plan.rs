//! `/plan`: what a deployment file would change.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use dhow_wire::ProblemCode;
use dhow_wire::api::DeploymentPlan;

use super::access::Scope;
use super::context::Context;
use super::deploy::{Source, check_certificates, read_spec};
use super::extract::Query;
use super::problem::{Answer, ApiProblem};
use crate::plane::runtime::WriteError;
use crate::plane::services::{fill_endpoints, resolve_digests};

/// What would change and where replicas would go. Changes nothing.
#[utoipa::path(
    post, path = "/api/v1/plan", tag = "deployments",
    params(("source" = Option<String>, Query, description = "The file's name, for findings")),
    request_body(content((super::openapi::DeploymentFile = "application/json"), (super::openapi::DeploymentFile = "application/yaml"))),
    responses((status = 200, body = DeploymentPlan))
)]
pub(super) async fn plan(
    State(context): State<Context>,
    Query(source): Query<Source>,
    scope: Scope,
    request: Request,
) -> Answer<Json<DeploymentPlan>> {
    let (_, mut spec) = read_spec(&context, source, request).await?;
    scope.check(spec.deployment.as_str())?;
    check_certificates(&context, &spec)?;
    let manager = context.manager().clone();
    let state = manager.state();
    resolve_digests(manager.door().as_ref(), &state, &mut spec).await;
    fill_endpoints(manager.door().as_ref(), &state, &mut spec).await;
    // A plan of a large cluster is work.
    let planned = tokio::task::spawn_blocking(move || manager.plan(&Arc::new(spec)));
    let plan = planned
        .await
        .map_err(|_| ApiProblem::new(ProblemCode::Internal, "making the plan failed"))?;
    plan.map(Json)
        .map_err(|refused| WriteError::Refused(refused).into())
}
