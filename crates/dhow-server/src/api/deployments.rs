//! `/deployments`: what there is, and changes of it. A new one comes in by [`super::deploy`].

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use dhow_core::command::{Command, DeploymentCommand, ScaleChange};
use dhow_core::ids::{DeploymentName, DeploymentRevision, NameError, RoleName, ServiceName};
use dhow_core::spec::TimeSpan;
use dhow_core::step::rollback_target;
use dhow_wire::api::{
    Deployed, Explanation, HistoryEntry, RestartRequest, RollbackRequest, ScaleItem, ScaleRequest,
    StopRequest, WriteDone,
};
use dhow_wire::{DeploymentStatus, Problem, ProblemCode};
use serde::Deserialize;

use super::access::Scope;
use super::caller::Caller;
use super::context::Context;
use super::deploy::deployed;
use super::extract::{self, OptionalJson, Path, Query};
use super::limits::SCALE_CHANGES_MAX;
use super::past::AtQuery;
use super::problem::{Answer, ApiProblem};
use super::suspend::SuspendQuery;
use crate::clock::shown_utc;
use crate::plane::certificate_look::CertificateLook;
use crate::plane::services::{NoSuchName, ServiceManager};

/// Every deployment with its services.
#[utoipa::path(
    get, path = "/api/v1/deployments", tag = "deployments",
    params(("at" = Option<u64>, Query, description = "As it was at this revision of the state, as the server that answers has kept it")),
    responses((status = 200, body = Vec<DeploymentStatus>))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<AtQuery>,
    scope: Scope,
) -> Answer<Json<Vec<DeploymentStatus>>> {
    if let Some(moment) = context.asked_moment(&query).await? {
        let mut all = ServiceManager::listed_at(&moment, |listings| listings.deployments());
        all.retain(|status| scope.tells(Some(&status.deployment)));
        return Ok(Json(all));
    }
    let mut all = context.manager().deployments();
    all.retain(|status| scope.tells(Some(&status.deployment)));
    for status in &mut all {
        let notes = certificate_notes(&context, &status.deployment, None);
        status.notes.extend(notes);
        looked(&context, status);
    }
    Ok(Json(all))
}

/// One deployment.
#[utoipa::path(
    get, path = "/api/v1/deployments/{name}", tag = "deployments",
    params(
        ("name" = String, Path),
        ("at" = Option<u64>, Query, description = "As it was at this revision of the state")
    ),
    responses((status = 200, body = DeploymentStatus))
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<AtQuery>,
) -> Answer<Json<DeploymentStatus>> {
    if let Some(moment) = context.asked_moment(&query).await? {
        let found = ServiceManager::listed_at(&moment, |listings| listings.deployment(&name));
        return Ok(Json(found?));
    }
    let mut status = context.manager().deployment(&name)?;
    status.notes.extend(certificate_notes(&context, &name, None));
    looked(&context, &mut status);
    Ok(Json(status))
}

/// Says what this server found when it looked at the deployment's source.
fn looked(context: &Context, status: &mut DeploymentStatus) {
    let Some(source) = &mut status.source else {
        return;
    };
    let found = context.manager().view().sources().last_look(&source.name);
    source.looked_unix_secs = found.looked_unix_secs;
    source.problem = found.problem;
    if let Some(problem) = &source.problem {
        let note = format!("the source {} brings nothing: {problem}", source.name);
        status.notes.push(note);
    }
    if let Some(refused) = found.hook_refused_unix_secs {
        let note = format!(
            "a call of the webhook of the source {} was refused at {}",
            source.name,
            shown_utc(refused)
        );
        status.notes.push(note);
    }
}

/// What is wrong with the certificates of a deployment, or of one of its services.
fn certificate_notes(context: &Context, deployment: &str, only: Option<&str>) -> Vec<String> {
    let state = context.manager().state();
    let known = DeploymentName::new(deployment).ok();
    let known = known.and_then(|name| state.deployment(&name));
    let Some(current) = known.and_then(|known| known.current()) else {
        return Vec::new();
    };
    let look = CertificateLook {
        secrets: &context.api.secrets,
        state: &state,
        now_unix_secs: context.wall_unix_secs(),
        orders: context.api.orders_certificates,
    };
    look.notes(&current.spec, only)
}

/// Its revisions, the newest first.
#[utoipa::path(
    get, path = "/api/v1/deployments/{name}/history", tag = "deployments", params(("name" = String, Path)),
    responses((status = 200, body = Vec<HistoryEntry>))
)]
pub(super) async fn history(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Answer<Json<Vec<HistoryEntry>>> {
    Ok(Json(context.manager().history(&name)?))
}

/// The query of an explanation: the service or replica that it is about.
#[derive(Deserialize)]
pub(super) struct Explain {
    name: String,
    at: Option<u64>,
}

/// Why a service or a replica is where it is, or why it is not running.
#[utoipa::path(
    get, path = "/api/v1/deployments/{name}/explain", tag = "deployments",
    params(("name" = String, Path), ("name" = String, Query, description = "A service, or a replica's id"),
        ("at" = Option<u64>, Query, description = "As it was at this revision of the state")),
    responses((status = 200, body = Explanation))
)]
pub(super) async fn explain(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(what): Query<Explain>,
) -> Answer<Json<Explanation>> {
    let asked = AtQuery { at: what.at };
    if let Some(moment) = context.asked_moment(&asked).await? {
        let found = ServiceManager::listed_at(&moment, |listings| listings.explain(&name, &what.name));
        return Ok(Json(found?));
    }
    let mut explanation = context.manager().explain(&name, &what.name)?;
    let notes = certificate_notes(&context, &name, Some(&what.name));
    explanation.lines.extend(notes);
    Ok(Json(explanation))
}

/// A name that cannot exist names nothing that is there.
pub(super) fn known_name(name: &str) -> Answer<DeploymentName> {
    DeploymentName::new(name).map_err(|_| {
        let shown: String = name.chars().take(80).collect();
        NoSuchName::Deployment(shown).into()
    })
}

pub(super) fn checked<T>(name: Result<T, NameError>) -> Answer<T> {
    name.map_err(|error| ApiProblem::invalid(error.to_string()))
}

/// Stops and forgets it.
#[utoipa::path(
    delete, path = "/api/v1/deployments/{name}", tag = "deployments", params(("name" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    scope: Scope,
) -> Answer<Json<WriteDone>> {
    scope.check_whole()?;
    let deployment = known_name(&name)?;
    let command = Command::Deployment(DeploymentCommand::Remove { deployment });
    write(&context, command, &caller, &[]).await
}

async fn write(context: &Context, command: Command, caller: &Caller, body: &[u8]) -> Answer<Json<WriteDone>> {
    let applied = context.write(command, caller.request_id(body)).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

pub(super) fn known_service(name: &str) -> Answer<ServiceName> {
    checked(ServiceName::new(name))
}

/// Sets how many replicas services have: all changes or none.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/scale", tag = "deployments",
    params(
        ("name" = String, Path),
        ("suspend" = Option<u64>, Query, description = "For so many seconds it counts in place of its source")
    ),
    request_body = ScaleRequest, responses((status = 200, body = WriteDone))
)]
pub(super) async fn scale(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(suspend): Query<SuspendQuery>,
    caller: Caller,
    body: extract::Json<ScaleRequest>,
) -> Answer<Json<WriteDone>> {
    let deployment = known_name(&name)?;
    let author = caller.author().await;
    let command = scaling(deployment, &body.value, author)?;
    let command = Command::Deployment(suspend.around(&context, &caller, command).await?);
    write(&context, command, &caller, &body.bytes).await
}

/// What a scale asks for: other counts, other counts for a while, or the end of that.
fn scaling(deployment: DeploymentName, asked: &ScaleRequest, author: Arc<str>) -> Answer<DeploymentCommand> {
    let ScaleRequest {
        changes,
        hold_ms,
        release,
    } = asked;
    let is_one = changes.is_empty() != release.is_empty() && (release.is_empty() || hold_ms.is_none());
    if !is_one || changes.len().max(release.len()) > SCALE_CHANGES_MAX || *hold_ms == Some(0) {
        return Err(ApiProblem::invalid(format!(
            "a scale has 1 to {SCALE_CHANGES_MAX} `changes`, with `hold_ms` above 0 or without, or it has `release` alone"
        )));
    }
    let changes = changes.iter().map(change).collect::<Answer<_>>()?;
    if !release.is_empty() {
        let services = release.iter().map(|name| checked(ServiceName::new(name)));
        return Ok(DeploymentCommand::EndHold {
            deployment,
            services: services.collect::<Answer<_>>()?,
            author,
        });
    }
    Ok(match hold_ms {
        Some(ms) => DeploymentCommand::Hold {
            deployment,
            changes,
            span: TimeSpan::from_millis(*ms),
            author,
        },
        None => DeploymentCommand::Scale { deployment, changes },
    })
}

fn change(item: &ScaleItem) -> Answer<ScaleChange> {
    Ok(ScaleChange {
        service: checked(ServiceName::new(&item.service))?,
        role: item
            .role
            .as_deref()
            .map(|role| checked(RoleName::new(role)))
            .transpose()?,
        replicas: item.replicas,
    })
}

/// Replaces the replicas of a service, or of all, by new ones of the same spec.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/restart", tag = "deployments", params(("name" = String, Path)),
    request_body = Option<RestartRequest>, responses((status = 200, body = WriteDone))
)]
pub(super) async fn restart(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: OptionalJson<RestartRequest>,
) -> Answer<Json<WriteDone>> {
    let deployment = known_name(&name)?;
    let service = body.value.service.as_deref();
    let service = service.map(|name| checked(ServiceName::new(name))).transpose()?;
    let command = Command::Deployment(DeploymentCommand::Restart { deployment, service });
    write(&context, command, &caller, &body.bytes).await
}

/// Stops a service, or all: nothing of it runs until it is started or deployed again. What it is to have stays.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/stop", tag = "deployments", params(("name" = String, Path)),
    request_body = Option<StopRequest>, responses((status = 200, body = Deployed))
)]
pub(super) async fn stop(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: OptionalJson<StopRequest>,
) -> Answer<Json<Deployed>> {
    let (deployment, service) = stop_target(&name, &body.value)?;
    let command = DeploymentCommand::Stop {
        deployment,
        service,
        author: caller.author().await,
        wall_unix_secs: context.wall_unix_secs(),
    };
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    Ok(Json(deployed(&name, applied)?))
}

/// Runs again what was stopped.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/start", tag = "deployments", params(("name" = String, Path)),
    request_body = Option<StopRequest>, responses((status = 200, body = Deployed))
)]
pub(super) async fn start(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: OptionalJson<StopRequest>,
) -> Answer<Json<Deployed>> {
    let (deployment, service) = stop_target(&name, &body.value)?;
    let command = DeploymentCommand::Start {
        deployment,
        service,
        author: caller.author().await,
        wall_unix_secs: context.wall_unix_secs(),
    };
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    Ok(Json(deployed(&name, applied)?))
}

fn stop_target(name: &str, asked: &StopRequest) -> Answer<(DeploymentName, Option<ServiceName>)> {
    let service = asked.service.as_deref();
    let service = service.map(|name| checked(ServiceName::new(name))).transpose()?;
    Ok((known_name(name)?, service))
}

/// Brings an earlier revision back, as a new one.
#[utoipa::path(
    post, path = "/api/v1/deployments/{name}/rollback", tag = "deployments",
    params(
        ("name" = String, Path),
        ("suspend" = Option<u64>, Query, description = "For so many seconds it counts in place of its source")
    ),
    request_body = Option<RollbackRequest>, responses((status = 200, body = Deployed))
)]
pub(super) async fn rollback(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(suspend): Query<SuspendQuery>,
    caller: Caller,
    body: OptionalJson<RollbackRequest>,
) -> Answer<Json<Deployed>> {
    let deployment = known_name(&name)?;
    let to = body.value.to.map(DeploymentRevision);
    let brings_back = check_allowed(&context, &deployment, to)?;
    let command = DeploymentCommand::Rollback {
        deployment,
        to,
        author: caller.author().await,
        wall_unix_secs: context.wall_unix_secs(),
    };
    let command = suspend.around(&context, &caller, command).await?;
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Deployment(command), request).await?;
    let deployed = deployed(&name, applied)?;
    Ok(Json(Deployed {
        brings_back: brings_back.map(|revision| revision.0),
        ..deployed
    }))
}

/// The revision that comes back, unless the daemon's policy forbids it by now. What cannot be found is for the write to
/// say.
fn check_allowed(
    context: &Context,
    deployment: &DeploymentName,
    to: Option<DeploymentRevision>,
) -> Answer<Option<DeploymentRevision>> {
    let Ok((revision, spec)) = rollback_target(&context.manager().state(), deployment, to) else {
        return Ok(None);
    };
    let forbidden = context.api.policy.check(&spec);
    if forbidden.is_empty() {
        return Ok(Some(revision));
    }
    let told = forbidden.into_iter().map(|finding| {
        let hint = finding.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        format!(
            "revision {}: {}: {}{hint}",
            revision.0, finding.path, finding.message
        )
    });
    let detail = format!(
        "the policy of this daemon forbids revision {} of `{deployment}`",
        revision.0
    );
    let problem = Problem::new(ProblemCode::InvalidSpec, detail);
    Err(problem.with_findings(told.collect()).into())
}
