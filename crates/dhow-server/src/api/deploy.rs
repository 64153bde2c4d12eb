//! A deployment file that comes in: read, its images resolved, and proposed.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use dhow_core::command::{Command, DeploymentCommand, Outcome};
use dhow_core::spec::DeploymentSpec;
use dhow_wire::api::Deployed;
use dhow_wire::{ProblemCode, Sender, parse_deployment_under};
use serde::Deserialize;

use super::access::Scope;
use super::caller::Caller;
use super::context::Context;
use super::extract::{Query, check_media_type, read, text};
use super::limits::DEPLOYMENT_BYTES_MAX;
use super::problem::{Answer, ApiProblem};
use super::suspend::SuspendQuery;
use crate::plane::certificate_look::CertificateLook;
use crate::plane::runtime::Applied;
use crate::plane::services::{fill_endpoints, resolve_digests};

/// What a deployment file may say to be.
const MEDIA_TYPES: &[&str] = &[
    "application/yaml",
    "application/json",
    "application/x-yaml",
    "text/yaml",
    "text/x-yaml",
];

/// The longest name of a file that findings repeat.
const SOURCE_CHARS_MAX: usize = 255;

/// The query of a file: its name for messages.
#[derive(Deserialize)]
pub(super) struct Source {
    source: Option<String>,
}

/// The query of a deployment.
#[derive(Deserialize)]
pub(super) struct DeployQuery {
    source: Option<String>,
    /// Even what was taken back before.
    #[serde(default)]
    force: bool,
    suspend: Option<u64>,
}

/// Deploys, or changes what is deployed. Answers once the write is durable.
#[utoipa::path(
    post, path = "/api/v1/deployments", tag = "deployments",
    params(
        ("source" = Option<String>, Query, description = "The file's name, for findings"),
        ("force" = Option<bool>, Query, description = "Deploy even what was taken back because its version failed"),
        ("suspend" = Option<u64>, Query, description = "For so many seconds it counts in place of its source")
    ),
    request_body(content((super::openapi::DeploymentFile = "application/json"), (super::openapi::DeploymentFile = "application/yaml"))),
    responses((status = 200, body = Deployed))
)]
pub(super) async fn deploy(
    State(context): State<Context>,
    Query(query): Query<DeployQuery>,
    caller: Caller,
    scope: Scope,
    request: Request,
) -> Answer<Json<Deployed>> {
    let DeployQuery {
        source,
        force,
        suspend,
    } = query;
    let (bytes, mut spec) = read_spec(&context, Source { source }, request).await?;
    scope.check(spec.deployment.as_str())?;
    check_certificates(&context, &spec)?;
    let (door, state) = (context.manager().door(), context.manager().state());
    resolve_digests(door.as_ref(), &state, &mut spec).await;
    fill_endpoints(door.as_ref(), &state, &mut spec).await;
    let deployment = spec.deployment.clone();
    let command = DeploymentCommand::Deploy {
        spec: Arc::new(spec),
        author: caller.author().await,
        wall_unix_secs: context.wall_unix_secs(),
        force,
    };
    let command = SuspendQuery::new(suspend)
        .around(&context, &caller, command)
        .await?;
    let request = caller.request_id(&bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    deployed(deployment.as_str(), applied).map(Json)
}

/// Refuses endpoints whose certificates cannot be shown, before anything is written.
pub(super) fn check_certificates(context: &Context, spec: &DeploymentSpec) -> Answer<()> {
    let look = CertificateLook {
        secrets: &context.api.secrets,
        state: &context.manager().state(),
        now_unix_secs: context.wall_unix_secs(),
        orders: context.api.orders_certificates,
    };
    match look.refusal(spec) {
        Some(why) => Err(ApiProblem::new(ProblemCode::Refused, why)),
        None => Ok(()),
    }
}

/// Reads the body as a deployment file. Variables of the client's environment are the client's to resolve.
pub(super) async fn read_spec(
    context: &Context,
    source: Source,
    request: Request,
) -> Answer<(axum::body::Bytes, DeploymentSpec)> {
    check_media_type(request.headers(), MEDIA_TYPES)?;
    let bytes = read(request, DEPLOYMENT_BYTES_MAX).await?;
    let name = source.source.filter(|name| !name.trim().is_empty());
    let name = name.unwrap_or_else(|| "request body".into());
    let name: String = name
        .chars()
        .filter(|c| !c.is_control())
        .take(SOURCE_CHARS_MAX)
        .collect();
    let read = text(&bytes)?.to_owned();
    // A file of a megabyte takes a while to read.
    let policy = Arc::clone(&context.api.policy);
    let parsed = tokio::task::spawn_blocking(move || {
        parse_deployment_under(&read, &name, Sender::Caller, &|spec| policy.check(spec))
    });
    let spec = parsed
        .await
        .map_err(|_| ApiProblem::new(ProblemCode::Internal, "reading the deployment file failed"))??;
    Ok((bytes, spec))
}

/// What a deployment's own revision came of.
pub(super) fn deployed(deployment: &str, applied: Applied) -> Answer<Deployed> {
    match applied.outcome {
        Outcome::Deployed { revision, changed } => Ok(Deployed {
            deployment: deployment.to_owned(),
            revision: revision.0,
            changed,
            state_revision: applied.revision.0,
            brings_back: None,
        }),
        Outcome::Done
        | Outcome::Registered { .. }
        | Outcome::Placed { .. }
        | Outcome::RunBegan { .. }
        | Outcome::Reported { .. } => Err(ApiProblem::new(
            ProblemCode::Internal,
            "the write has an outcome that does not belong to it",
        )),
    }
}
