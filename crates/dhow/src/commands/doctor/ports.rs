//! The addresses that a daemon with this configuration listens at.

use std::io;
use std::net::{SocketAddr, TcpListener};

use dhow_wire::{ClusterMode, DaemonConfig, WorkerTierRole};

use super::Found;

/// An address, and what listens there.
struct Wanted {
    what: &'static str,
    addr: SocketAddr,
    /// Without it the daemon does not start; others are for services alone.
    is_needed: bool,
}

/// With a daemon that runs, its own ports are taken by itself, and nothing is said of them.
pub(super) fn all(config: &DaemonConfig, runs: bool) -> Vec<Found> {
    if runs {
        return vec![Found::ok("ports", "not tried: the daemon that runs has them")];
    }
    let tried: Vec<Found> = wanted(config).iter().filter_map(tried).collect();
    match tried.is_empty() {
        true => vec![Found::ok("ports", "all are free")],
        false => tried,
    }
}

fn wanted(config: &DaemonConfig) -> Vec<Wanted> {
    let needed = |what, addr| Wanted {
        what,
        addr,
        is_needed: true,
    };
    let mut wanted: Vec<Wanted> = Vec::new();
    wanted.extend(config.api_addr.addr().map(|addr| needed("the API", addr)));
    let (node, peers) = match &config.cluster {
        ClusterMode::Raft { node_id, peers, .. } => (Some(*node_id), peers.as_slice()),
        ClusterMode::WorkerTier { node_id, peers, .. } => (*node_id, peers.as_slice()),
        ClusterMode::SingleNode {} | ClusterMode::Static { .. } => (None, [].as_slice()),
    };
    let own = peers.iter().find(|peer| Some(peer.id) == node);
    wanted.extend(own.map(|peer| needed("raft", peer.raft_addr)));
    if let ClusterMode::WorkerTier {
        role: WorkerTierRole::Server,
        worker_grpc_addr,
        ..
    } = &config.cluster
    {
        wanted.push(needed("workers", *worker_grpc_addr));
    }
    let web = [
        ("http of public endpoints with a host", config.network.http_port),
        ("https of public endpoints with a host", config.network.https_port),
    ];
    for (what, port) in web {
        wanted.push(Wanted {
            what,
            addr: SocketAddr::new(config.network.ingress_addr, port),
            is_needed: false,
        });
    }
    wanted
}

fn tried(wanted: &Wanted) -> Option<Found> {
    let Wanted {
        what,
        addr,
        is_needed,
    } = wanted;
    let error = TcpListener::bind(addr).err()?;
    let said = format!("{addr} ({what}): {}", why(&error));
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => format!("`ss -ltnp sport = :{}` names who has it", addr.port()),
        io::ErrorKind::AddrNotAvailable => "this host does not have the address: see `ip address`".to_owned(),
        io::ErrorKind::PermissionDenied if !is_needed => {
            "ports below 1024 need root; network.http_port and https_port set others".to_owned()
        }
        _ => "set another address in the configuration".to_owned(),
    };
    Some(match is_needed {
        true => Found::broken("ports", said, hint),
        false => Found::lacks("ports", said, hint),
    })
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "somebody has it".to_owned(),
        io::ErrorKind::AddrNotAvailable => "it is no address of this host".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_named() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Wanted {
            what: "the API",
            addr: other.local_addr().unwrap(),
            is_needed: true,
        };
        let found = tried(&wanted).unwrap();
        assert_eq!(found.weight, Weight::Broken);
        assert!(
            found.what.ends_with("(the API): somebody has it"),
            "{}",
            found.what
        );
        let ours = Wanted {
            addr: ([127, 0, 0, 1], 0).into(),
            ..wanted
        };
        assert!(tried(&ours).is_none(), "a free one");
    }
}
