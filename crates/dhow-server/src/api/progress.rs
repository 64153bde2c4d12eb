//! `/deployments/{name}/progress`: follows a revision until it is decided.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use dhow_core::ids::{DeploymentName, DeploymentRevision};
use serde::Deserialize;

use super::context::Context;
use super::extract::{Path, Query};
use super::feed;
use super::limits::{PROGRESS_SECS, PROGRESS_SECS_MAX};
use super::problem::{Answer, ApiProblem};
use crate::plane::services::NoSuchName;
use crate::plane::stabilization::{ProgressEvent, ProgressWatch};

/// The query of a progress stream.
#[derive(Deserialize)]
pub(super) struct Params {
    revision: Option<u64>,
    timeout_secs: Option<u64>,
}

/// Server-sent: `progress` events with a [`dhow_wire::api::Progress`] whenever something has changed, then one
/// `result` with a [`dhow_wire::api::ProgressResult`].
#[utoipa::path(
    get, path = "/api/v1/deployments/{name}/progress", tag = "deployments",
    params(
        ("name" = String, Path),
        ("revision" = Option<u64>, Query, description = "The current one where none is named"),
        ("timeout_secs" = Option<u64>, Query, maximum = 86400, description = "120 where it is absent")
    ),
    responses((status = 200, body = super::openapi::ServerSentEvent, content_type = "text/event-stream"))
)]
pub(super) async fn follow(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(params): Query<Params>,
) -> Answer<Response> {
    let timeout_secs = params.timeout_secs.unwrap_or(PROGRESS_SECS);
    if timeout_secs > PROGRESS_SECS_MAX {
        return Err(ApiProblem::bad_request(format!(
            "`timeout_secs` is at most {PROGRESS_SECS_MAX}"
        )));
    }
    let state = context.manager().state();
    let known = DeploymentName::new(&name).ok();
    let known = known.and_then(|known| state.deployment(&known));
    let known = known.ok_or_else(|| NoSuchName::Deployment(name.chars().take(80).collect()))?;
    if let Some(revision) = params.revision.filter(|revision| *revision > known.revision.0) {
        return Err(ApiProblem::not_found(format!(
            "deployment `{name}` has no revision {revision}, it is at {}",
            known.revision
        )));
    }
    let revision = params.revision.map(DeploymentRevision);
    let timeout = Duration::from_secs(timeout_secs);
    let mut watch = ProgressWatch::new(context.manager(), known, revision, timeout);
    Ok(feed::events(context.end, |feed| async move {
        while let Some(event) = watch.next().await {
            match event {
                ProgressEvent::Progress(progress) => feed.event("progress", &progress).await?,
                ProgressEvent::Result(result) => feed.event("result", &result).await?,
            }
        }
        Ok(())
    }))
}
