//! `POST /api/v1/workers/poll`: waits until there is news of the worker's assignment, or the time is over.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use dhow_core::dispatch::dispatch_since;
use dhow_core::ids::Revision;
use dhow_core::state::Drain;
use dhow_wire::grpc::Refusal;
use dhow_wire::{WorkerAssignmentEvent, WorkerPollRequest, WorkerPollResponse};

use super::answer::{Answer, json, read};
use super::events::events_of;
use crate::gateway::node_gateway::NodeGateway;
use crate::gateway::rates::Kind;

pub(super) async fn poll(
    State(gateway): State<NodeGateway>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let request: WorkerPollRequest = read(body)?;
    let inner = &gateway.inner;
    let node = inner.shown(&headers, request.node_id)?;
    let term = inner.leading_term().await?;
    inner.state_with(node).await?;
    inner.hear(node, Kind::Call)?;
    let (view, clock) = (&inner.options.view, &inner.options.clock);
    let mut changes = view.node_changes(node);
    let mut terms = inner.options.leases.terms();
    let wait_ms = u64::from(request.wait_secs()) * 1_000;
    let until_ms = clock.monotonic_ms().saturating_add(wait_ms);
    loop {
        changes.borrow_and_update();
        let state = inner.state_with(node).await?;
        let known = state.node(node).ok_or(Refusal::UnknownNode)?;
        let last = Some(Revision(request.last_revision)).filter(|last| last.0 > 0);
        let mut events = match dispatch_since(&state, node, last) {
            Some(dispatch) => events_of(&dispatch),
            None => Vec::new(),
        };
        if let Drain::Draining { shutdown: true } | Drain::Drained { shutdown: true } = known.drain {
            let revision = known.eligibility.0;
            events.push(WorkerAssignmentEvent::Drain { revision });
        }
        let response = WorkerPollResponse::above(request.last_revision, known.assignments.revision.0, events);
        if !response.events.is_empty() {
            return json(&response);
        }
        tokio::select! {
            biased;
            () = inner.options.end.cancelled() => return Err(Refusal::ShuttingDown.into()),
            _ = terms.wait_for(|now| *now != Some(term)) => return Err(inner.not_leader().into()),
            () = clock.sleep_until_monotonic(until_ms) => return json(&response),
            changed = changes.changed() => changed.map_err(|_| Refusal::ShuttingDown)?,
        }
    }
}
