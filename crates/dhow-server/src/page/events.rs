//! What happened, the newest first; and who asked for it, for those who may know.

use std::sync::Arc;

use dhow_wire::Problem;
use maud::{Markup, html};

use super::calls::failed;
use super::context::Page;
use super::format::cut;
use super::html::{moment, nothing, table};
use super::limits::EVENTS_SHOWN;
use super::place::{EventsQuery, of_deployment, of_node, of_replica, of_service};
use super::search::{Search, in_memory, on_disk};
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use crate::plane::runtime::EventRecord;

pub(super) async fn view(page: &Page, viewer: &Viewer, asked: &EventsQuery) -> Result<View, Box<Problem>> {
    let search = Search::new(asked, viewer.may_act());
    let manager = page.manager();
    manager.view().settle_events().await;
    let is_audit = asked.audit && viewer.may_act();
    let reader = match is_audit {
        true => manager.view().audit_reader(),
        false => manager.view().event_reader(),
    };
    let found = match reader.filter(|_| asked.all).cloned() {
        Some(reader) => {
            let read = tokio::task::spawn_blocking(move || on_disk(&reader, &search)).await;
            read.map_err(|_| Box::new(failed("reading the event log failed")))?
        }
        None => in_memory(manager.view().events(), &search, EVENTS_SHOWN),
    };
    let shown = rows(&found, viewer.may_act());
    let rows = match asked.all {
        // It is not read from disk again and again.
        true => Block::still("events", shown),
        false => Block::live("events", shown),
    };
    let blocks = vec![Block::still("filter", filter(asked, viewer)), rows];
    Ok(View::new("Events", Section::Events, blocks))
}

/// The newest events about one replica.
pub(super) fn newest_of(page: &Page, deployment: &str, id: &str, max: usize) -> Vec<Arc<EventRecord>> {
    let everything = Search::new(&EventsQuery::default(), false);
    let all = in_memory(page.manager().view().events(), &everything, usize::MAX);
    let own = all.into_iter().filter(|record| {
        let event = &record.event;
        event.replica.as_deref() == Some(id)
            && event
                .deployment
                .as_ref()
                .is_some_and(|name| name.as_str() == deployment)
    });
    own.take(max).collect()
}

/// The kind as people read it.
pub(super) fn word(record: &EventRecord) -> String {
    let value = serde_json::to_value(record.event.kind).ok();
    let word = value.as_ref().and_then(|value| value.as_str());
    word.unwrap_or_default().replace('_', " ")
}

fn filter(asked: &EventsQuery, viewer: &Viewer) -> Markup {
    html! {
        div.heading {
            h1 { "Events" }
            form.search method="get" action="/ui/events" role="search" {
                label.unseen for="q" { "Words" }
                input id="q" name="q" type="search" value=(asked.search) placeholder="Kind, name, node or message" autocomplete="off";
                label.inline { "from " input name="from" type="datetime-local" value=(asked.from); }
                label.inline { "to " input name="to" type="datetime-local" value=(asked.to); " UTC" }
                @if viewer.may_act() {
                    label.inline { input type="checkbox" name="audit" value="1" checked[asked.audit]; " only what somebody asked for" }
                }
                label.inline { input type="checkbox" name="all" value="1" checked[asked.all]; " all that are kept" }
                button type="submit" { "Search" }
            }
        }
    }
}

fn rows(found: &[Arc<EventRecord>], sees_authors: bool) -> Markup {
    let mut head = vec![
        ("Time (UTC)", ""),
        ("What", ""),
        ("Whom", ""),
        ("Node", "number wide"),
        ("Message", ""),
    ];
    if sees_authors {
        head.push(("Asked by", "wide"));
    }
    let rows = html! { @for record in found { (row(record, sees_authors)) } };
    html! {
        @if found.is_empty() { (nothing("No event is like this.")) }
        @else { (table("Events", &head, &rows)) }
        @if found.len() == EVENTS_SHOWN { p.hint { "The newest " (EVENTS_SHOWN) ". Narrow the time to see those before." } }
    }
}

fn row(record: &EventRecord, sees_authors: bool) -> Markup {
    let event = &record.event;
    html! {
        tr data-key=(record.id().to_string()) {
            td.time { @if let Some(at) = record.wall_unix_ms { (moment(at)) } }
            td { (word(record)) }
            td { (whom(record)) }
            td.number.wide { @if let Some(node) = event.node_id { a href=(of_node(node.0)) { (node) } } }
            td.message { @if let Some(message) = &event.message { (cut(message, 400)) } }
            @if sees_authors { td.wide { @if let Some(author) = &event.author { (author) } } }
        }
    }
}

fn whom(record: &EventRecord) -> Markup {
    let event = &record.event;
    let Some(deployment) = &event.deployment else {
        return html! {};
    };
    let deployment = deployment.as_str();
    html! {
        @if let Some(id) = &event.replica { a href=(of_replica(deployment, id)) { (deployment) "/" (id) } }
        @else if let Some(service) = &event.service { a href=(of_service(deployment, service.as_str())) { (deployment) "/" (service) } }
        @else { a href=(of_deployment(deployment)) { (deployment) } }
    }
}
