//! The nodes: a table that is filtered and sorted here, so that ten thousand of them cost a browser nothing.

use std::sync::Arc;

use dhow_core::state::{Node, State};
use dhow_wire::{NodeState, NodeStatus, Problem};
use maud::{Markup, html};

use super::calls::failed;
use super::context::Page;
use super::format::{bytes, cores, count, len};
use super::html::{bar, node_badge, node_word, nothing, pager, query, table};
use super::limits::ROWS;
use super::place::{NodesQuery, of_node};
use super::view::{Block, Section, View};
use super::viewer::Viewer;

const STATES: [NodeState; 4] = [
    NodeState::Ready,
    NodeState::Draining,
    NodeState::Drained,
    NodeState::Unreachable,
];

/// By what the table is sorted; the first one where nothing is said.
const SORTS: [(&str, &str); 4] = [
    ("", "id"),
    ("replicas", "replicas"),
    ("cpu", "CPU left"),
    ("memory", "memory left"),
];

/// What the table shows.
struct Found {
    rows: Vec<NodeStatus>,
    total: usize,
    counts: [usize; 4],
}

pub(super) async fn view(page: &Page, _: &Viewer, asked: &NodesQuery) -> Result<View, Box<Problem>> {
    let (manager, wanted) = (page.manager().clone(), asked.clone());
    let looked = tokio::task::spawn_blocking(move || {
        manager.listed(|listings| {
            let (nodes, counts) = find(listings.state, &wanted);
            let shown = nodes.iter().skip(wanted.page * ROWS).take(ROWS);
            Found {
                rows: shown.map(|node| listings.node_line(node)).collect(),
                total: nodes.len(),
                counts,
            }
        })
    });
    let found = looked
        .await
        .map_err(|_| Box::new(failed("looking at the nodes failed")))?;
    let blocks = vec![
        Block::still("filter", filter(asked)),
        Block::live("counts", counts(asked, &found)),
        Block::live("nodes", rows(asked, &found)),
    ];
    Ok(View::new("Nodes", Section::Nodes, blocks))
}

fn state_of(node: &Node) -> NodeState {
    NodeState::of(node.liveness, node.drain)
}

/// Whether every word of a search stands somewhere in what is known of a node: `zone=a` finds a label.
fn fits(node: &Node, words: &[String]) -> bool {
    if words.is_empty() {
        return true;
    }
    let (id, info, labels) = (node.id.to_string(), &node.info, node.labels());
    words.iter().all(|word| {
        let word = word.as_str();
        let labelled = |(key, value): (&String, &String)| match word.split_once('=') {
            Some((wanted, rest)) => key.contains(wanted) && value.starts_with(rest),
            None => key.contains(word) || value.contains(word),
        };
        id == word
            || info.api_addr.as_deref().is_some_and(|addr| addr.contains(word))
            || *info.os == *word
            || *info.arch == *word
            || labels.iter().any(labelled)
    })
}

/// The nodes that fit, in order; and how many fit the search in each state.
fn find<'a>(state: &'a State, asked: &NodesQuery) -> (Vec<&'a Arc<Node>>, [usize; 4]) {
    let words: Vec<String> = asked.search.split_whitespace().map(str::to_owned).collect();
    let mut counts = [0; 4];
    let mut found: Vec<&Arc<Node>> = Vec::new();
    for node in state.nodes.values().filter(|node| fits(node, &words)) {
        let known = state_of(node);
        for (place, count) in counts.iter_mut().enumerate() {
            *count += usize::from(STATES[place] == known);
        }
        if asked.status.is_empty() || asked.status == node_word(known) {
            found.push(node);
        }
    }
    let left = |whole: u64, used: u64| std::cmp::Reverse(whole.saturating_sub(used));
    match asked.sort.as_str() {
        "replicas" => found.sort_by_key(|node| std::cmp::Reverse(node.reserving)),
        "cpu" => found.sort_by_key(|node| left(node.info.capacity.cpu_milli, node.used.cpu_milli)),
        "memory" => found.sort_by_key(|node| left(node.info.capacity.memory_bytes, node.used.memory_bytes)),
        _ => {}
    }
    (found, counts)
}

fn filter(asked: &NodesQuery) -> Markup {
    html! {
        div.heading {
            h1 { "Nodes" }
            form.search method="get" action="/ui/nodes" role="search" {
                label.unseen for="q" { "Id, address, system or label" }
                input id="q" name="q" type="search" value=(asked.search) placeholder="Id, address or zone=a" autocomplete="off";
                label.unseen for="sort" { "Sorted by" }
                select id="sort" name="sort" {
                    @for (word, name) in SORTS { option value=(word) selected[asked.sort == word] { "by " (name) } }
                }
                @if !asked.status.is_empty() { input type="hidden" name="status" value=(asked.status); }
                button type="submit" { "Filter" }
            }
        }
    }
}

fn address(asked: &NodesQuery, status: &str) -> String {
    query(
        "/ui/nodes",
        &[("q", &asked.search), ("status", status), ("sort", &asked.sort)],
    )
}

fn counts(asked: &NodesQuery, found: &Found) -> Markup {
    html! {
        nav.choice aria-label="State of the nodes" {
            a href=(address(asked, "")) aria-current=[asked.status.is_empty().then_some("true")] {
                "All " small { (len(found.counts.iter().sum())) }
            }
            @for (place, state) in STATES.into_iter().enumerate() {
                @if found.counts[place] > 0 || asked.status == node_word(state) {
                    a href=(address(asked, node_word(state))) aria-current=[(asked.status == node_word(state)).then_some("true")] {
                        (node_word(state)) " " small { (len(found.counts[place])) }
                    }
                }
            }
        }
    }
}

fn rows(asked: &NodesQuery, found: &Found) -> Markup {
    let head = [
        ("Node", ""),
        ("State", ""),
        ("Replicas", "number"),
        ("CPU reserved", "wide"),
        ("Memory reserved", "wide"),
        ("Labels", "wide"),
        ("Address", "wide"),
    ];
    let rows = html! { @for node in &found.rows { (row(node)) } };
    html! {
        @if found.rows.is_empty() { (nothing("No node is like this.")) }
        @else { (table("Nodes", &head, &rows)) }
        (pager(&address(asked, &asked.status), asked.page, ROWS, found.total))
    }
}

fn row(node: &NodeStatus) -> Markup {
    html! {
        tr data-key=(node.node_id) {
            th scope="row" {
                a.name href=(of_node(node.node_id)) { (node.node_id) }
                " " small { (role(node)) @if node.leader { ", leads" } }
            }
            td { (node_badge(node.status)) }
            td.number { @if node.runs_replicas { (count(node.replicas.into())) } @else { small { "takes none" } } }
            td.wide.bars { (cpu(node)) }
            td.wide.bars { (memory(node)) }
            td.wide { (labels(node)) }
            td.wide { @if let Some(addr) = &node.api_addr { code { (addr) } } }
        }
    }
}

pub(super) fn role(node: &NodeStatus) -> &'static str {
    match node.role {
        dhow_core::state::NodeRole::Server => "server",
        dhow_core::state::NodeRole::Worker => "worker",
        dhow_core::state::NodeRole::Peer => "peer",
    }
}

pub(super) fn cpu(node: &NodeStatus) -> Markup {
    let Some(amounts) = &node.resources else {
        return html! { "–" };
    };
    let (reserved, whole) = (amounts.reserved.cpu_milli, amounts.capacity.cpu_milli);
    html! {
        span.amount { (cores(reserved)) small { " / " (cores(whole)) } }
        (bar("CPU reserved", &[("used", reserved)], whole))
    }
}

pub(super) fn memory(node: &NodeStatus) -> Markup {
    let Some(amounts) = &node.resources else {
        return html! { "–" };
    };
    let (reserved, whole) = (amounts.reserved.memory_bytes, amounts.capacity.memory_bytes);
    html! {
        span.amount { (bytes(reserved)) small { " / " (bytes(whole)) } }
        (bar("Memory reserved", &[("used", reserved)], whole))
    }
}

pub(super) fn labels(node: &NodeStatus) -> Markup {
    html! { @for (key, value) in node.labels.iter().take(8) { span.label { (key) "=" (value) } " " } }
}
