//! A worker tier: its servers, its workers, and the times of their leases.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dhow_core::spec::check::{FieldPath, SpecFinding, quoted};

use super::super::cluster_mode::{ClusterMode, WorkerTierRole};
use super::super::effective::Draft;
use super::super::peer::RaftPeer;
use super::super::servers;
use super::{addresses, check_labels, check_own};

/// Fewer cannot lose a server, more only slow every write down.
const SERVERS_MIN: usize = 3;
const SERVERS_MAX: usize = 7;

pub(super) fn check(at: &FieldPath, draft: &Draft, tier: &ClusterMode, findings: &mut Vec<SpecFinding>) {
    let ClusterMode::WorkerTier {
        role,
        node_id,
        peers,
        worker_grpc_addr,
        servers,
        labels,
        ..
    } = tier
    else {
        return;
    };
    match role {
        WorkerTierRole::Server => {
            check_servers(at, *node_id, peers, findings);
            check_grpc(at, draft, *worker_grpc_addr, *node_id, peers, findings);
        }
        WorkerTierRole::Worker => check_worker(at, servers, findings),
    }
    check_times(at, tier, findings);
    check_labels(&at.key("labels"), labels, findings);
}

/// Nothing is renewed by a certificate that is older than a month.
const RENEW_EXPIRED_MAX_SECS: u64 = 31 * 24 * 60 * 60;

/// Only a server of a worker tier makes certificates of workers.
pub(super) fn check_renewal(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    let Some(span) = draft.renew_expired_for else {
        return;
    };
    let place = FieldPath::of("renew_expired_for");
    let is_server = matches!(
        draft.cluster,
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Server,
            ..
        }
    );
    if !is_server {
        let message = "certificates of workers are renewed by the servers of a worker tier alone";
        findings.push(
            SpecFinding::at(place, message)
                .hint("remove it here, and write it on the servers of the worker tier"),
        );
    } else if span.as_secs() > RENEW_EXPIRED_MAX_SECS {
        let message = format!(
            "expired certificates are renewed for at most {RENEW_EXPIRED_MAX_SECS} seconds, found {}",
            span.as_secs()
        );
        findings.push(SpecFinding::at(place, message).hint("604800, a week, is the default; 0 renews none"));
    }
}

fn check_servers(at: &FieldPath, node_id: Option<u64>, peers: &[RaftPeer], findings: &mut Vec<SpecFinding>) {
    let list = at.key("peers");
    let count = peers.len();
    if !(SERVERS_MIN..=SERVERS_MAX).contains(&count) {
        let hint = match count {
            0 => "list every server of the tier, this one included",
            1 => "for one machine write `mode: single-node`",
            2 => "with two, losing either stops both: add a third",
            _ => "take the others as workers: they cost consensus nothing",
        };
        let message =
            format!("a worker tier has {SERVERS_MIN} to {SERVERS_MAX} servers, `peers` has {count}");
        findings.push(
            SpecFinding::at(list.clone(), message)
                .because(at.key("role"))
                .hint(hint),
        );
    }
    match node_id {
        None => findings.push(
            SpecFinding::at(at.key("node_id"), "a server of a worker tier needs a `node_id`")
                .because(at.key("role"))
                .hint("add the id of this node among the `peers`, such as `node_id: 1`"),
        ),
        Some(own) if count > 0 => check_own(at, own, peers.iter().map(|peer| peer.id), findings),
        Some(_) => {}
    }
    addresses::check_raft(at, peers, findings);
}

fn check_grpc(
    at: &FieldPath,
    draft: &Draft,
    grpc: SocketAddr,
    node_id: Option<u64>,
    peers: &[RaftPeer],
    findings: &mut Vec<SpecFinding>,
) {
    let place = at.key("worker_grpc_addr");
    if grpc.port() == 0 {
        let hint = "3670 is the default";
        findings.push(SpecFinding::at(place, "workers cannot find a server on the port 0").hint(hint));
        return;
    }
    let Some(position) = peers.iter().position(|peer| Some(peer.id) == node_id) else {
        return;
    };
    let own = &peers[position];
    let own_at = at.key("peers").index(position);
    for (other, field, what) in [
        (own.raft_addr, "raft_addr", "raft"),
        (own.api_addr, "api_addr", "the API"),
    ] {
        if addresses::overlap(grpc, other) {
            findings.push(
                SpecFinding::at(
                    place.clone(),
                    format!("workers cannot connect to {grpc}, {what} of this node is there"),
                )
                .also(own_at.key(field), "here")
                .hint("give one of the two another port; the default is 3670 for workers, 3669 for the API"),
            );
        }
    }
    if let Some(node_id) = node_id {
        addresses::check_own_raft(at, draft, node_id, peers, findings);
    }
}

fn check_worker(at: &FieldPath, servers: &[String], findings: &mut Vec<SpecFinding>) {
    let list = at.key("servers");
    if servers.is_empty() {
        findings.push(
            SpecFinding::at(list, "a worker needs `servers` to connect to")
                .because(at.key("role"))
                .hint("add them, such as `servers: [10.0.0.1:3670, 10.0.0.2:3670]`"),
        );
        return;
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (position, server) in servers.iter().enumerate() {
        let place = list.index(position);
        if let Some((message, hint)) = servers::problem(server) {
            findings.push(SpecFinding::at(place, message).hint(hint));
            continue;
        }
        let plain = server
            .split_once("://")
            .map_or(server.as_str(), |(_, rest)| rest)
            .trim_end_matches('/');
        if let Some(first) = seen.insert(plain, position) {
            findings.push(
                SpecFinding::at(place, format!("the server {} is there twice", quoted(server)))
                    .also(list.index(first), "first here")
                    .hint("remove one of the two"),
            );
        }
    }
}

fn check_times(at: &FieldPath, tier: &ClusterMode, findings: &mut Vec<SpecFinding>) {
    let ClusterMode::WorkerTier {
        heartbeat_min_ttl: min,
        heartbeat_max_ttl: max,
        max_heartbeats_per_second: rate,
        failover_heartbeat_ttl: failover,
        ..
    } = tier
    else {
        return;
    };
    let mut zero = |field: &'static str, is_zero: bool, hint: &str| {
        if is_zero {
            findings.push(SpecFinding::at(at.key(field), format!("`{field}` cannot be 0")).hint(hint));
        }
    };
    zero(
        "heartbeat_min_ttl",
        min.is_zero(),
        "every lease would expire at once; 10 is the default",
    );
    zero(
        "heartbeat_max_ttl",
        max.is_zero(),
        "every lease would expire at once; 600 is the default",
    );
    zero(
        "failover_heartbeat_ttl",
        failover.is_zero(),
        "every worker would be lost at each election; 300 is the default",
    );
    zero(
        "max_heartbeats_per_second",
        *rate == 0,
        "every lease would be the longest one; 50 is the default",
    );
    if min > max && !max.is_zero() {
        findings.push(
            SpecFinding::at(
                at.key("heartbeat_min_ttl"),
                format!(
                    "`heartbeat_min_ttl` is {}, above `heartbeat_max_ttl`, which is {}",
                    min.as_secs(),
                    max.as_secs()
                ),
            )
            .because(at.key("heartbeat_max_ttl"))
            .hint("swap them, or raise the maximum"),
        );
    }
}
