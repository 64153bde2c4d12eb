//! The overview: what is not well comes first, with its reason; then the numbers, then every deployment.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::state::Liveness;
use dhow_wire::{DeploymentState, Problem};
use maud::{Markup, html};

use super::calls::failed;
use super::context::Page;
use super::format::{bytes, cores, count, len, plural};
use super::html::{Tone, badge, bar, deployment_badge, nothing, pager, query, table, time};
use super::limits::{ROWS, TROUBLES_MAX};
use super::place::{of_deployment, of_node};
use super::view::{Block, Section, View};
use super::viewer::Viewer;
use crate::plane::services::{DeploymentGlance, Overview};

pub(super) async fn view(
    page: &Page,
    viewer: &Viewer,
    search: &str,
    at: usize,
) -> Result<View, Box<Problem>> {
    let (glances, manager) = (Arc::clone(&page.glances), page.manager().clone());
    // A look at a hundred thousand replicas is work.
    let looked = tokio::task::spawn_blocking(move || glances.look(&manager)).await;
    let overview = looked.map_err(|_| Box::new(failed("looking at the cluster failed")))?;
    let blocks = vec![
        Block::live("unwell", unwell(page, &overview)),
        Block::live("numbers", numbers(page, &overview)),
        Block::still("search", form(search, overview.deployments.len())),
        Block::live("deployments", deployments(&overview, viewer, search, at)),
    ];
    Ok(View::new("Overview", Section::Overview, blocks))
}

/// How much attention a deployment asks for.
fn tone(glance: &DeploymentGlance) -> Tone {
    let is_stuck = glance.state == DeploymentState::Degraded && glance.running == 0 && glance.desired > 0;
    match Tone::of_deployment(glance.state) {
        Tone::Attention if is_stuck => Tone::Bad,
        tone => tone,
    }
}

/// One thing that somebody should look at.
struct Trouble {
    tone: Tone,
    word: String,
    name: String,
    to: String,
    why: Vec<String>,
}

fn troubles(page: &Page, overview: &Overview) -> Vec<Trouble> {
    let state = page.manager().state();
    let lost = state
        .nodes
        .values()
        .filter(|node| matches!(node.liveness, Liveness::Unreachable { .. }));
    let nodes = lost.map(|node| Trouble {
        tone: Tone::Bad,
        word: "unreachable".into(),
        name: format!("node {}", node.id),
        to: of_node(node.id.0),
        why: vec![lost_reason(node.id, node.reserving)],
    });
    let notices = page
        .inside
        .api
        .cluster
        .notices()
        .into_iter()
        .map(|notice| Trouble {
            tone: Tone::Attention,
            word: "notice".into(),
            name: "cluster".into(),
            to: "/ui/nodes".into(),
            why: vec![notice],
        });
    let deployments = overview.deployments.iter().filter(|glance| {
        let is_well = matches!(tone(glance), Tone::Well | Tone::Off);
        !is_well && (tone(glance) != Tone::Working || !glance.troubles.is_empty())
    });
    let deployments = deployments.map(|glance| Trouble {
        tone: tone(glance),
        word: glance.state.word().into(),
        name: glance.name.clone(),
        to: of_deployment(&glance.name),
        why: glance.troubles.clone(),
    });
    let mut all: Vec<Trouble> = deployments.chain(notices).chain(nodes).collect();
    all.sort_by_key(|trouble| trouble.tone);
    all
}

fn lost_reason(node: NodeId, replicas: u32) -> String {
    match replicas {
        0 => format!("nothing is heard of node {node}; it has no replicas"),
        1 => format!(
            "nothing is heard of node {node}; the replica that it had is placed elsewhere where that is possible"
        ),
        many => format!(
            "nothing is heard of node {node}; the {many} replicas that it had are placed elsewhere where that is possible"
        ),
    }
}

fn unwell(page: &Page, overview: &Overview) -> Markup {
    let all = troubles(page, overview);
    html! {
        section.unwell aria-labelledby="unwell-title" {
            @if all.is_empty() {
                h1 id="unwell-title" { (badge(Tone::Well, if overview.deployments.is_empty() { "Nothing is wrong" } else { "Everything is well" })) }
            } @else {
                h1 id="unwell-title" {
                    (len(all.len())) " " (plural(all.len(), "thing is", "things are")) " not well"
                }
                ul.troubles {
                    @for trouble in all.iter().take(TROUBLES_MAX) {
                        li {
                            (badge(trouble.tone, &trouble.word))
                            a.name href=(trouble.to) { (trouble.name) }
                            div.why { @for why in &trouble.why { p { (why) } } }
                        }
                    }
                }
                @if all.len() > TROUBLES_MAX {
                    p.hint { "and " (len(all.len() - TROUBLES_MAX)) " more, in the tables below and of the nodes" }
                }
            }
        }
    }
}

fn numbers(page: &Page, overview: &Overview) -> Markup {
    let all = &overview.deployments;
    let running: u64 = all.iter().map(|glance| u64::from(glance.running)).sum();
    let desired: u64 = all.iter().map(|glance| u64::from(glance.desired)).sum();
    let services: usize = all.iter().map(|glance| glance.services).sum();
    let well: usize = all.iter().map(|glance| glance.services_well).sum();
    let nodes =
        overview.nodes_ready + overview.nodes_draining + overview.nodes_drained + overview.nodes_unreachable;
    let leadership = page.manager().view().leadership();
    html! {
        dl.numbers {
            div { dt { "Services well" } dd { (len(well)) small { " of " (len(services)) } } }
            div { dt { "Replicas running" } dd { (count(running)) small { " of " (count(desired)) } } }
            div { dt { "Nodes ready" } dd { a href="/ui/nodes" { (len(overview.nodes_ready)) } small { " of " (len(nodes)) } } }
            div {
                dt { "CPU reserved" }
                dd { (cores(overview.cpu_reserved_milli)) small { " of " (cores(overview.cpu_capacity_milli)) " cores" } }
                (bar("CPU reserved", &[("used", overview.cpu_reserved_milli)], overview.cpu_capacity_milli))
            }
            div {
                dt { "Memory reserved" }
                dd { (bytes(overview.memory_reserved_bytes)) small { " of " (bytes(overview.memory_capacity_bytes)) } }
                (bar("Memory reserved", &[("used", overview.memory_reserved_bytes)], overview.memory_capacity_bytes))
            }
            div {
                dt { "Leader" }
                dd { @match leadership.leader { Some(leader) => a href=(of_node(leader)) { "node " (leader) }, None => "none" } }
            }
        }
    }
}

fn form(search: &str, deployments: usize) -> Markup {
    html! {
        div.heading {
            h2 { "Deployments" }
            @if deployments > 8 || !search.is_empty() {
                form.search method="get" action="/ui/" role="search" {
                    label.unseen for="q" { "Name of a deployment" }
                    input id="q" name="q" type="search" value=(search) placeholder="Filter by name or state" autocomplete="off";
                    button type="submit" { "Filter" }
                }
            }
        }
    }
}

fn deployments(overview: &Overview, viewer: &Viewer, search: &str, at: usize) -> Markup {
    let wanted = search.to_lowercase();
    let fits =
        |glance: &&DeploymentGlance| glance.name.contains(&wanted) || glance.state.word().contains(&wanted);
    let mut found: Vec<&DeploymentGlance> = overview.deployments.iter().filter(fits).collect();
    // Names are in order already.
    found.sort_by_key(|glance| tone(glance));
    if overview.deployments.is_empty() {
        return empty(viewer);
    }
    let rows = html! {
        @for glance in found.iter().skip(at * ROWS).take(ROWS) { (row(glance)) }
    };
    let head = [
        ("Deployment", ""),
        ("State", ""),
        ("Services", "number"),
        ("Replicas", "number"),
        ("", "wide"),
        ("Revision", "number"),
        ("Changed", "wide"),
        ("By", "wide"),
    ];
    html! {
        @if found.is_empty() { (nothing("No deployment has this in its name or state.")) }
        @else {
            (table("Deployments", &head, &rows))
            (pager(&query("/ui/", &[("q", search)]), at, ROWS, found.len()))
        }
    }
}

fn row(glance: &DeploymentGlance) -> Markup {
    let new = glance.running.saturating_sub(glance.outdated);
    let label = format!("{} of {} replicas run", glance.running, glance.desired);
    html! {
        tr data-key=(glance.name) {
            th scope="row" { a.name href=(of_deployment(&glance.name)) { (glance.name) } }
            td { (badge(tone(glance), glance.state.word())) }
            td.number { (len(glance.services_well)) small { " / " (len(glance.services)) } }
            td.number { (count(glance.running.into())) small { " / " (count(glance.desired.into())) } }
            td.wide.bars {
                (bar(&label, &[("new", new.into()), ("old", glance.outdated.min(glance.running).into())], glance.desired.into()))
            }
            td.number { (glance.revision) }
            td.wide { @if let Some(asked) = glance.asked_unix_secs { (time(asked)) } }
            td.wide { (glance.author) }
        }
    }
}

fn empty(viewer: &Viewer) -> Markup {
    html! {
        div.empty {
            p { "Nothing is deployed yet." }
            p {
                code { "dhow deploy FILE" } " deploys a file"
                @if viewer.may_act() { ", or " a href="/ui/plan" { "paste one" } " to see what it would do" }
                "."
            }
        }
    }
}

/// Shown at the head of a deployment's own page as well.
pub(super) fn state_line(state: DeploymentState, troubles: &[String]) -> Markup {
    html! {
        (deployment_badge(state))
        @if !troubles.is_empty() { ul.reasons { @for trouble in troubles { li { (trouble) } } } }
    }
}
