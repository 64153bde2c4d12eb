//! `POST /api/v1/workers/poll`: waits until there is news of the worker's assignment, or the time is over.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use dhow_core::assignment::assignment_since;
use dhow_core::ids::Revision;
use dhow_core::state::{Drain, Node, State as ClusterState};
use dhow_wire::grpc::Refusal;
use dhow_wire::worker::to_events;
use dhow_wire::{WorkerAssignmentEvent, WorkerPollRequest, WorkerPollResponse};

use super::answer::{Answer, gone, read};
use crate::gateway::node_gateway::NodeGateway;

/// What a worker of the JSON form is to run, once it differs from what it has recorded.
#[utoipa::path(
    post, path = "/api/v1/workers/poll", tag = "workers", request_body = WorkerPollRequest,
    params(("X-Dhow-Internal-Token" = String, Header, description = "The token that registration gave")),
    responses((status = 200, body = WorkerPollResponse))
)]
pub(in crate::gateway) async fn poll(
    State(gateway): State<NodeGateway>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let request: WorkerPollRequest = read(body)?;
    let inner = &gateway.inner;
    let (shown, _) = inner.proved(&headers, request.node_id).await?;
    let (node, term) = (shown.node, shown.term);
    let (view, clock) = (&inner.options.view, &inner.options.clock);
    let is_ahead = |state: &ClusterState| {
        let node = state.node(node);
        node.is_some_and(|node| request.last_revision > newest(node).0)
    };
    if request.last_revision == 0 || is_ahead(&view.state()) {
        // Everything is given here, and what is not in it ends: never from what may be old.
        inner.confirmed_state().await?;
    }
    let mut changes = view.node_changes(node);
    let mut terms = inner.options.leases.terms();
    let wait_ms = u64::from(request.wait_secs()) * 1_000;
    let until_ms = clock.monotonic_ms().saturating_add(wait_ms);
    loop {
        changes.borrow_and_update();
        let state = inner.known(node).await?;
        let known = state.node(node).ok_or_else(|| gone(node))?;
        let response = WorkerPollResponse {
            term: Some(term),
            ..news(&state, known, request.last_revision)
        };
        let is_told = response.whole && request.last_revision > 0;
        if is_told || !response.events.is_empty() {
            return shown.answer(&response);
        }
        tokio::select! {
            biased;
            () = inner.options.end.cancelled() => return Err(Refusal::ShuttingDown.into()),
            _ = terms.wait_for(|now| *now != Some(term)) => return Err(inner.not_leader().into()),
            () = clock.sleep_until_monotonic(until_ms) => return shown.answer(&response),
            changed = changes.changed() => changed.map_err(|_| Refusal::ShuttingDown)?,
        }
    }
}

/// The highest revision that a worker can have been told: that of its assignment, or of its drain.
fn newest(node: &Node) -> Revision {
    node.assignments.revision.max(node.eligibility)
}

/// What a worker has to be told that has recorded `last`; everything, where it has nothing, was away for too long, or
/// has recorded what this cluster has not said.
fn news(state: &ClusterState, node: &Node, last: u64) -> WorkerPollResponse {
    let assigned = node.assignments.revision;
    let is_ahead = last > newest(node).0;
    // A drain has a revision of its own, which is no part of the assignment.
    let since = match last > 0 && !is_ahead {
        true => Some(Revision(last).min(assigned)),
        false => None,
    };
    let told = assignment_since(state, node.id, since);
    let is_whole = told.as_ref().is_some_and(|assignment| assignment.whole);
    let mut events = told.as_ref().map(to_events).unwrap_or_default();
    if let Drain::Draining { shutdown: true } | Drain::Drained { shutdown: true } = node.drain {
        let revision = node.eligibility.0;
        if is_whole || revision > last {
            events.push(WorkerAssignmentEvent::Drain { revision });
        }
    }
    match is_whole {
        true => WorkerPollResponse::whole(assigned.0, events),
        // What it has recorded of a drain stays recorded.
        false => WorkerPollResponse::above(0, assigned.0.max(last), events),
    }
}
