//! A deployment: its services, a rollout as it happens with the old and the new side by side, its history and what can be
//! done to it.

use std::collections::BTreeMap;

use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::spec::RType;
use dhow_core::state::Service;
use dhow_wire::api::{HistoryEntry, Progress, RevisionState, ServiceProgress};
use dhow_wire::{DeploymentStatus, Problem, ReplicaStatus, ServedEndpoint};
use maud::{Markup, html};

use super::calls::failed;
use super::context::Page;
use super::format::{count, cut};
use super::html::{Tone, action, badge, bar, replica_badge, table, time};
use super::limits::{ROWS, SIDE_MAX};
use super::overview::state_line;
use super::place::{of_deployment, of_replica, of_service};
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use crate::plane::services::{Listings, NoSuchName, ReplicaWindow};

/// So many services are in the order of their names: with more of them, those that need somebody come first.
const IN_ORDER_MAX: usize = 20;

/// Everything that the page shows, of one state.
struct Known {
    status: DeploymentStatus,
    progress: Progress,
    history: Vec<HistoryEntry>,
    kinds: BTreeMap<String, RType>,
    /// Replicas of services whose old ones are being replaced.
    rolling: Vec<Rolling>,
}

/// The two sides of a rollout.
struct Rolling {
    service: String,
    old: Vec<ReplicaStatus>,
    new: Vec<ReplicaStatus>,
    has_more: bool,
}

pub(super) async fn view(page: &Page, viewer: &Viewer, name: &str) -> Result<View, Box<Problem>> {
    let (manager, wanted) = (page.manager().clone(), name.to_owned());
    let looked =
        tokio::task::spawn_blocking(move || manager.listed(|listings| look(listings, &wanted))).await;
    let known = looked.map_err(|_| Box::new(failed("looking at the deployment failed")))?;
    let known = known.map_err(|error| Box::new(error.into()))?;
    let mut blocks = vec![
        Block::live("head", head(&known)),
        Block::live("rolling", rolling(&known)),
        Block::live("services", services(&known)),
        Block::live("history", history(&known, viewer)),
    ];
    if viewer.may_act() {
        blocks.push(Block::still("actions", actions(name, viewer)));
    }
    Ok(View::new(name, Section::Overview, blocks))
}

fn look(listings: &Listings<'_>, name: &str) -> Result<Known, NoSuchName> {
    let status = listings.deployment(name)?;
    let progress = listings.progress(name)?;
    let deployment = DeploymentName::new(name).ok();
    let service = |service: &str| {
        let service = ServiceName::new(service).ok()?;
        listings.state.service_named(deployment.as_ref()?, &service)
    };
    let known: Vec<&Service> = status
        .services
        .iter()
        .filter_map(|summary| service(&summary.name))
        .map(AsRef::as_ref)
        .collect();
    let kinds = known
        .iter()
        .map(|service| (service.key.service.to_string(), service.rtype()));
    let rolling = progress.services.iter().filter(|service| service.outdated > 0);
    let rolling = rolling.filter_map(|progress| {
        let service = known
            .iter()
            .find(|service| service.key.service.as_str() == progress.name)?;
        Some(sides(listings, service))
    });
    Ok(Known {
        history: listings.history(name)?,
        kinds: kinds.collect(),
        rolling: rolling.collect(),
        progress,
        status,
    })
}

fn sides(listings: &Listings<'_>, service: &Service) -> Rolling {
    let window = ReplicaWindow {
        skip: 0,
        take: 2 * SIDE_MAX + 1,
        only_ill: false,
    };
    let mut shown = listings.replicas_within(service, window);
    let has_more = shown.len() > 2 * SIDE_MAX;
    shown.truncate(2 * SIDE_MAX);
    let is_new = |replica: &ReplicaStatus| {
        let generation = replica.generation.map(dhow_core::ids::Generation);
        generation.is_none_or(|generation| service.is_current(generation))
    };
    let (new, old) = shown.into_iter().partition(is_new);
    Rolling {
        service: service.key.service.to_string(),
        old,
        new,
        has_more,
    }
}

fn head(known: &Known) -> Markup {
    let status = &known.status;
    let current = known.history.iter().find(|entry| entry.current);
    html! {
        div.head {
            p.trail { a href="/ui/" { "Overview" } }
            h1 { (status.deployment) }
            (state_line(status.state, &status.message.iter().cloned().collect::<Vec<_>>()))
            p.facts {
                "revision " b { (status.revision) }
                @if let Some(current) = current { " by " b { (current.author) } ", " (time(current.created_unix_secs)) }
            }
            @if !status.notes.is_empty() {
                ul.notes { @for note in &status.notes { li { (badge(Tone::Attention, "note")) " " (note) } } }
            }
        }
    }
}

fn rolling(known: &Known) -> Markup {
    html! {
        @for service in &known.rolling {
            section.rollout aria-label={ "Rollout of " (service.service) } {
                h2 { "Rollout of " (service.service) }
                div.sides {
                    (side(known, "Old", &service.old, &service.service))
                    (side(known, "New", &service.new, &service.service))
                }
                @if service.has_more {
                    p.hint { "The first " (2 * SIDE_MAX) " replicas; " a href=(of_service(&known.status.deployment, &service.service)) { "all of them" } }
                }
            }
        }
    }
}

fn side(known: &Known, title: &str, replicas: &[ReplicaStatus], service: &str) -> Markup {
    let revision = replicas.iter().find_map(|replica| replica.revision);
    let image = replicas.iter().find_map(|replica| replica.image.as_deref());
    html! {
        div.side {
            h3 {
                (title)
                @if let Some(revision) = revision { " · revision " (revision) }
                small { " " (replicas.len()) }
            }
            @if let Some(image) = image { p.image { code { (image) } } }
            ul.chips {
                @for replica in replicas.iter().take(SIDE_MAX) {
                    li data-key={ (replica.id) "#" (replica.generation.unwrap_or_default()) } {
                        a href=(of_replica(&known.status.deployment, &replica.id)) { (short(replica, service)) }
                        " " (replica_badge(replica))
                        @if let Some(node) = replica.node_id { small { " node " (node) } }
                        @if let Some(message) = &replica.message { p.why { (cut(message, 200)) } }
                    }
                }
            }
        }
    }
}

/// The id without the service's name, which stands above.
pub(super) fn short(replica: &ReplicaStatus, service: &str) -> String {
    let rest = replica
        .id
        .strip_prefix(service)
        .and_then(|rest| rest.strip_prefix('-'));
    let rest = rest.unwrap_or(&replica.id);
    rest.strip_prefix("default-")
        .map_or_else(|| rest.to_owned(), |index| format!("#{index}"))
}

fn services(known: &Known) -> Markup {
    let head = [
        ("Service", ""),
        ("State", ""),
        ("Replicas", "number"),
        ("", "wide"),
        ("Endpoints", "wide"),
        ("Calls", "wide number"),
    ];
    let mut shown: Vec<&ServiceProgress> = known.progress.services.iter().collect();
    if shown.len() > IN_ORDER_MAX {
        shown.sort_by_key(|service| service_tone(service).0);
    }
    let rows = html! {
        @for service in shown.into_iter().take(10 * ROWS) { (service_row(known, service)) }
    };
    html! {
        section {
            h2 { "Services" }
            (table("Services", &head, &rows))
            @if known.progress.services.len() > 10 * ROWS {
                p.hint { "The first " (10 * ROWS) "; " code { "dhow status" } " lists all." }
            }
        }
    }
}

fn service_tone(service: &ServiceProgress) -> (Tone, &'static str) {
    let begins = service.starting > 0 || service.pulling.is_some();
    if service.failed > 0 {
        return (Tone::Bad, "failing");
    }
    if service.outdated > 0 {
        return (Tone::Working, "rolling");
    }
    match (
        service.desired,
        service.healthy && service.running >= service.desired,
    ) {
        (0, _) => (Tone::Off, "none wanted"),
        (_, true) => (Tone::Well, "well"),
        (_, false) if begins => (Tone::Working, "starting"),
        (_, false) if service.pending > 0 => (Tone::Attention, "waiting"),
        (_, false) => (Tone::Attention, "not healthy"),
    }
}

fn service_row(known: &Known, service: &ServiceProgress) -> Markup {
    let deployment = &known.status.deployment;
    let (tone, word) = service_tone(service);
    let summary = known
        .status
        .services
        .iter()
        .find(|summary| summary.name == service.name);
    let served = known
        .status
        .served
        .iter()
        .filter(|served| served.service == service.name);
    let served: Vec<&ServedEndpoint> = served.collect();
    let new = service.updated.unwrap_or(service.running).min(service.running);
    let label = format!("{} of {} replicas run", service.running, service.desired);
    let parts = [("new", u64::from(new)), ("old", u64::from(service.running - new))];
    html! {
        tr data-key=(service.name) {
            th scope="row" {
                a.name href=(of_service(deployment, &service.name)) { (service.name) }
                @if let Some(kind) = known.kinds.get(&service.name) { (kind_word(*kind)) }
                @if let Some(message) = &service.message { p.why { (cut(message, 300)) } }
            }
            td { (badge(tone, word)) }
            td.number {
                (count(service.running.into())) small { " / " (count(service.desired.into())) }
                @if let Some(done) = service.done { br; small { (count(done.into())) " done" } }
            }
            td.wide.bars { (bar(&label, &parts, service.desired.into())) }
            td.wide {
                @for endpoint in &served { div { code { (endpoint.address) } @if endpoint.public { " " small { "public" } } } }
                @if let Some(next) = summary.and_then(|summary| summary.next_run_unix_secs) { div { "next run " (time(next)) } }
            }
            td.wide.number { @for endpoint in &served { div { (calls(endpoint)) } } }
        }
    }
}

fn kind_word(kind: RType) -> Markup {
    let word = match kind {
        RType::Service => return html! {},
        RType::Job => "job",
        RType::Cron => "cron",
        RType::System => "system",
    };
    html! { " " small { (word) } }
}

fn calls(endpoint: &ServedEndpoint) -> Markup {
    let Some(calls) = endpoint.requests_per_second else {
        return html! { "–" };
    };
    let errors = endpoint.errors_per_second.unwrap_or_default();
    html! {
        (format!("{calls:.1}")) small { " /s" }
        @if errors > 0.0 { " · " b { (format!("{errors:.1}")) } small { " errors" } }
    }
}

fn history(known: &Known, viewer: &Viewer) -> Markup {
    let head = [
        ("Revision", ""),
        ("Outcome", ""),
        ("When", ""),
        ("By", "wide"),
        ("Images", "wide"),
        ("", ""),
    ];
    let rows = html! {
        @for (place, entry) in known.history.iter().enumerate() {
            (revision(known, entry, known.history.get(place + 1), viewer))
        }
    };
    html! {
        section {
            h2 { "History" }
            (table("History", &head, &rows))
        }
    }
}

fn outcome_tone(state: RevisionState) -> Tone {
    match state {
        RevisionState::Deploying => Tone::Working,
        RevisionState::Good => Tone::Well,
        RevisionState::Superseded => Tone::Off,
        RevisionState::Reverted | RevisionState::Conflicted => Tone::Attention,
        RevisionState::Failed => Tone::Bad,
    }
}

fn revision(known: &Known, entry: &HistoryEntry, before: Option<&HistoryEntry>, viewer: &Viewer) -> Markup {
    let place = of_deployment(&known.status.deployment);
    let rollback = format!("{place}/rollback");
    let what = html! {
        input type="hidden" name="to" value=(entry.revision);
        p { "What revision " (entry.revision) " asked for comes back as a new revision." }
    };
    html! {
        tr data-key=(entry.revision) {
            th scope="row" { (entry.revision) @if entry.current { " " small { "current" } } }
            td {
                (badge(outcome_tone(entry.state), entry.state.as_str()))
                @if let Some(back) = entry.brings_back { small { " brings back " (back) } }
                @if let Some(cause) = &entry.cause { p.why { (cut(cause, 600)) } }
            }
            td { (time(entry.created_unix_secs)) }
            td.wide { (entry.author) }
            td.wide { @for image in entry.images.iter().take(4) { div { code { (image) } } } }
            td {
                @if let Some(before) = before {
                    a href={ (place) "/diff?from=" (before.revision) "&to=" (entry.revision) } { "What changed" }
                }
                @if viewer.may_act() && !entry.current { (action(viewer, &rollback, &place, "Roll back", &what)) }
            }
        }
    }
}

fn actions(name: &str, viewer: &Viewer) -> Markup {
    let place = of_deployment(name);
    let what =
        html! { p { "New replicas of the same revision take the place of all that run, a few at a time." } };
    html! {
        section.actions aria-label="Actions" {
            (action(viewer, &format!("{place}/restart"), &place, "Restart all services", &what))
        }
    }
}
