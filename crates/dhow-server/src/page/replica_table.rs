//! A table of replicas: of a service, or of a node.

use dhow_wire::ReplicaStatus;
use maud::{Markup, html};

use super::format::{bytes, cores, cut};
use super::html::{replica_badge, table, time};
use super::place::{of_deployment, of_node, of_replica};

/// What the rows are of: what stands above the table is not repeated in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Service,
    Node,
}

pub(super) fn replica_table(of: Of, replicas: &[ReplicaStatus]) -> Markup {
    let third = match of {
        Of::Service => ("Node", "number"),
        Of::Node => ("Deployment", ""),
    };
    let head = [
        ("Replica", ""),
        ("State", ""),
        third,
        ("Revision", "number wide"),
        ("Restarts", "number wide"),
        ("CPU", "number wide"),
        ("Memory", "number wide"),
        ("Started", "wide"),
    ];
    let rows = html! { @for replica in replicas { (row(of, replica)) } };
    table("Replicas", &head, &rows)
}

fn row(of: Of, replica: &ReplicaStatus) -> Markup {
    html! {
        tr data-key={ (replica.deployment) "/" (replica.id) "#" (replica.generation.unwrap_or_default()) } {
            th scope="row" {
                a.name href=(of_replica(&replica.deployment, &replica.id)) { (replica.id) }
                @if let Some(message) = &replica.message { p.why { (cut(message, 300)) } }
            }
            td { (replica_badge(replica)) }
            @match of {
                Of::Service => td.number {
                    @match replica.node_id { Some(node) => a href=(of_node(node)) { (node) }, None => "–" }
                }
                Of::Node => td { a href=(of_deployment(&replica.deployment)) { (replica.deployment) } }
            }
            td.number.wide { (or_dash(replica.revision)) }
            td.number.wide { (replica.restarts) }
            td.number.wide { (replica.cpu_used_milli.map_or_else(|| "–".to_owned(), cores)) }
            td.number.wide { (replica.memory_used_bytes.map_or_else(|| "–".to_owned(), bytes)) }
            td.wide { @match replica.started_unix_secs { Some(started) => (time(started)), None => "–" } }
        }
    }
}

pub(super) fn or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "–".to_owned(), |number| number.to_string())
}
