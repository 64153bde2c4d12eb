//! `/past`: how far back this server can tell what was, which revision there was at a time, and what differs between two.
//! Each server answers from what it has kept itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use dhow_core::ids::Revision;
use dhow_wire::api::{PastDifference, PastMoment, PastWindow};
use dhow_wire::{ClusterModeName, ProblemCode};
use serde::Deserialize;

use super::access::Scope;
use super::context::Context;
use super::deployments::known_name;
use super::extract::Query;
use super::problem::{Answer, ApiProblem};
use crate::plane::past::{Moment, Past, PastError, When};
use crate::plane::services::{past_difference, past_window};

/// The query of routes that tell what was.
#[derive(Deserialize)]
pub(super) struct AtQuery {
    pub at: Option<u64>,
}

/// The query of `/past/at`.
#[derive(Deserialize)]
pub(super) struct MomentQuery {
    revision: Option<u64>,
    unix_ms: Option<i64>,
}

/// The query of `/past/difference`.
#[derive(Deserialize)]
pub(super) struct DifferenceQuery {
    from: u64,
    to: u64,
    deployment: Option<String>,
}

/// How far back the server that answers can tell what was.
#[utoipa::path(get, path = "/api/v1/past", tag = "past", responses((status = 200, body = PastWindow)))]
pub(super) async fn show(State(context): State<Context>) -> Answer<Json<PastWindow>> {
    Ok(Json(past_window(context.past()?)))
}

/// The revision that there was at a time. Asking what was then is asking for that revision.
#[utoipa::path(
    get, path = "/api/v1/past/at", tag = "past",
    params(
        ("revision" = Option<u64>, Query, description = "A revision of the state"),
        ("unix_ms" = Option<i64>, Query, description = "A time, in milliseconds since 1970; one of both is named")
    ),
    responses((status = 200, body = PastMoment))
)]
pub(super) async fn at(
    State(context): State<Context>,
    Query(query): Query<MomentQuery>,
) -> Answer<Json<PastMoment>> {
    let when = match (query.revision, query.unix_ms) {
        (Some(revision), None) => When::Revision(Revision(revision)),
        (None, Some(unix_ms)) => When::UnixMs(unix_ms),
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiProblem::bad_request("name either `revision` or `unix_ms`"));
        }
    };
    Ok(Json(context.moment(when).await?.told()))
}

/// What differs between two revisions.
#[utoipa::path(
    get, path = "/api/v1/past/difference", tag = "past",
    params(
        ("from" = u64, Query),
        ("to" = u64, Query),
        ("deployment" = Option<String>, Query, description = "Of this deployment alone")
    ),
    responses((status = 200, body = PastDifference))
)]
pub(super) async fn difference(
    State(context): State<Context>,
    Query(query): Query<DifferenceQuery>,
    scope: Scope,
) -> Answer<Json<PastDifference>> {
    let deployment = match (query.deployment.filter(|name| !name.is_empty()), &scope) {
        (None, Scope::One(own)) => Some(own.clone()),
        (None, Scope::Whole) => None,
        (Some(name), _) => {
            scope.check(&name)?;
            Some(known_name(&name)?)
        }
    };
    let from = context.moment(When::Revision(Revision(query.from))).await?;
    let to = context.moment(When::Revision(Revision(query.to))).await?;
    // Two states that share nothing are gone through as a whole.
    let work = move || past_difference(&from, &to, deployment.as_ref());
    let found = tokio::task::spawn_blocking(work).await;
    found
        .map(Json)
        .map_err(|_| ApiProblem::new(ProblemCode::Internal, "comparing both moments failed"))
}

impl Context {
    fn past(&self) -> Answer<&Past> {
        self.manager().view().past().ok_or_else(|| {
            let (code, why) = match self.api.cluster.mode() {
                ClusterModeName::Static => (
                    ProblemCode::WrongMode,
                    "a static cluster keeps no past: each half of a divided one has its own",
                ),
                ClusterModeName::SingleNode | ClusterModeName::Raft | ClusterModeName::WorkerTier => (
                    ProblemCode::Refused,
                    "this server keeps no past: its configuration has `past: off`",
                ),
            };
            ApiProblem::new(code, why)
        })
    }

    /// The cluster as it was, as this server has kept it.
    pub(super) async fn moment(&self, when: When) -> Answer<Arc<Moment>> {
        let now_unix_ms = self.manager().clock().wall_unix_ms();
        let found = self.manager().view().at(self.past()?, when, now_unix_ms).await;
        found.map_err(ApiProblem::from)
    }

    /// The same for routes that take a revision in their query; none where it asks for the present.
    pub(super) async fn asked_moment(&self, query: &AtQuery) -> Answer<Option<Arc<Moment>>> {
        match query.at {
            Some(revision) => self.moment(When::Revision(Revision(revision))).await.map(Some),
            None => Ok(None),
        }
    }
}

impl From<PastError> for ApiProblem {
    fn from(error: PastError) -> Self {
        let code = match &error {
            PastError::Before { .. } | PastError::Gap { .. } | PastError::Damaged { .. } => {
                ProblemCode::RevisionGone
            }
            PastError::Ahead { .. } => ProblemCode::NotFound,
            PastError::Nothing | PastError::Busy | PastError::CutOff => ProblemCode::Busy,
            PastError::DiskFull { .. } => ProblemCode::DiskFull,
            PastError::Io { .. } | PastError::Log(_) | PastError::Form(_) => ProblemCode::Internal,
        };
        Self::new(code, error.told())
    }
}
