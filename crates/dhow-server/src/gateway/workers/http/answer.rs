//! Bodies and errors of the JSON form, and who asks.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::grpc::Refusal;
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use dhow_wire::{Problem, ProblemCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::gateway::node_gateway::GatewayState;
use crate::gateway::rates::Kind;
use crate::gateway::workers::internal_token::OVERLAP_SECS;
use crate::gateway::workers::join_error::{JoinError, problem_of};
use crate::gateway::workers::tier::WorkerTier;
use crate::net::identity::Identity;
use crate::plane::runtime::{Event, EventKind};

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
    /// The term in which this server leads.
    pub term: u64,
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

impl GatewayState {
    /// Who shows the token in the header, which is heard by that; a number in the body must be its own. Gives the TTL that
    /// it has from now on.
    pub(super) async fn proved(&self, headers: &HeaderMap, named: u64) -> Result<(Shown, u32), Wrong> {
        let tier = self.tier()?;
        let cluster_id = self.cluster_id()?;
        let text = headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
        let token = text.and_then(|text| tier.internal_tokens.read(&cluster_id, text));
        let token = token.ok_or_else(|| {
            let detail = "send the token that registration gave in `X-Dhow-Internal-Token`";
            Problem::new(ProblemCode::Unauthorized, detail)
        })?;
        let (node, now_unix_secs) = (token.node, self.now_unix_secs());
        if token.is_expired(now_unix_secs) {
            let detail = format!(
                "the internal token of node {node} has expired: answers hand over the next one in \
                 `X-Dhow-Internal-Token` long before; the worker joins as a new node, {JOINS_ANEW}"
            );
            return Err(Problem::new(ProblemCode::TokenExpired, detail).into());
        }
        if node.0 != named {
            let detail = format!("the token is of node {node}, the message speaks for node {named}");
            return Err(Problem::new(ProblemCode::Forbidden, detail).into());
        }
        self.check_role(Identity::Worker(node))?;
        let term = self.leading_term().await?;
        let mut state = self.known(node).await?;
        let takes = |state: &State| {
            let mark = state.node(node).map(|node| node.internal_token);
            mark.is_some_and(|mark| mark.takes(token.number, now_unix_secs))
        };
        if !takes(&state) {
            // Never said of what may be old.
            state = self.confirmed_state().await?;
        }
        if !takes(&state) {
            let detail = format!(
                "this internal token of node {node} was replaced: show the one that a later answer has handed over in \
                 `X-Dhow-Internal-Token`; a worker that was not given it joins as a new node, {JOINS_ANEW}"
            );
            return Err(Problem::new(ProblemCode::Unauthorized, detail).into());
        }
        let ttl_secs = self.hear(node, Kind::Call)?;
        let mark = state
            .node(node)
            .map(|node| node.internal_token)
            .unwrap_or_default();
        let counts = state.feature_level >= State::COUNTS_INTERNAL_TOKENS;
        if counts && token.number > mark.number {
            self.note_shown(tier, node, token.number).await?;
        }
        // Whoever shows an earlier one is handed nothing: the newest has arrived, as its worker has proved.
        let is_newest = token.number >= mark.number;
        let next = (counts && is_newest && token.is_due(now_unix_secs)).then(|| {
            let number = mark.number.max(token.number).saturating_add(1);
            tier.internal_tokens
                .issue(&cluster_id, node, number, now_unix_secs)
        });
        Ok((Shown { node, term, next }, ttl_secs))
    }

    /// The state, with the node in it. A worker of this form that the cluster does not know is told how it comes back.
    pub(super) async fn known(&self, node: NodeId) -> Result<Arc<State>, Wrong> {
        match self.state_with(node).await {
            Ok(state) => Ok(state),
            Err(Refusal::UnknownNode) => Err(gone(node)),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The worker has its answer, which it proves by what it shows. On the disks of the servers before anything else is
    /// said, so that no later leader takes a repeated registration for a lost answer.
    async fn note_shown(&self, tier: &WorkerTier, node: NodeId, number: u32) -> Result<(), Refusal> {
        let shown = NodeCommand::InternalTokenShown {
            node,
            number,
            earlier_until_unix_secs: self.now_unix_secs().saturating_add(OVERLAP_SECS),
        };
        let written = self.options.input.write(Command::Node(shown), None).await;
        written.map_err(|error| self.refusal(error))?;
        if number > FIRST_TOKEN {
            let renewed = Event::new(EventKind::InternalTokenRenewed).with_node(node);
            tier.event_log.note(Event {
                author: Some(format!("worker {node}")),
                ..renewed
            });
        }
        Ok(())
    }
}

/// The number of the one that registration gives.
const FIRST_TOKEN: u32 = 1;
/// What a worker of this form does that has no identity any more.
const JOINS_ANEW: &str = "by `register` with a bootstrap token that it has not joined with, and where it sends a \
                          `csr_pem` or a `client_id`, with a new one";

/// The node was removed, and its id with it.
pub(super) fn gone(node: NodeId) -> Wrong {
    let detail = format!(
        "the cluster does not know node {node}, or has removed it: the worker stops what it runs; it comes back as a new \
         node, {JOINS_ANEW}"
    );
    Problem::new(ProblemCode::NotFound, detail).into()
}
