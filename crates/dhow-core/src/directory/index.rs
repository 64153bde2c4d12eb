//! The listings of all services, made once for all nodes that are told of them, and which node is concerned by what.
//!
//! It is brought up to date by what `step` touched: the cost of a change is that of its service and of the nodes that
//! it concerns, never that of all services or all nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::mesh_way::{self, REVERSE};
use super::{Directory, INGRESS_LABEL, INGRESS_NODES_MAX, Listing, READY_MAX, ReadyReplica, Touched};
use crate::acme;
use crate::ids::{DeploymentName, NodeId, ServiceId, ServiceKey};
use crate::spec::{Endpoint, Expose};
use crate::state::{Node, NodeRole, Service, State, Wanted};

/// A service with endpoints.
#[derive(Clone, Debug, PartialEq)]
struct Listed {
    key: ServiceKey,
    listing: Arc<Listing>,
    /// The nodes that have a replica of it, ready or not.
    nodes: OrdSet<NodeId>,
}

/// Whom a change concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Every node.
    pub all: bool,
    pub nodes: BTreeSet<NodeId>,
}

/// Listings by service. A server keeps one beside its state; a copy costs next to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectoryIndex {
    services: OrdMap<ServiceId, Listed>,
    /// The nodes that have a replica of a service, of those services that have no endpoints too: by deployment.
    callers: OrdMap<DeploymentName, OrdMap<ServiceId, OrdSet<NodeId>>>,
    /// The deployment of each service in `callers`.
    known: OrdMap<ServiceId, DeploymentName>,
    /// Told to every node: those that are public, or open to the whole cluster.
    open: OrdSet<ServiceId>,
    /// Services of other deployments that an endpoint names, and whose nodes are told of it therefore.
    named: OrdMap<ServiceKey, OrdSet<ServiceId>>,
    mesh: OrdMap<NodeId, Arc<str>>,
    /// Nodes that nobody can dial, and the servers that can pass on for them.
    reversed: OrdSet<NodeId>,
    relays: OrdSet<NodeId>,
    /// Told to every node that runs something or takes requests.
    removed: OrdSet<NodeId>,
    is_large: bool,
}

impl DirectoryIndex {
    /// The index of a whole state.
    pub fn of(state: &State) -> Self {
        let mut index = Self::default();
        for id in state.services.keys() {
            index.renew(state, *id);
        }
        index.mesh = mesh_of(state);
        let reversed = index.mesh.iter().filter(|(_, addr)| is_reverse(addr));
        index.reversed = reversed.map(|(node, _)| *node).collect();
        index.relays = relays_of(state);
        index.removed = removed_of(state);
        index.is_large = is_large(state);
        index
    }

    /// Takes in what has changed, and says whom that concerns.
    pub fn refresh(&mut self, state: &State, touched: &Touched) -> Concerned {
        if touched.all {
            *self = Self::of(state);
            return Concerned {
                all: true,
                ..Concerned::default()
            };
        }
        let mut concerned = Concerned::default();
        let mut services = touched.services.clone();
        for node in &touched.nodes {
            self.take_node(state, *node, &mut services, &mut concerned);
        }
        self.take_relays(state, touched, &mut concerned);
        if std::mem::replace(&mut self.is_large, is_large(state)) != self.is_large {
            concerned.all = true;
        }
        concerned.all |= touched.everybody | self.take_removed(state, touched);
        let mut deployments = touched.deployments.clone();
        self.add_callers(&deployments, &mut concerned);
        for id in services {
            let before = self.audience(id);
            if !self.renew(state, id) {
                continue;
            }
            let after = self.audience(id);
            for audience in [before, after].into_iter().flatten() {
                concerned.all |= audience.everybody;
                deployments.extend(audience.deployments);
                concerned.nodes.extend(audience.nodes);
            }
        }
        self.add_callers(&deployments, &mut concerned);
        // Whoever takes requests from outside is told of public services, and may be any node.
        concerned.all |= touched.secrets.iter().any(|name| self.shows(name));
        concerned
    }

    /// A removal changes who is noted as removed, and so does a peer that comes back; whether one did.
    fn take_removed(&mut self, state: &State, touched: &Touched) -> bool {
        let noted = &state.node_ids.removed;
        let is_other = |node: &NodeId| noted.contains_key(node) != self.removed.contains(node);
        let is_news = touched.nodes.iter().any(is_other);
        if is_news {
            self.removed = removed_of(state);
        }
        is_news
    }

    /// A server that goes or comes changes whom others reach such nodes through; the first of these nodes makes servers pass
    /// on, and the last one ends it.
    fn take_relays(&mut self, state: &State, touched: &Touched, concerned: &mut Concerned) {
        let is_server = |id: &NodeId| {
            let is_one = state
                .node(*id)
                .is_some_and(|node| node.info.role != NodeRole::Worker);
            is_one || self.relays.contains(id)
        };
        if touched.nodes.iter().any(is_server) {
            let relays = relays_of(state);
            concerned.all |= self.relays != relays && !self.reversed.is_empty();
            self.relays = relays;
        }
        let was_needed = !self.reversed.is_empty();
        for id in &touched.nodes {
            match self.mesh.get(id).is_some_and(|addr| is_reverse(addr)) {
                true => self.reversed.insert(*id),
                false => self.reversed.remove(id),
            };
        }
        if was_needed == self.reversed.is_empty() {
            concerned.nodes.extend(self.relays.iter().copied());
        }
    }

    /// Whether a public endpoint has its certificate from this secret.
    fn shows(&self, secret: &str) -> bool {
        let open = self.open.iter().filter_map(|id| self.services.get(id));
        let mut named = open.flat_map(|listed| certificates_of(&listed.listing.endpoints));
        named.any(|name| name == secret)
    }

    /// The nodes that have a replica of one of these deployments.
    fn add_callers<'a>(&self, deployments: impl IntoIterator<Item = &'a DeploymentName>, to: &mut Concerned) {
        let callers = deployments.into_iter().filter_map(|name| self.callers.get(name));
        to.nodes
            .extend(callers.flat_map(|callers| callers.values().flatten().copied()));
    }

    /// A node that is lost, back, removed or reached elsewhere concerns those who are told of its replicas; what it runs
    /// and how it is labelled concerns itself.
    fn take_node(
        &mut self,
        state: &State,
        id: NodeId,
        services: &mut BTreeSet<ServiceId>,
        concerned: &mut Concerned,
    ) {
        concerned.nodes.insert(id);
        let node = state.node(id);
        let mesh = node.and_then(|node| node.info.mesh_addr.clone());
        if let Some(node) = node {
            services.extend(node.replica_keys().map(|key| key.service));
        }
        if self.mesh.get(&id) != mesh.as_ref() {
            let named = self.services.values().filter(|listed| listed.nodes.contains(&id));
            for listed in named {
                let others = named_by(&listed.key, &listed.listing.endpoints).into_iter();
                let told: Vec<_> = others.map(|key| key.deployment).collect();
                self.add_callers(told.iter().chain([&listed.key.deployment]), concerned);
                concerned.all |= is_open(&listed.listing.endpoints);
            }
            match mesh {
                Some(mesh) => self.mesh.insert(id, mesh),
                None => self.mesh.remove(&id),
            };
        }
    }

    /// Makes a service's listing anew; whether that is another one.
    fn renew(&mut self, state: &State, id: ServiceId) -> bool {
        let Some(service) = state.service(id) else {
            return self.forget(id);
        };
        let nodes: OrdSet<NodeId> = state.replicas_of(id).map(|(_, replica)| replica.node).collect();
        let deployment = &service.key.deployment;
        let callers = self.callers.entry(deployment.clone()).or_default();
        let moved = callers.get(&id) != Some(&nodes);
        if moved {
            callers.insert(id, nodes.clone());
            self.known.insert(id, deployment.clone());
        }
        let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
        let Some(endpoints) = endpoints.filter(|endpoints| !endpoints.is_empty()) else {
            return self.unlist(id) || moved;
        };
        let ready = ready_of(state, service);
        let known = self.services.get(&id);
        let same = known.map(|known| &known.listing.endpoints);
        let same = same.filter(|known| known[..] == *endpoints).cloned();
        let is_same = known.is_some_and(|known| same.is_some() && known.listing.ready == ready);
        if is_same && !moved {
            return false;
        }
        let listing = match known {
            Some(known) if is_same => Arc::clone(&known.listing),
            Some(_) | None => Arc::new(Listing {
                endpoints: same.unwrap_or_else(|| endpoints.into()),
                ready,
            }),
        };
        self.unlist(id);
        self.list(id, &service.key, listing, nodes);
        true
    }

    fn list(&mut self, id: ServiceId, key: &ServiceKey, listing: Arc<Listing>, nodes: OrdSet<NodeId>) {
        if is_open(&listing.endpoints) {
            self.open.insert(id);
        }
        for named in named_by(key, &listing.endpoints) {
            self.named.entry(named).or_default().insert(id);
        }
        let key = key.clone();
        self.services.insert(id, Listed { key, listing, nodes });
    }

    /// Whether it was listed.
    fn unlist(&mut self, id: ServiceId) -> bool {
        let Some(listed) = self.services.remove(&id) else {
            return false;
        };
        self.open.remove(&id);
        for named in named_by(&listed.key, &listed.listing.endpoints) {
            let is_empty = self.named.get_mut(&named).is_some_and(|ids| {
                ids.remove(&id);
                ids.is_empty()
            });
            if is_empty {
                self.named.remove(&named);
            }
        }
        true
    }

    fn forget(&mut self, id: ServiceId) -> bool {
        let Some(deployment) = self.known.remove(&id) else {
            return false;
        };
        let is_empty = self.callers.get_mut(&deployment).is_some_and(|callers| {
            callers.remove(&id);
            callers.is_empty()
        });
        if is_empty {
            self.callers.remove(&deployment);
        }
        self.unlist(id);
        true
    }

    /// Who is told of a service.
    fn audience(&self, id: ServiceId) -> Option<Audience> {
        let deployment = self.known.get(&id)?;
        let listing = self.services.get(&id).map(|listed| &listed.listing);
        let allowed = listing.map(|listing| listing.endpoints.iter());
        let allowed = allowed.into_iter().flatten().flat_map(|endpoint| &endpoint.allow);
        let others = allowed.flatten().filter_map(|allowed| allowed.deployment.clone());
        let nodes = self.callers.get(deployment).and_then(|callers| callers.get(&id));
        Some(Audience {
            everybody: self.open.contains(&id),
            deployments: others.chain([deployment.clone()]).collect(),
            nodes: nodes.into_iter().flatten().copied().collect(),
        })
    }

    /// What a node is told. The state says what the node runs; it may be newer than the index, which then has the newest
    /// listings that it was given.
    pub fn directory(&self, state: &State, id: NodeId) -> Directory {
        let Some(node) = state.node(id) else {
            return Directory::default();
        };
        let mut directory = Directory {
            is_ingress: takes_requests(state, node),
            ..Directory::default()
        };
        let runs: BTreeSet<ServiceId> = node.replica_keys().map(|key| key.service).collect();
        let mut told: BTreeSet<ServiceId> = BTreeSet::new();
        let mut deployments: BTreeSet<&DeploymentName> = BTreeSet::new();
        for service in runs.iter().filter_map(|id| state.service(*id)) {
            deployments.insert(&service.key.deployment);
            told.extend(self.named.get(&service.key).into_iter().flatten());
        }
        for deployment in deployments.iter().filter_map(|name| state.deployment(name)) {
            told.extend(deployment.services.values());
        }
        // One that its deployment has no more is there until its last replica has gone.
        told.extend(&runs);
        self.tell_place(id, &mut directory);
        if !runs.is_empty() || directory.is_ingress {
            told.extend(&self.open);
        }
        if !runs.is_empty() || directory.is_ingress || !directory.nodes.is_empty() {
            directory.removed = self.removed.clone();
        }
        for id in told {
            self.tell(state, node, id, &mut directory);
        }
        if directory.is_ingress {
            let listings = directory.services.values();
            let named = listings.flat_map(|listing| certificates_of(&listing.endpoints));
            directory.certificates = named.map(|name| (name.into(), version_of(state, name))).collect();
        }
        directory
    }

    fn tell(&self, state: &State, node: &Node, id: ServiceId, to: &mut Directory) {
        let (key, listing) = match self.services.get(&id) {
            Some(listed) => (listed.key.clone(), Arc::clone(&listed.listing)),
            // Too new for the index: its names are needed before its replicas start.
            None => {
                let Some((key, listing)) = state.service(id).and_then(|service| fresh(state, service)) else {
                    return;
                };
                (key, Arc::new(listing))
            }
        };
        let listing = match listing.ready.len() > READY_MAX {
            true => Arc::new(chosen(&listing, node.id)),
            false => listing,
        };
        for ready in listing.ready.iter().filter(|ready| ready.node != node.id) {
            self.tell_way(ready.node, to);
        }
        to.services.insert(key, listing);
    }

    /// How a node is reached, and those through whom it is.
    fn tell_way(&self, node: NodeId, to: &mut Directory) {
        let Some(addr) = self.mesh.get(&node).filter(|_| !to.nodes.contains_key(&node)) else {
            return;
        };
        if !is_reverse(addr) {
            to.nodes.insert(node, addr.clone());
            return;
        }
        let relays = mesh_way::relays_for(node, self.relays.iter().copied());
        for relay in &relays {
            if let Some(addr) = self.mesh.get(relay) {
                to.nodes.entry(*relay).or_insert_with(|| addr.clone());
            }
        }
        if let Some(through) = mesh_way::through(relays) {
            to.nodes.insert(node, through);
        }
    }

    /// What a node does for those that nobody can dial, or who does it for this one.
    fn tell_place(&self, node: NodeId, to: &mut Directory) {
        if self.reversed.contains(&node) {
            self.tell_way(node, to);
        } else if self.relays.contains(&node) && !self.reversed.is_empty() {
            to.nodes.insert(node, mesh_way::relay());
        }
    }
}

/// Who is told of a service.
struct Audience {
    everybody: bool,
    /// Their nodes.
    deployments: BTreeSet<DeploymentName>,
    nodes: BTreeSet<NodeId>,
}

fn fresh(state: &State, service: &Service) -> Option<(ServiceKey, Listing)> {
    let endpoints = &service.spec()?.endpoints;
    if endpoints.is_empty() {
        return None;
    }
    let listing = Listing {
        endpoints: endpoints.as_slice().into(),
        ready: ready_of(state, service),
    };
    Some((service.key.clone(), listing))
}

fn ready_of(state: &State, service: &Service) -> BTreeSet<ReadyReplica> {
    let is_there = |node: NodeId| state.node(node).is_some_and(|node| node.is_ready());
    let ready = state.replicas_of(service.id).filter(|(_, replica)| {
        replica.wanted == Wanted::Run && replica.is_healthy() && is_there(replica.node)
    });
    ready
        .filter_map(|(key, replica)| {
            Some(ReadyReplica {
                node: replica.node,
                role: service.role(key.slot.role)?.clone(),
                index: key.slot.index,
                generation: key.generation,
            })
        })
        .collect()
}

/// The replicas of a large service that one node calls: those that it has itself, then others such that each node has its
/// own choice, which moves little when replicas come and go.
pub(super) fn chosen(listing: &Listing, node: NodeId) -> Listing {
    let rank = |ready: &ReadyReplica| {
        let is_here = ready.node == node;
        let mut hash = mixed(node.0);
        for part in [
            ready.node.0,
            u64::from(ready.index),
            u64::from(ready.generation.0),
        ] {
            hash = mixed(hash ^ part);
        }
        for byte in ready.role.as_str().bytes() {
            hash = mixed(hash ^ u64::from(byte));
        }
        (!is_here, hash)
    };
    let mut ranked: Vec<&ReadyReplica> = listing.ready.iter().collect();
    ranked.sort_by_cached_key(|ready| rank(ready));
    Listing {
        endpoints: Arc::clone(&listing.endpoints),
        ready: ranked.into_iter().take(READY_MAX).cloned().collect(),
    }
}

/// Spreads a number over all of its bits; the same on every machine.
fn mixed(number: u64) -> u64 {
    let mut n = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Whether every node is told of it.
fn is_open(endpoints: &[Endpoint]) -> bool {
    endpoints.iter().any(|endpoint| match endpoint.expose {
        Expose::Public => true,
        Expose::Cluster => endpoint.allow.is_none(),
        Expose::Internal => false,
    })
}

/// The secrets with the certificates that public endpoints show, and what is answered to whoever orders them.
fn certificates_of(endpoints: &[Endpoint]) -> impl Iterator<Item = &str> {
    let public = endpoints.iter().filter(|endpoint| endpoint.is_public());
    let tls = public.filter_map(|endpoint| endpoint.tls.as_ref());
    tls.flat_map(|tls| {
        let answered = tls.is_by_acme().then_some(acme::THUMBPRINT);
        [Some(tls.secret.as_str()), answered].into_iter().flatten()
    })
}

fn version_of(state: &State, secret: &str) -> u64 {
    state.secrets.get(secret).map_or(0, |secret| secret.version)
}

/// The secrets with certificates that a node may have: all of public endpoints, if it takes requests from outside.
pub fn certificates_for<'a>(state: &'a State, node: &Node) -> BTreeSet<&'a str> {
    if !takes_requests(state, node) {
        return BTreeSet::new();
    }
    let specs = state.services.values().filter_map(|service| service.spec());
    specs.flat_map(|spec| certificates_of(&spec.endpoints)).collect()
}

/// The services of other deployments that its endpoints let call.
fn named_by(key: &ServiceKey, endpoints: &[Endpoint]) -> Vec<ServiceKey> {
    let allowed = endpoints.iter().flat_map(|endpoint| &endpoint.allow).flatten();
    let keys = allowed.map(|allowed| allowed.key(&key.deployment));
    keys.filter(|named| named.deployment != key.deployment).collect()
}

fn mesh_of(state: &State) -> OrdMap<NodeId, Arc<str>> {
    let nodes = state.nodes.iter();
    nodes
        .filter_map(|(id, node)| Some((*id, node.info.mesh_addr.clone()?)))
        .collect()
}

fn is_reverse(addr: &str) -> bool {
    addr == REVERSE
}

/// The servers through whom a node is called that nobody can dial, the first before the others; none for other nodes.
pub fn relays_through(state: &State, id: NodeId) -> Vec<NodeId> {
    let addr = state.node(id).and_then(|node| node.info.mesh_addr.as_deref());
    match addr.is_some_and(is_reverse) {
        true => mesh_way::relays_for(id, relays_of(state)),
        false => Vec::new(),
    }
}

/// The servers that can pass on: those that are heard; all of them where none is, which then is no news about any.
fn relays_of(state: &State) -> OrdSet<NodeId> {
    let servers = state.nodes.iter().filter(|(_, node)| {
        let is_reached = node
            .info
            .mesh_addr
            .as_deref()
            .is_some_and(|addr| !is_reverse(addr));
        node.info.role == NodeRole::Server && is_reached
    });
    let heard: OrdSet<NodeId> = servers
        .clone()
        .filter(|(_, node)| node.is_ready())
        .map(|(id, _)| *id)
        .collect();
    match heard.is_empty() {
        true => servers.map(|(id, _)| *id).collect(),
        false => heard,
    }
}

fn removed_of(state: &State) -> OrdSet<NodeId> {
    state.node_ids.removed.keys().copied().collect()
}

fn is_large(state: &State) -> bool {
    state.nodes.len() > INGRESS_NODES_MAX
}

/// Whether a node takes requests from outside.
fn takes_requests(state: &State, node: &Node) -> bool {
    !is_large(state)
        || node
            .labels()
            .get(INGRESS_LABEL)
            .is_some_and(|value| value == "true")
}
