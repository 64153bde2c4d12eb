//! The routes that peers of a static cluster call each other on: claims of the lead, copies of the log, conflicts.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Query, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dhow_core::branches::Lost;
use dhow_wire::ProblemCode;
use serde::Deserialize;

use crate::api::access::Principal;
use crate::api::problem::ApiProblem;
use crate::plane::log::copied::{
    Claim, ClaimAnswer, CopiedLog, CopyAnswer, CopyError, WHOLE_BYTES_MAX, Whole,
};
use crate::plane::runtime::{EventLogSender, InputSender};
use crate::plane::static_peers::{Leaving, POSITION, PositionHead, read_copies, take_conflicts};

/// The largest body of entries: one batch of the store, and its head.
const COPIES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest list of conflicted revisions: a few dozen files of 1 MiB.
const CONFLICTS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the routes of a static peer stand on.
#[derive(Clone)]
pub struct StaticRoutes {
    pub log: CopiedLog,
    pub input: InputSender,
    pub event_log: EventLogSender,
}

#[derive(Debug, Deserialize)]
struct WholeQuery {
    node: u64,
    epoch: u64,
    index: u64,
}

/// The HTTP routes on which peers claim the lead, send each other copies and conflicts, and say that they leave. The
/// daemon merges them into the API, which lets only members of the cluster in.
pub fn static_routes(routes: StaticRoutes) -> Router {
    let whole = get(whole)
        .post(put_whole)
        .layer(DefaultBodyLimit::max(WHOLE_BYTES_MAX));
    Router::new()
        .route("/api/v1/internal/copies/claim", post(claim))
        .route("/api/v1/internal/copies/whole", whole)
        .route(
            "/api/v1/internal/copies",
            post(copies).layer(DefaultBodyLimit::max(COPIES_BYTES_MAX)),
        )
        .route("/api/v1/internal/leaving", post(leaving))
        .route(
            "/api/v1/internal/conflicts",
            post(conflicted).layer(DefaultBodyLimit::max(CONFLICTS_BYTES_MAX)),
        )
        .with_state(routes)
}

impl From<CopyError> for ApiProblem {
    fn from(error: CopyError) -> Self {
        Self::new(ProblemCode::Internal, error.to_string())
    }
}

/// A peer speaks for itself alone, and nobody else is heard.
fn check(principal: &Principal, node: u64) -> Result<(), ApiProblem> {
    match principal {
        Principal::Member(member) if member.0 == node => Ok(()),
        Principal::Member(member) => Err(ApiProblem::new(
            ProblemCode::Forbidden,
            format!("the certificate is of node {member}, the message speaks for node {node}"),
        )),
        Principal::User { .. }
        | Principal::Forwarded { .. }
        | Principal::Worker(_)
        | Principal::Token { .. }
        | Principal::Unknown => Err(ApiProblem::new(
            ProblemCode::Forbidden,
            "only a peer of the cluster may say this, with its certificate",
        )),
    }
}

async fn claim(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Json(claim): Json<Claim>,
) -> Result<Json<ClaimAnswer>, ApiProblem> {
    check(&principal, claim.node)?;
    Ok(Json(routes.log.claim(claim).await?))
}

async fn copies(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    body: Bytes,
) -> Result<Json<CopyAnswer>, ApiProblem> {
    let copies = read_copies(body);
    let copies = copies.map_err(|error| ApiProblem::new(ProblemCode::BadRequest, error.to_string()))?;
    check(&principal, copies.node)?;
    Ok(Json(routes.log.copies(copies).await?))
}

async fn put_whole(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<WholeQuery>,
    bytes: Bytes,
) -> Result<Json<CopyAnswer>, ApiProblem> {
    let WholeQuery { node, epoch, index } = query;
    check(&principal, node)?;
    let whole = Whole {
        node,
        epoch,
        index,
        bytes,
    };
    Ok(Json(routes.log.put_whole(whole).await?))
}

async fn whole(State(routes): State<StaticRoutes>) -> Result<Response, ApiProblem> {
    let whole = routes.log.whole().await?;
    let at = PositionHead {
        epoch: whole.epoch,
        index: whole.index,
    };
    let at = serde_json::to_string(&at).unwrap_or_default();
    let internal = |error: axum::http::header::InvalidHeaderValue| {
        ApiProblem::new(ProblemCode::Internal, error.to_string())
    };
    let at = HeaderValue::from_str(&at).map_err(internal)?;
    Ok(([(POSITION.clone(), at)], whole.bytes).into_response())
}

async fn leaving(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Json(leaving): Json<Leaving>,
) -> Result<Json<()>, ApiProblem> {
    check(&principal, leaving.node)?;
    routes.log.peer_leaves(leaving.node);
    Ok(Json(()))
}

async fn conflicted(
    State(routes): State<StaticRoutes>,
    Json(lost): Json<Lost>,
) -> Result<Json<()>, ApiProblem> {
    let taken = take_conflicts(&routes.input, &routes.event_log, &lost).await;
    taken.map_err(|error| ApiProblem::new(ProblemCode::NoLeader, error.to_string()))?;
    Ok(Json(()))
}
