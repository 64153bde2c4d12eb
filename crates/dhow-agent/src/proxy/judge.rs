//! Who may call: finds out who is at the other end of a connection, and keeps account of those who are refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::routes::Route;
use super::table::{Allowed, Names, Peer, Table, Transport};
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
        let known = table.names.as_ref().map(Known::of).unwrap_or_default();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
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
        let (mut cgroups, mut uids) = (HashMap::new(), HashMap::new());
        for process in &names.processes {
            let who = Allowed {
                deployment: process.deployment.clone(),
                service: process.service.clone(),
            };
            if let Some(cgroup) = process.cgroup {
                add(&mut cgroups, cgroup, who.clone());
            }
            if let Some(uid) = process.uid {
                add(&mut uids, uid, who);
            }
        }
        known.by_cgroup = shared(cgroups);
        known.by_uid = shared(uids);
        known
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
                let in_group = owner.cgroup.and_then(|cgroup| known.by_cgroup.get(&cgroup));
                if in_group.is_some() {
                    replicas(in_group)
                } else if owner.uid == 0 || owner.uid == self.judge.owner {
                    Peer::HostUser
                } else {
                    replicas(known.by_uid.get(&owner.uid))
                }
            }
        }
    }

    /// Whether this one may call by a route; refusals are counted and noted.
    pub fn may_call(&self, route: &Route, peer: &Peer) -> bool {
        let may = route.who.admits(peer);
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
