//! Every server answers for the cluster: what only the leader knows is asked there, wherever the caller came in.
//!
//! Stands before the handlers of routes that the leader answers: `router.rs` says which these are. Reads wait until this leader is known to still be one; writes are tried again where
//! they certainly changed nothing, or where their idempotency key makes that safe: so that an election is a delay for
//! callers and not a failure.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dhow_core::ids::{NodeId, Revision};
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use dhow_wire::{ClusterModeName, Problem, ProblemCode};
use tokio::time::Instant;

use super::caller::{KEY_HEADER, principal};
use super::context::Context;
use super::extract::read;
use super::limits::{
    DEPLOYMENT_BYTES_MAX, FOLLOW_WAIT, LEADER_WAIT, PROBLEM_BYTES_MAX, RETRY_PAUSE, WRITE_TIMEOUT,
};
use super::problem::ApiProblem;
use crate::gateway::WORKER_BODY_BYTES_MAX;
use crate::net::peer_http::PeerHttpError;

/// Marks a request that another server has passed on: it is not passed on again.
pub(super) static FORWARDED: HeaderName = HeaderName::from_static("x-dhow-forwarded");
/// The revision of the state that an answer was made from.
pub(super) static REVISION: HeaderName = HeaderName::from_static("x-dhow-revision");

/// Headers that belong to one connection and are not passed on.
const HOP_HEADERS: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];

/// How a route that the leader answers is passed on to it; declared where the route is.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfLeader {
    /// The largest body.
    pub body_bytes_max: usize,
    /// Whether the leader may take as long as it likes: it follows something, or waits for as long as the caller says.
    pub waits: bool,
    /// Whether the same caller saying the same again is known, without an idempotency key.
    pub is_repeatable: bool,
    /// Whether a read of it may be about the past, which every server answers as it has kept it.
    pub has_past: bool,
}

impl OfLeader {
    /// A question or a change that is answered at once.
    pub const PLAIN: Self = Self {
        body_bytes_max: DEPLOYMENT_BYTES_MAX,
        waits: false,
        is_repeatable: false,
        has_past: false,
    };
    /// The same where the question may be about the past.
    pub const WITH_PAST: Self = Self {
        has_past: true,
        ..Self::PLAIN
    };
    /// What follows a deployment for as long as it takes.
    pub const FOLLOWS: Self = Self {
        waits: true,
        ..Self::PLAIN
    };
    /// What workers say in the JSON form: the same worker saying the same again is known.
    pub const OF_WORKER: Self = Self {
        body_bytes_max: WORKER_BODY_BYTES_MAX,
        waits: false,
        is_repeatable: true,
        has_past: false,
    };
    /// A worker's poll, which waits for as long as it says, a minute at most.
    pub const WORKER_POLL: Self = Self {
        waits: true,
        ..Self::OF_WORKER
    };
}

/// Answers a request of such a route here where this server leads, and passes it on to the leader where it does not.
pub(super) async fn route(
    State((context, how)): State<(Context, OfLeader)>,
    request: Request,
    next: Next,
) -> Response {
    if context.api.cluster.mode() == ClusterModeName::SingleNode
        || is_stale(&request)
        || how.has_past && is_past(&request)
    {
        return next.run(request).await;
    }
    let was_forwarded = request.headers().contains_key(&FORWARDED);
    match Kept::of(request, how).await {
        Ok(kept) if was_forwarded => answer_forwarded(&context, &kept, next).await,
        Ok(kept) => answer(&context, &kept, next).await,
        Err(problem) => problem.into_response(),
    }
}

/// Whether the caller is content with what this server knows.
fn is_stale(request: &Request) -> bool {
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    let query = request.uri().query().unwrap_or_default();
    is_read && query.split('&').any(|pair| pair == "consistency=stale")
}

/// Whether it asks what was.
fn is_past(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET && query.split('&').any(|pair| pair.starts_with("at="))
}

/// A request that can be sent more than once.
struct Kept {
    parts: Parts,
    body: Bytes,
    how: OfLeader,
}

impl Kept {
    async fn of(request: Request, how: OfLeader) -> Result<Self, ApiProblem> {
        let (parts, body) = request.into_parts();
        let bare = Request::from_parts(parts.clone(), body);
        let body = read(bare, how.body_bytes_max).await?;
        Ok(Self { parts, body, how })
    }

    fn request(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }

    fn is_read(&self) -> bool {
        self.parts.method == Method::GET || self.parts.method == Method::HEAD
    }

    /// Whether doing it twice is doing it once.
    fn is_repeatable(&self) -> bool {
        self.is_read() || self.parts.headers.contains_key(KEY_HEADER) || self.how.is_repeatable
    }

    /// The same request for another server.
    async fn passed_on(&self) -> Request {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.parts.method.clone();
        if let Some(path) = self.parts.uri.path_and_query() {
            *request.uri_mut() = path.clone().into();
        }
        let headers = request.headers_mut();
        for (name, value) in &self.parts.headers {
            let stays = HOP_HEADERS.contains(name) || *name == header::AUTHORIZATION || *name == header::HOST;
            if !stays {
                headers.append(name, value.clone());
            }
        }
        headers.insert(&FORWARDED, HeaderValue::from_static("1"));
        headers.extend(principal(&self.parts).headers().await);
        request
    }
}

/// What one attempt came to.
enum Attempt {
    Done(Response),
    /// Nothing happened, or it may safely happen again; where time is up, this is the answer.
    Again(Response),
}

/// For how long a request is tried again. What counts is the time without a leader: one that has worked on the request
/// for a while, and was lost then, leaves its successor as much time as any.
struct Patience {
    begun: Instant,
    /// The time in which a leader had the request.
    was_worked_on: Duration,
}

impl Patience {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            was_worked_on: Duration::ZERO,
        }
    }

    /// A leader had the request since then.
    fn worked_on_since(&mut self, since: Instant) {
        self.was_worked_on += since.elapsed();
    }

    fn is_over(&self) -> bool {
        let all = self.begun.elapsed();
        all >= WRITE_TIMEOUT || all.saturating_sub(self.was_worked_on) >= LEADER_WAIT
    }
}

async fn answer(context: &Context, kept: &Kept, next: Next) -> Response {
    let mut patience = Patience::new();
    let mut leaderships = context.manager().view().leaderships();
    loop {
        let leadership = *leaderships.borrow_and_update();
        let tried = Instant::now();
        let attempt = match leadership.leader {
            Some(_) if leadership.is_here => here(context, kept, next.clone()).await,
            Some(leader) => there(context, kept, NodeId(leader)).await,
            None => Attempt::Again(no_leader(context.api.cluster.mode()).into_response()),
        };
        let response = match attempt {
            Attempt::Done(response) => return response,
            Attempt::Again(response) => response,
        };
        if leadership.leader.is_some() {
            patience.worked_on_since(tried);
        }
        if patience.is_over() {
            return response;
        }
        let news = tokio::time::timeout(RETRY_PAUSE, leaderships.changed()).await;
        if matches!(news, Ok(Err(_))) || context.end.is_cancelled() {
            return response;
        }
    }
}

/// A request that was passed on is answered by the leader or by nobody: the one who passed it on looks again.
async fn answer_forwarded(context: &Context, kept: &Kept, next: Next) -> Response {
    if !context.manager().view().leadership().is_here {
        return no_leader(context.api.cluster.mode()).into_response();
    }
    let mut response = match here(context, kept, next).await {
        Attempt::Done(response) | Attempt::Again(response) => response,
    };
    let revision = context.manager().state().revision.0;
    response
        .headers_mut()
        .insert(&REVISION, HeaderValue::from(revision));
    response
}

async fn here(context: &Context, kept: &Kept, next: Next) -> Attempt {
    if kept.is_read() && context.api.cluster.barrier().await.is_err() {
        return Attempt::Again(no_leader(context.api.cluster.mode()).into_response());
    }
    let response = next.run(kept.request()).await;
    let code = response.extensions().get::<ProblemCode>().copied();
    match code {
        Some(ProblemCode::NoLeader) => Attempt::Again(response),
        Some(ProblemCode::OutcomeUnknown) if kept.is_repeatable() => Attempt::Again(response),
        Some(_) | None => Attempt::Done(response),
    }
}

async fn there(context: &Context, kept: &Kept, leader: NodeId) -> Attempt {
    let members = context.api.cluster.members();
    let member = members.iter().find(|member| member.node == leader);
    let Some(api_addr) = member.and_then(|member| member.api_addr) else {
        return Attempt::Again(no_leader(context.api.cluster.mode()).into_response());
    };
    let asked = context.api.peers.send(leader, api_addr, kept.passed_on().await);
    let late = || PeerHttpError::Broken {
        node: leader,
        why: "it takes too long".into(),
    };
    let answered = tokio::select! {
        answered = asked => answered,
        () = tokio::time::sleep(WRITE_TIMEOUT), if !kept.how.waits => Err(late()),
        // One that hangs or is cut off never answers; whoever leads after it does.
        () = deposed(context, leader), if kept.is_repeatable() => Err(PeerHttpError::Broken {
            node: leader,
            why: "it does not lead any more".into(),
        }),
    };
    match answered {
        Ok(response) => received(context, kept, response.map(Body::new)).await,
        Err(error @ PeerHttpError::Connect { .. }) => {
            Attempt::Again(unreachable(ProblemCode::NoLeader, &error).into_response())
        }
        Err(error) if kept.is_repeatable() => {
            Attempt::Again(unreachable(ProblemCode::OutcomeUnknown, &error).into_response())
        }
        Err(error) => Attempt::Done(unreachable(ProblemCode::OutcomeUnknown, &error).into_response()),
    }
}

/// Waits until this server takes another one for the leader, or none.
async fn deposed(context: &Context, leader: NodeId) {
    let mut leaderships = context.manager().view().leaderships();
    let is_over = leaderships
        .wait_for(|now| now.leader != Some(leader.0))
        .await
        .is_err();
    if is_over {
        // The runtime ends, and with it the request.
        std::future::pending::<()>().await;
    }
}

/// Takes the leader's answer, once this server's own state has what it is about.
async fn received(context: &Context, kept: &Kept, response: Response) -> Attempt {
    if let Some(revision) = response.headers().get(&REVISION)
        && let Some(revision) = revision.to_str().ok().and_then(|text| text.parse().ok())
    {
        let mut states = context.manager().view().states();
        let caught_up = states.wait_for(|state| state.revision >= Revision(revision));
        // One that lags behind still passes the answer on; only its own streams may begin a little late.
        let _ = tokio::time::timeout(FOLLOW_WAIT, caught_up).await;
    }
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes() == PROBLEM_MEDIA_TYPE.as_bytes());
    let may_repeat = matches!(
        response.status(),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    if !is_problem || !may_repeat {
        return Attempt::Done(response);
    }
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, PROBLEM_BYTES_MAX)
        .await
        .unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok();
    let code = problem.and_then(|problem| ProblemCode::from_text(&problem.code));
    let response = Response::from_parts(parts, Body::from(body));
    match code {
        Some(ProblemCode::NoLeader | ProblemCode::ShuttingDown) => Attempt::Again(response),
        Some(ProblemCode::OutcomeUnknown) if kept.is_repeatable() => Attempt::Again(response),
        Some(_) | None => Attempt::Done(response),
    }
}

pub(super) fn no_leader(mode: ClusterModeName) -> ApiProblem {
    let needed = match mode {
        ClusterModeName::Static => "the lowest healthy peer takes over within the `failure_threshold`",
        ClusterModeName::SingleNode | ClusterModeName::Raft | ClusterModeName::WorkerTier => {
            "a majority of its servers must run and reach each other"
        }
    };
    ApiProblem::new(
        ProblemCode::NoLeader,
        format!(
            "the cluster has no leader at the moment: {needed}; try again shortly, or read with \
             `?consistency=stale` what this server knows"
        ),
    )
}

fn unreachable(code: ProblemCode, error: &PeerHttpError) -> ApiProblem {
    ApiProblem::new(code, format!("the leader does not answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(span: Duration) {
        tokio::time::advance(span).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_leader_worked_on_a_request_is_not_its_successors() {
        let mut patience = Patience::new();
        let tried = Instant::now();
        pass(LEADER_WAIT * 2).await;
        patience.worked_on_since(tried);
        assert!(!patience.is_over(), "the next leader has not had any time");
        pass(LEADER_WAIT - RETRY_PAUSE).await;
        assert!(!patience.is_over());
        pass(RETRY_PAUSE).await;
        assert!(patience.is_over(), "there is no other leader");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_tried_for_longer_than_a_write_may_take() {
        let mut patience = Patience::new();
        while !patience.is_over() {
            let tried = Instant::now();
            pass(LEADER_WAIT).await;
            patience.worked_on_since(tried);
        }
        assert_eq!(patience.begun.elapsed(), WRITE_TIMEOUT);
    }
}
