//! Configurations that parse but cannot work.

mod addresses;
mod node;
mod worker_tier;

use std::collections::BTreeMap;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_core::spec::check::{FieldPath, SpecFinding, label_finding, os_hint, quoted};

use super::cluster_mode::{ClusterMode, WorkerTierRole};
use super::effective::Draft;
use super::network::MeshSetting;
use super::past;
use super::peer::StaticPeer;

/// Everything that cannot work about a draft, wherever its values came from.
pub(super) fn check(draft: &Draft) -> Vec<SpecFinding> {
    let mut findings = Vec::new();
    node::check(draft, &mut findings);
    super::sources::check(draft, &mut findings);
    super::acme::check(draft, &mut findings);
    worker_tier::check_renewal(draft, &mut findings);
    past::check(&draft.past, &draft.cluster, &mut findings);
    check_reverse(draft, &mut findings);
    let at = FieldPath::of("cluster");
    match &draft.cluster {
        ClusterMode::SingleNode {} => {}
        ClusterMode::Raft { node_id, peers } => {
            check_own(&at, *node_id, peers.iter().map(|peer| peer.id), &mut findings);
            addresses::check_raft(&at, peers, &mut findings);
            addresses::check_own_raft(&at, draft, *node_id, peers, &mut findings);
        }
        ClusterMode::Static {
            node_id,
            peers,
            heartbeat_interval,
            failure_threshold,
        } => {
            check_own(&at, *node_id, peers.iter().map(|peer| peer.id), &mut findings);
            addresses::check_static(&at, peers, &mut findings);
            check_static_peers(&at, peers, &mut findings);
            check_heartbeat(&at, *heartbeat_interval, *failure_threshold, &mut findings);
        }
        tier @ ClusterMode::WorkerTier { .. } => worker_tier::check(&at, draft, tier, &mut findings),
    }
    findings
}

/// Servers are those through whom others are called: they have to be dialled themselves.
fn check_reverse(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    let is_worker = match &draft.cluster {
        ClusterMode::WorkerTier { role, .. } => *role == WorkerTierRole::Worker,
        ClusterMode::SingleNode {} | ClusterMode::Raft { .. } | ClusterMode::Static { .. } => false,
    };
    if draft.network.mesh_addr == Some(MeshSetting::Reverse) && !is_worker {
        let at = FieldPath::of("network").key("mesh_addr");
        let message = "only a worker can be called in reverse, and this is none";
        let finding = SpecFinding::at(at, message.to_owned());
        findings.push(finding.hint("write the address at which other nodes reach this one, or leave it out"));
    }
}

/// Ids are unique, and this node's own is among them.
fn check_own(at: &FieldPath, own: u64, ids: impl Iterator<Item = u64>, findings: &mut Vec<SpecFinding>) {
    const IDS_SHOWN_MAX: usize = 5;
    let list = at.key("peers");
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    for (position, id) in ids.enumerate() {
        if !NodeId(id).is_in_range() {
            findings.push(
                SpecFinding::at(
                    list.index(position).key("id"),
                    format!(
                        "an id of a node is a number from 1 to {}, {id} is none",
                        NodeId::MAX
                    ),
                )
                .hint("give each peer a small number of its own, such as 1, 2 and 3"),
            );
        }
        if let Some(first) = seen.get(&id) {
            findings.push(
                SpecFinding::at(
                    list.index(position).key("id"),
                    format!("the id {id} is there twice"),
                )
                .also(list.index(*first).key("id"), "first here")
                .hint("give each peer its own id"),
            );
        } else {
            seen.insert(id, position);
        }
    }
    if seen.contains_key(&own) {
        return;
    }
    let hint = if seen.is_empty() {
        "list every peer, this node included".to_owned()
    } else {
        let shown: Vec<String> = seen.keys().take(IDS_SHOWN_MAX).map(u64::to_string).collect();
        let more = if seen.len() > IDS_SHOWN_MAX { ", …" } else { "" };
        format!(
            "the peers are {}{more}: add this node to them, or correct the id",
            shown.join(", ")
        )
    };
    findings.push(
        SpecFinding::at(
            at.key("node_id"),
            format!("this node's id {own} is not among the `peers`"),
        )
        .because(list)
        .hint(hint),
    );
}

fn check_static_peers(at: &FieldPath, peers: &[StaticPeer], findings: &mut Vec<SpecFinding>) {
    for (position, peer) in peers.iter().enumerate() {
        let place = at.key("peers").index(position);
        if let Some(hint) = os_hint(&peer.os) {
            let message = format!("{} is not the name of an operating system here", quoted(&peer.os));
            findings.push(SpecFinding::at(place.key("os"), message).hint(hint));
        }
        check_labels(&place.key("labels"), &peer.labels, findings);
    }
}

pub(super) fn check_labels(
    at: &FieldPath,
    labels: &BTreeMap<String, String>,
    findings: &mut Vec<SpecFinding>,
) {
    findings.extend(
        labels
            .iter()
            .filter_map(|(key, value)| label_finding(at, key, value)),
    );
}

fn check_heartbeat(at: &FieldPath, interval: Duration, threshold: Duration, findings: &mut Vec<SpecFinding>) {
    let mut is_zero = false;
    for (field, span, hint) in [
        (
            "heartbeat_interval",
            interval,
            "seconds between heartbeats, 5 is the default",
        ),
        (
            "failure_threshold",
            threshold,
            "seconds of silence until a peer counts as lost, 15 is the default",
        ),
    ] {
        if span.is_zero() {
            is_zero = true;
            findings.push(SpecFinding::at(at.key(field), format!("`{field}` cannot be 0")).hint(hint));
        }
    }
    if !is_zero && threshold < interval {
        findings.push(
            SpecFinding::at(
                at.key("failure_threshold"),
                format!(
                    "a peer would count as lost after {} s, but says something only every {} s",
                    threshold.as_secs(),
                    interval.as_secs()
                ),
            )
            .because(at.key("heartbeat_interval"))
            .hint(format!(
                "raise it to a few times `heartbeat_interval`, such as {}",
                interval.as_secs().saturating_mul(3)
            )),
        );
    }
}
