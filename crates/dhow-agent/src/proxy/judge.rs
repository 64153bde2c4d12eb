//! Who may call: finds out who is at the other end of a connection, and keeps account of those who are refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::routes::Route;
use super::sock_diag::SocketOwner;
use super::table::{Allowed, Names, Peer, Table, Transport, Trusted};
use super::{note, sock_diag};

/// A caller that is refused again and again is noted this often for each endpoint.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);
/// Pairs of caller and endpoint that are remembered as noted, of some 100 bytes; beyond these all are forgotten.
const NOTED_MAX: usize = 1024;

/// One of the two networks that the proxy listens in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The host's own.
    Host,
    /// The proxy's, which containers of this node reach.
    Services,
}

/// Who has which address, group and user: what the last table said.
#[derive(Default)]
struct Known {
    by_address: HashMap<Ipv4Addr, Arc<[Allowed]>>,
    by_cgroup: HashMap<u64, Arc<[Allowed]>>,
    by_uid: HashMap<u32, Arc<[Allowed]>>,
    /// Of these only those that have no group of their own.
    groupless_by_uid: HashMap<u32, Arc<[Allowed]>>,
    trusted: Trusted,
}

/// Knows callers by the last table. Every listener asks it.
pub struct Judge {
    /// The user who runs the daemon.
    owner: u32,
    known: RwLock<Arc<Known>>,
    refused: AtomicU64,
    noted: Mutex<HashMap<(String, String), Instant>>,
}

/// One connection as it has arrived.
#[derive(Clone)]
pub struct Arrival {
    pub judge: Arc<Judge>,
    pub side: Side,
    pub transport: Transport,
    pub peer: SocketAddr,
    /// The listener's end of it.
    pub local: SocketAddr,
}

impl Judge {
    pub fn new(owner: u32) -> Self {
        Self {
            owner,
            known: RwLock::default(),
            refused: AtomicU64::new(0),
            noted: Mutex::default(),
        }
    }

    /// Knows those whom a table names, and nobody else.
    pub fn learn(&self, table: &Table) {
        let mut known = table.names.as_ref().map(Known::of).unwrap_or_default();
        known.trusted = table.trusted.clone();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// Whether somebody at this address speaks for others in the headers of requests.
    pub fn trusts(&self, addr: IpAddr) -> bool {
        let known = self.known();
        known.trusted.forwarded.iter().any(|range| range.contains(addr))
    }

    /// Whether a connection from this address begins with a PROXY header.
    pub fn expects_header(&self, addr: IpAddr) -> bool {
        let known = self.known();
        known.trusted.header.iter().any(|range| range.contains(addr))
    }

    /// How many were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refuse(&self, from: SocketAddr, peer: &Peer, route: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // Ports differ each time; who calls does not.
        let pair = (format!("{} ({peer})", from.ip().to_canonical()), route.to_owned());
        let now = Instant::now();
        {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = noted
                .get(&pair)
                .is_none_or(|last| now.duration_since(*last) >= NOTE_INTERVAL);
            if !is_new {
                return;
            }
            if noted.len() >= NOTED_MAX {
                noted.clear();
            }
            noted.insert(pair.clone(), now);
        }
        let (caller, route) = pair;
        note(&format!(
            "refused: {caller} may not call {route}: its `expose` and `allow` say who may"
        ));
    }
}

impl Known {
    fn of(names: &Names) -> Self {
        let mut known = Self::default();
        for caller in &names.callers {
            let who = Allowed {
                deployment: caller.deployment.clone(),
                service: caller.service.clone(),
            };
            known.by_address.insert(caller.addr, Arc::from([who]));
        }
        let (mut cgroups, mut uids, mut groupless) = (HashMap::new(), HashMap::new(), HashMap::new());
        for process in &names.processes {
            let who = Allowed {
                deployment: process.deployment.clone(),
                service: process.service.clone(),
            };
            match (process.cgroup, process.uid) {
                (Some(cgroup), _) => add(&mut cgroups, cgroup, who.clone()),
                (None, Some(uid)) => add(&mut groupless, uid, who.clone()),
                (None, None) => {}
            }
            if let Some(uid) = process.uid {
                add(&mut uids, uid, who);
            }
        }
        known.by_cgroup = shared(cgroups);
        known.by_uid = shared(uids);
        known.groupless_by_uid = shared(groupless);
        known
    }
}

impl Known {
    /// Who has a socket of this host. A replica whose group is known is not taken for everything that its user runs.
    fn owner_of(&self, owner: SocketOwner, daemon_uid: u32) -> Peer {
        let in_group = owner.cgroup.and_then(|cgroup| self.by_cgroup.get(&cgroup));
        if in_group.is_some() {
            return replicas(in_group);
        }
        if owner.uid == 0 || owner.uid == daemon_uid {
            // Others may have bound the same port: only a socket that is connected here is surely the caller's.
            return match owner.is_connected {
                true => Peer::HostUser,
                false => Peer::Stranger,
            };
        }
        let by_uid = match owner.cgroup {
            Some(_) => &self.groupless_by_uid,
            // This kernel does not tell the groups of sockets.
            None => &self.by_uid,
        };
        replicas(by_uid.get(&owner.uid))
    }
}

fn add<K: std::hash::Hash + Eq>(all: &mut HashMap<K, Vec<Allowed>>, key: K, who: Allowed) {
    let same = all.entry(key).or_default();
    if !same.contains(&who) {
        same.push(who);
    }
}

fn shared<K: std::hash::Hash + Eq>(all: HashMap<K, Vec<Allowed>>) -> HashMap<K, Arc<[Allowed]>> {
    all.into_iter().map(|(key, who)| (key, who.into())).collect()
}

impl Arrival {
    /// Who it is.
    pub fn identify(&self) -> Peer {
        let known = self.judge.known();
        match self.side {
            Side::Services => match self.peer.ip().to_canonical() {
                IpAddr::V4(address) => replicas(known.by_address.get(&address)),
                IpAddr::V6(_) => Peer::Stranger,
            },
            Side::Host => {
                let Ok(owner) = sock_diag::owner(self.transport, self.peer, self.local) else {
                    return Peer::Stranger;
                };
                known.owner_of(owner, self.judge.owner)
            }
        }
    }

    /// Whether this one may call by a route; refusals are counted and noted.
    pub fn may_call(&self, route: &Route, peer: &Peer) -> bool {
        let may = route.who.admits(peer) && route.options.admits(self.peer.ip());
        if !may {
            route.meter.refuse();
            self.judge.refuse(self.peer, peer, &route.id);
        }
        may
    }
}

fn replicas(found: Option<&Arc<[Allowed]>>) -> Peer {
    match found {
        Some(callers) => Peer::Replicas(callers.clone()),
        None => Peer::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: u32 = 900;

    fn caller(service: &str) -> Arc<[Allowed]> {
        Arc::from([Allowed {
            deployment: "shop".into(),
            service: service.into(),
        }])
    }

    #[test]
    fn a_socket_of_this_host_is_its_groups_then_its_users() {
        let known = Known {
            by_cgroup: [(7, caller("web"))].into(),
            by_uid: [(33, caller("web")), (34, caller("db"))].into(),
            groupless_by_uid: [(34, caller("db"))].into(),
            ..Known::default()
        };
        let who = |uid, cgroup, is_connected| {
            let owner = SocketOwner {
                uid,
                cgroup,
                is_connected,
            };
            known.owner_of(owner, DAEMON)
        };
        assert_eq!(who(33, Some(7), true), Peer::Replicas(caller("web")));
        assert_eq!(who(0, Some(7), false), Peer::Replicas(caller("web")));
        // Another program of the replica's user is not the replica, where groups can be told.
        assert_eq!(who(33, Some(1), true), Peer::Stranger);
        assert_eq!(who(33, None, true), Peer::Replicas(caller("web")));
        assert_eq!(who(34, Some(1), true), Peer::Replicas(caller("db")));
        for uid in [0, DAEMON] {
            assert_eq!(who(uid, Some(1), true), Peer::HostUser);
            assert_eq!(who(uid, Some(1), false), Peer::Stranger);
        }
        assert_eq!(who(35, Some(1), true), Peer::Stranger);
    }
}
