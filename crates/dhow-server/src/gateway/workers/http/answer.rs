//! Bodies and errors of the JSON form, and who asks.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dhow_core::ids::NodeId;
use dhow_wire::grpc::Refusal;
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use dhow_wire::{Problem, ProblemCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::gateway::node_gateway::Inner;
use crate::gateway::workers::join_error::{JoinError, problem_of};
use crate::identity::Identity;

/// The header with the token that registration gave.
const TOKEN_HEADER: &str = "x-dhow-internal-token";

/// A problem that a handler ends with.
pub(super) struct Wrong(Box<Problem>);

pub(super) type Answer = Result<Response, Wrong>;

impl From<Problem> for Wrong {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<JoinError> for Wrong {
    fn from(error: JoinError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Self {
        problem_of(&refusal).into()
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        // A problem is texts and numbers, which can always be written; the codes have valid numbers.
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let media_type = HeaderValue::from_static(PROBLEM_MEDIA_TYPE);
        let mut response = (status, [(header::CONTENT_TYPE, media_type)], body).into_response();
        if let Some(secs) = self.0.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, secs.into());
        }
        if let Some(code) = ProblemCode::from_text(&self.0.code) {
            // Whoever passes requests on looks at this.
            response.extensions_mut().insert(code);
        }
        response
    }
}

/// Reads a body; unknown fields are ignored, because peers of other versions are in the field.
pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Wrong> {
    let bytes = body.map_err(|rejection| {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ProblemCode::TooLarge,
            _ => ProblemCode::BadRequest,
        };
        Wrong::from(Problem::new(code, rejection.body_text()))
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(ProblemCode::BadRequest, error.to_string()).into())
}

/// Who asks.
pub(super) struct Shown {
    pub node: NodeId,
    /// The token that it shows from now on, where the one that it has grows old.
    next: Option<String>,
}

impl Shown {
    /// An answer that also hands over the next token.
    pub fn answer<T: Serialize>(&self, value: &T) -> Answer {
        let mut response = json(value)?;
        // Base64 is always a header's text.
        if let Some(next) = self
            .next
            .as_deref()
            .and_then(|next| HeaderValue::from_str(next).ok())
        {
            response.headers_mut().insert(TOKEN_HEADER, next);
        }
        Ok(response)
    }
}

pub(super) fn json<T: Serialize>(value: &T) -> Answer {
    // Our own messages have no keys but texts, so they can be written.
    let body =
        serde_json::to_vec(value).map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    let media_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, media_type)], body).into_response())
}

impl Inner {
    /// Who shows the token in the header; a number in the body must be its own.
    pub(super) fn shown(&self, headers: &HeaderMap, named: u64) -> Result<Shown, Wrong> {
        let tier = self.tier()?;
        let cluster_id = self.cluster_id()?;
        let text = headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
        let shown = text.and_then(|text| tier.internal_tokens.read(&cluster_id, text));
        let shown = shown.ok_or_else(|| {
            let detail = "send the token that registration gave in `X-Dhow-Internal-Token`";
            Problem::new(ProblemCode::Unauthorized, detail)
        })?;
        let (node, now_unix_secs) = (shown.node, self.now_unix_secs());
        if shown.is_expired(now_unix_secs) {
            let detail = format!(
                "the internal token of node {node} has expired: answers hand over the next one in \
                 `X-Dhow-Internal-Token` long before; register again, with a new bootstrap token"
            );
            return Err(Problem::new(ProblemCode::TokenExpired, detail).into());
        }
        if node.0 != named {
            let detail = format!("the token is of node {node}, the message speaks for node {named}");
            return Err(Problem::new(ProblemCode::Forbidden, detail).into());
        }
        self.check_role(Identity::Worker(node))?;
        let next = shown
            .is_due(now_unix_secs)
            .then(|| tier.internal_tokens.issue(&cluster_id, node, now_unix_secs));
        Ok(Shown { node, next })
    }
}
