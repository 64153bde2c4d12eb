//! `/events`: the event log, from any place on that is kept.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use dhow_core::ids::DeploymentName;
use dhow_core::state::ApiRole;
use dhow_wire::{Problem, ProblemCode};
use serde::Deserialize;

use super::access::{Principal, Scope};
use super::context::Context;
use super::extract::Query;
use super::feed;
use super::limits::EVENTS_AT_ONCE;
use super::problem::{Answer, ApiProblem};
use crate::plane::runtime::{BadEventId, EventId, EventRecord, ReadEventsError, RuntimeView};

/// The query of `/events`.
#[derive(Deserialize)]
pub(super) struct Params {
    since: Option<String>,
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    audit: bool,
}

/// Server-sent: each event's `id` is its place, `event` its kind, `data` a [`dhow_wire::api::EventDocument`].
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events",
    params(
        ("since" = Option<String>, Query, pattern = r"^[0-9]{1,19}(\.[0-9]{1,9})?$", description = "A revision such as 17, or an event such as 17.2; all that are kept where it is absent"),
        ("follow" = Option<bool>, Query, description = "Whether to go on with what happens from then on"),
        ("audit" = Option<bool>, Query, description = "Only what somebody asked for, with its author; not with a token that may only read"),
        ("Last-Event-ID" = Option<String>, Header, pattern = r"^[0-9]{1,19}(\.[0-9]{1,9})?$", description = "The last event that was seen; wins over `since`")
    ),
    responses((status = 200, body = super::openapi::ServerSentEvent, content_type = "text/event-stream"))
)]
pub(super) async fn follow(
    State(context): State<Context>,
    Query(params): Query<Params>,
    Extension(principal): Extension<Principal>,
    scope: Scope,
    headers: HeaderMap,
) -> Answer<Response> {
    let is_reader = matches!(
        principal,
        Principal::Token {
            role: ApiRole::Read | ApiRole::Deploy(_),
            ..
        }
    ) || scope != Scope::Whole;
    if params.audit && is_reader {
        return Err(ApiProblem::new(
            ProblemCode::Forbidden,
            "who did what is for administrators: use a token that `dhow token create --role admin` made",
        ));
    }
    let after = begins(&params, &headers)?;
    let view = context.manager().view().clone();
    view.settle_events().await;
    // The first look decides the answer's status: what is gone is told before the stream begins.
    let (first, mut after) = next(&view, after, params.audit).await?;
    let (follow, audit) = (params.follow, params.audit);
    Ok(feed::events(context.end, |feed| async move {
        let mut records = first;
        let mut newest = view.events().newest();
        loop {
            for record in &records {
                let id = record.id();
                let deployment = record.event.deployment.as_ref().map(DeploymentName::as_str);
                if audit && record.event.author.is_none() || !scope.tells(deployment) {
                    after = id;
                    continue;
                }
                let mut record = EventRecord::clone(record);
                if is_reader {
                    record.event.author = None;
                }
                let event = Event::default().id(id.to_string()).event(kind(&record));
                // A record is texts and numbers, which can always be written.
                let event = event.json_data(&record).map_err(|_| feed::Gone)?;
                feed.send(Ok(event)).await?;
                after = id;
            }
            if records.is_empty() && (!follow || newest.wait_for(|id| *id > after).await.is_err()) {
                return Ok(());
            }
            match next(&view, after, audit).await {
                Ok(found) => (records, after) = found,
                Err(problem) => return feed.event("error", &*problem.0).await,
            }
        }
    }))
}

/// The place to begin behind. Both are read, so that a slip in one is not hidden by the other.
fn begins(params: &Params, headers: &HeaderMap) -> Answer<EventId> {
    let parse = |text: &str| {
        let place = text.parse();
        place.map_err(|error: BadEventId| ApiProblem::bad_request(error.to_string()))
    };
    let since = params.since.as_deref().map(parse).transpose()?;
    let header = headers.get("last-event-id");
    let seen = header
        .map(|value| parse(value.to_str().unwrap_or_default()))
        .transpose()?;
    Ok(seen.or(since).unwrap_or_default())
}

/// The word of the kind, as the record's JSON has it.
fn kind(record: &EventRecord) -> String {
    let value = serde_json::to_value(record.event.kind).ok();
    let word = value.as_ref().and_then(|value| value.as_str());
    word.unwrap_or_default().to_owned()
}

/// The next events after a place, and the place to go on from where there are none: from memory, or from disk
/// where memory does not reach back; what somebody asked for from files that reach back further.
async fn next(view: &RuntimeView, after: EventId, audit: bool) -> Answer<(Vec<Arc<EventRecord>>, EventId)> {
    let too_old = match view.events().since(after, EVENTS_AT_ONCE) {
        Ok(records) => return Ok((records, after)),
        Err(too_old) => too_old,
    };
    let reader = match audit {
        true => view.audit_reader(),
        false => view.event_reader(),
    };
    let Some(reader) = reader.cloned() else {
        return match after.revision.0 {
            // From the beginning means all that is kept.
            0 => Ok((
                view.events()
                    .since(too_old.up_to, EVENTS_AT_ONCE)
                    .unwrap_or_default(),
                too_old.up_to,
            )),
            _ => Err(gone(format!("events up to {} are no longer kept", too_old.up_to))),
        };
    };
    let read = tokio::task::spawn_blocking(move || reader.since(after, EVENTS_AT_ONCE)).await;
    match read {
        Ok(Ok(records)) if records.is_empty() => {
            let records = view
                .events()
                .since(too_old.up_to, EVENTS_AT_ONCE)
                .unwrap_or_default();
            Ok((records, too_old.up_to))
        }
        Ok(Ok(records)) => Ok((records.into_iter().map(Arc::new).collect(), after)),
        Ok(Err(ReadEventsError::Gone(error))) => Err(gone(error.to_string())),
        Ok(Err(error @ ReadEventsError::Io { .. })) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the event log cannot be read"
            );
            Err(ApiProblem::new(ProblemCode::Internal, error.to_string()))
        }
        Err(_) => Err(ApiProblem::new(
            ProblemCode::Internal,
            "reading the event log failed",
        )),
    }
}

fn gone(detail: String) -> ApiProblem {
    Problem::new(ProblemCode::RevisionGone, detail).into()
}
