//! A node: what it is, what runs on it, what holds its drain up, and emptying it.

use dhow_core::ids::NodeId;
use dhow_wire::{NodeState, NodeStatus, Problem, ReplicaStatus};
use maud::{Markup, html};

use super::context::Page;
use super::format::{bytes, cores, len};
use super::html::{Tone, action, badge, node_badge, nothing, pager};
use super::limits::ROWS;
use super::nodes::{cpu, labels, memory, role};
use super::place::of_node;
use super::replica_table::{Of, replica_table};
use super::view::{Block, Section, View};
use super::viewer::Viewer;

pub(super) fn view(page: &Page, viewer: &Viewer, id: u64, at: usize) -> Result<View, Box<Problem>> {
    let found = page.manager().listed(|listings| {
        let status = listings.node(NodeId(id))?;
        let keys: Vec<_> = listings
            .state
            .node(NodeId(id))
            .map_or_else(Vec::new, |node| node.replica_keys().collect());
        let shown = keys.iter().skip(at * ROWS).take(ROWS);
        let rows: Vec<ReplicaStatus> = shown.filter_map(|key| listings.replica_line(key)).collect();
        Ok((status, rows, keys.len()))
    });
    let (status, rows, total) =
        found.map_err(|error: crate::plane::services::NoSuchName| Box::new(error.into()))?;
    let mut blocks = vec![
        Block::live("head", head(&status)),
        Block::live("replicas", replicas(&status, &rows, at, total)),
    ];
    if viewer.may_act() {
        blocks.insert(1, Block::live("actions", actions(&status, viewer)));
    }
    Ok(View::new(format!("Node {id}"), Section::Nodes, blocks))
}

fn head(node: &NodeStatus) -> Markup {
    let used = node.resources.as_ref().and_then(|amounts| amounts.used);
    html! {
        div.head {
            p.trail { a href="/ui/nodes" { "Nodes" } }
            h1 { "Node " (node.node_id) }
            (node_badge(node.status))
            p.facts {
                (role(node)) @if node.leader { ", leads the cluster" }
                @if let (Some(os), Some(arch)) = (&node.os, &node.arch) { " · " (os) " " (arch) }
                @if let Some(addr) = &node.api_addr { " · " code { (addr) } }
            }
            dl.facts-list {
                div { dt { "CPU reserved" } dd { (cpu(node)) } }
                div { dt { "Memory reserved" } dd { (memory(node)) } }
                @if let Some(used) = used {
                    div { dt { "CPU used" } dd { (cores(used.cpu_milli)) small { " cores" } } }
                    div { dt { "Memory used" } dd { (bytes(used.memory_bytes)) } }
                }
                @if !node.labels.is_empty() { div { dt { "Labels" } dd { (labels(node)) } } }
            }
            (troubles(node))
        }
    }
}

fn troubles(node: &NodeStatus) -> Markup {
    let waiting = node
        .drain
        .as_ref()
        .map(|drain| drain.waiting.as_slice())
        .unwrap_or_default();
    html! {
        @if let Some(failures) = &node.failures {
            div.why {
                (badge(Tone::Attention, if failures.suspect { "look at this node" } else { "failures" }))
                p { "Replicas of these services keep failing here: " (failures.services.join(", ")) }
            }
        }
        @if !waiting.is_empty() {
            h2 { "What has not left yet" }
            ul.reasons {
                @for wait in waiting.iter().take(20) {
                    li {
                        @if wait.cannot_move { (badge(Tone::Attention, "cannot move")) " " }
                        b { (wait.replica) } ": " (wait.why)
                    }
                }
            }
            @if waiting.len() > 20 { p.hint { "and " (len(waiting.len() - 20)) " more" } }
        }
    }
}

fn actions(node: &NodeStatus, viewer: &Viewer) -> Markup {
    let place = of_node(node.node_id);
    let drain = html! {
        p { "Its replicas start on other nodes before they end here, and it gets no new ones until it is undrained." }
    };
    let undrain =
        html! { p { "It may get replicas again. Those that have left do not come back by themselves." } };
    let is_drained = match node.status {
        NodeState::Draining | NodeState::Drained => true,
        NodeState::Ready => false,
        NodeState::Unreachable => node.drain.is_some(),
    };
    html! {
        section.actions aria-label="Actions" {
            @if is_drained { (action(viewer, &format!("{place}/undrain"), &place, "Undrain", &undrain)) }
            @else { (action(viewer, &format!("{place}/drain"), &place, "Drain", &drain)) }
        }
    }
}

fn replicas(node: &NodeStatus, rows: &[ReplicaStatus], at: usize, total: usize) -> Markup {
    html! {
        section {
            h2 { "Replicas " small { (len(total)) } }
            @if rows.is_empty() { (nothing("None.")) } @else { (replica_table(Of::Node, rows)) }
            (pager(&of_node(node.node_id), at, ROWS, total))
        }
    }
}
