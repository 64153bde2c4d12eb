//! The routes that peers call each other on. Served beside the API, which lets members of the cluster in alone.

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dhow_core::branches::Lost;
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use dhow_wire::{Problem, ProblemCode};
use serde::{Deserialize, Serialize};

use super::conflicts;
use super::frame;
use crate::api::Principal;
use crate::plane::log::copied::{
    Claim, ClaimAnswer, CopiedLog, CopyAnswer, CopyError, WHOLE_BYTES_MAX, Whole,
};
use crate::plane::runtime::{EventLogSender, InputSender};

/// Where a whole copy ends, beside its bytes.
pub(super) static POSITION: HeaderName = HeaderName::from_static("x-dhow-position");

/// The largest body of entries: one batch of the store, and its head.
const COPIES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest list of conflicted revisions: a few dozen files of 1 MiB.
const CONFLICTS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the routes stand on.
#[derive(Clone)]
pub struct StaticRoutes {
    pub log: CopiedLog,
    pub input: InputSender,
    pub event_log: EventLogSender,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PositionHead {
    pub epoch: u64,
    pub index: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leaving {
    pub node: u64,
}

#[derive(Debug, Deserialize)]
struct WholeQuery {
    node: u64,
    epoch: u64,
    index: u64,
}

/// The HTTP routes on which peers claim the lead, send each other copies and conflicts, and say that they leave. The
/// API mounts them for members of the cluster.
pub fn routes(routes: StaticRoutes) -> Router {
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

struct Refusal(ProblemCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let problem = Problem::new(self.0, self.1);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static(PROBLEM_MEDIA_TYPE);
        let mut response = (status, Json(problem)).into_response();
        response
            .headers_mut()
            .insert(axum::http::header::CONTENT_TYPE, kind);
        response
    }
}

impl From<CopyError> for Refusal {
    fn from(error: CopyError) -> Self {
        Self(ProblemCode::Internal, error.to_string())
    }
}

/// A peer speaks for itself alone, and nobody else is heard.
fn check(principal: &Principal, node: u64) -> Result<(), Refusal> {
    match principal {
        Principal::Member(member) if member.0 == node => Ok(()),
        Principal::Member(member) => Err(Refusal(
            ProblemCode::Forbidden,
            format!("the certificate is of node {member}, the message speaks for node {node}"),
        )),
        Principal::User { .. }
        | Principal::Forwarded { .. }
        | Principal::Worker(_)
        | Principal::Token { .. }
        | Principal::Unknown => Err(Refusal(
            ProblemCode::Forbidden,
            "only a peer of the cluster may say this, with its certificate".into(),
        )),
    }
}

async fn claim(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Json(claim): Json<Claim>,
) -> Result<Json<ClaimAnswer>, Refusal> {
    check(&principal, claim.node)?;
    Ok(Json(routes.log.claim(claim).await?))
}

async fn copies(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    body: Bytes,
) -> Result<Json<CopyAnswer>, Refusal> {
    let copies = frame::decode(body);
    let copies = copies.map_err(|error| Refusal(ProblemCode::BadRequest, error.to_string()))?;
    check(&principal, copies.node)?;
    Ok(Json(routes.log.copies(copies).await?))
}

async fn put_whole(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<WholeQuery>,
    bytes: Bytes,
) -> Result<Json<CopyAnswer>, Refusal> {
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

async fn whole(State(routes): State<StaticRoutes>) -> Result<Response, Refusal> {
    let whole = routes.log.whole().await?;
    let at = PositionHead {
        epoch: whole.epoch,
        index: whole.index,
    };
    let at = serde_json::to_string(&at).unwrap_or_default();
    let internal =
        |error: axum::http::header::InvalidHeaderValue| Refusal(ProblemCode::Internal, error.to_string());
    let at = HeaderValue::from_str(&at).map_err(internal)?;
    Ok(([(POSITION.clone(), at)], whole.bytes).into_response())
}

async fn leaving(
    State(routes): State<StaticRoutes>,
    Extension(principal): Extension<Principal>,
    Json(leaving): Json<Leaving>,
) -> Result<Json<()>, Refusal> {
    check(&principal, leaving.node)?;
    routes.log.peer_leaves(leaving.node);
    Ok(Json(()))
}

async fn conflicted(State(routes): State<StaticRoutes>, Json(lost): Json<Lost>) -> Result<Json<()>, Refusal> {
    let taken = conflicts::take(&routes.input, &routes.event_log, &lost).await;
    taken.map_err(|error| Refusal(ProblemCode::NoLeader, error.to_string()))?;
    Ok(Json(()))
}
