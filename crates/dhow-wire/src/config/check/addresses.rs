//! Addresses of peers: usable, and each used once.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dhow_core::spec::check::{FieldPath, SpecFinding};

use super::super::api_addr::ApiAddr;
use super::super::effective::Draft;
use super::super::peer::{RaftPeer, StaticPeer};

/// All addresses of all peers, each with its place.
fn check_all(addresses: &[(FieldPath, SocketAddr)], findings: &mut Vec<SpecFinding>) {
    let mut seen: BTreeMap<SocketAddr, &FieldPath> = BTreeMap::new();
    for (place, addr) in addresses {
        if let Some(finding) = unusable(place, *addr) {
            findings.push(finding);
            continue;
        }
        if let Some(first) = seen.insert(*addr, place) {
            findings.push(
                SpecFinding::at(place.clone(), format!("the address {addr} is there twice"))
                    .also(first.clone(), "first here")
                    .hint("two listeners cannot share one address: change a port"),
            );
        }
    }
    check_loopback(addresses, findings);
}

/// Peers dial these addresses, so that neither a port to be chosen nor "every address" will do.
fn unusable(place: &FieldPath, addr: SocketAddr) -> Option<SpecFinding> {
    if addr.port() == 0 {
        let hint = "choose one, such as 3669 for the API and 3671 for raft";
        return Some(
            SpecFinding::at(
                place.clone(),
                format!("peers cannot dial {addr}: it has the port 0"),
            )
            .hint(hint),
        );
    }
    addr.ip().is_unspecified().then(|| {
        SpecFinding::at(
            place.clone(),
            format!("peers cannot dial {addr}: it is no machine's address"),
        )
        .hint("write the address at which the others reach this peer")
    })
}

/// A loopback address among others means another machine to each peer.
fn check_loopback(addresses: &[(FieldPath, SocketAddr)], findings: &mut Vec<SpecFinding>) {
    let is_usable = |addr: &SocketAddr| addr.port() != 0 && !addr.ip().is_unspecified();
    let usable = || addresses.iter().filter(|(_, addr)| is_usable(addr));
    let Some((outside, _)) = usable().find(|(_, addr)| !addr.ip().is_loopback()) else {
        return;
    };
    for (place, addr) in usable().filter(|(_, addr)| addr.ip().is_loopback()) {
        findings.push(
            SpecFinding::at(
                place.clone(),
                format!("{addr} is a loopback address, which the other peers cannot reach"),
            )
            .because(outside.clone())
            .hint("write the address at which the others reach this peer"),
        );
    }
}

pub(super) fn check_raft(at: &FieldPath, peers: &[RaftPeer], findings: &mut Vec<SpecFinding>) {
    let list = at.key("peers");
    let mut addresses = Vec::with_capacity(peers.len() * 2);
    for (position, peer) in peers.iter().enumerate() {
        let place = list.index(position);
        addresses.push((place.key("raft_addr"), peer.raft_addr));
        addresses.push((place.key("api_addr"), peer.api_addr));
    }
    check_all(&addresses, findings);
}

pub(super) fn check_static(at: &FieldPath, peers: &[StaticPeer], findings: &mut Vec<SpecFinding>) {
    let list = at.key("peers");
    let addresses: Vec<(FieldPath, SocketAddr)> = peers
        .iter()
        .enumerate()
        .map(|(position, peer)| (list.index(position).key("api_addr"), peer.api_addr))
        .collect();
    check_all(&addresses, findings);
}

/// Whether two listeners of one machine would want the same port of the same address.
pub(super) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_family = a.is_ipv4() == b.is_ipv4();
    let any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || (any && same_family))
}

/// The API may listen elsewhere than where peers dial it, but not where raft listens.
pub(super) fn check_own_raft(
    at: &FieldPath,
    draft: &Draft,
    own: u64,
    peers: &[RaftPeer],
    findings: &mut Vec<SpecFinding>,
) {
    let Some(ApiAddr::At(api_addr)) = draft.api_addr else {
        return;
    };
    let Some(position) = peers.iter().position(|peer| peer.id == own) else {
        return;
    };
    if overlap(api_addr, peers[position].raft_addr) {
        let place = at.key("peers").index(position).key("raft_addr");
        findings.push(
            SpecFinding::at(
                FieldPath::of("api_addr"),
                format!("the API cannot listen on {api_addr}, raft does"),
            )
            .also(place, "here")
            .hint("give one of the two another port"),
        );
    }
}
