//! A replica: how it is, what happened to it, why, what it uses, and its log as it is written.

use dhow_wire::api::LogRecord;
use dhow_wire::{Problem, ReplicaStatus};
use maud::{Markup, html};

use super::calls::Call;
use super::context::Page;
use super::events::newest_of;
use super::format::{bytes, cores, escaped};
use super::html::{moment, replica_badge, time};
use super::limits::{LOG_TAIL, LOG_TAIL_WAIT, REPLICA_EVENTS};
use super::log_lines::{read_lines, shown_line};
use super::place::{of_deployment, of_node, of_service};
use super::replica_table::or_dash;
use super::service::{explain, explained};
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use crate::plane::runtime::EventRecord;
use crate::plane::services::select;

pub(super) async fn view(
    page: &Page,
    viewer: &Viewer,
    deployment: &str,
    id: &str,
) -> Result<View, Box<Problem>> {
    let explanation = explain(page, viewer, deployment, id).await?;
    let state = page.manager().state();
    let selected = select(&state, deployment, Some(id)).map_err(|error| Box::new(error.into()))?;
    let lines: Vec<ReplicaStatus> = page.manager().listed(|listings| {
        let keys = selected.iter().map(|selected| &selected.key);
        keys.filter_map(|key| listings.replica_line(key)).collect()
    });
    let service = lines.first().map(|line| line.service.clone());
    page.manager().view().settle_events().await;
    let events = newest_of(page, deployment, id, REPLICA_EVENTS);
    let mut view = View::new(
        format!("{deployment}/{id}"),
        Section::Overview,
        vec![
            Block::live("head", head(deployment, id, service.as_deref(), &lines)),
            Block::live("why", why(&explanation)),
            Block::live("story", story(&events)),
            Block::still("log", log(page, viewer, deployment, id).await),
        ],
    );
    view.has_log = true;
    Ok(view)
}

fn head(deployment: &str, id: &str, service: Option<&str>, lines: &[ReplicaStatus]) -> Markup {
    html! {
        div.head {
            p.trail {
                a href="/ui/" { "Overview" } " / " a href=(of_deployment(deployment)) { (deployment) }
                @if let Some(service) = service { " / " a href=(of_service(deployment, service)) { (service) } }
            }
            h1 { (id) }
            @if lines.is_empty() { p.facts { "It is on no node at the moment." } }
            @for line in lines { (present(line)) }
        }
    }
}

fn present(line: &ReplicaStatus) -> Markup {
    html! {
        dl.facts-list data-key=(line.generation.unwrap_or_default()) {
            div { dt { "State" } dd { (replica_badge(line)) } }
            div { dt { "Node" } dd { @match line.node_id { Some(node) => a href=(of_node(node)) { (node) }, None => "–" } } }
            div { dt { "Revision" } dd { (or_dash(line.revision)) } }
            @if let Some(image) = &line.image { div { dt { "Image" } dd { code { (image) } } } }
            div { dt { "Started" } dd { @match line.started_unix_secs { Some(started) => (time(started)), None => "–" } } }
            div { dt { "Restarts" } dd { (line.restarts) } }
            div { dt { "CPU" } dd { (line.cpu_used_milli.map_or_else(|| "–".to_owned(), cores)) small { " cores" } } }
            div { dt { "Memory" } dd { (line.memory_used_bytes.map_or_else(|| "–".to_owned(), bytes)) } }
            @if let Some(pid) = line.pid { div { dt { "Process" } dd { (pid) } } }
            @if let Some(code) = line.exit_code { div { dt { "Exit code" } dd { (code) } } }
        }
        @if let Some(message) = &line.message { p.why { (message) } }
    }
}

fn why(explanation: &dhow_wire::api::Explanation) -> Markup {
    html! { section { h2 { "Why" } (explained(explanation, 8)) } }
}

fn story(events: &[std::sync::Arc<EventRecord>]) -> Markup {
    html! {
        section {
            h2 { "What happened" }
            @if events.is_empty() { p.nothing { "Nothing that this server remembers." } }
            ol.story {
                @for record in events {
                    li data-key=(record.id().to_string()) {
                        @if let Some(at) = record.wall_unix_ms { (moment(at)) }
                        " " b { (super::events::word(record)) }
                        @if let Some(node) = record.event.node_id { small { " node " (node) } }
                        @if let Some(message) = &record.event.message { span { " " (message) } }
                    }
                }
            }
        }
    }
}

/// The last lines; the stream of the page goes on with them.
async fn log(page: &Page, viewer: &Viewer, deployment: &str, id: &str) -> Markup {
    let path = log_path(deployment, id, false);
    let asked = tokio::time::timeout(LOG_TAIL_WAIT, page.ask(viewer, Call::get(path))).await;
    let lines: Vec<LogRecord> = match asked {
        Ok(Ok(bytes)) => read_lines(&bytes),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    html! {
        section.log aria-labelledby="log-title" {
            div.heading {
                h2 id="log-title" { "Log" }
                label.follow { input type="checkbox" id="log-follow" checked; " follow" }
            }
            div.lines id="log-lines" role="log" aria-live="off" tabindex="0" aria-label="Lines of the log" {
                @for line in &lines { (shown_line(line)) }
            }
        }
    }
}

pub(super) fn log_path(deployment: &str, id: &str, follow: bool) -> String {
    format!(
        "logs?deployment={}&name={}&tail={LOG_TAIL}&follow={follow}",
        escaped(deployment),
        escaped(id)
    )
}
