//! The listings of all services, made once for all nodes that are told of them, and which node is concerned by what.
//!
//! It is brought up to date by what `step` touched: the cost of a change is that of its service and of the nodes that
//! it concerns, never that of all services or all nodes.

mod scope;

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::change::listing_change;
use super::ways::Ways;
use super::{
    CanaryShare, INGRESS_LABEL, INGRESS_NODES_MAX, Listing, ListingChange, ReadyReplica, Touched, ZONE_LABEL,
    cold_start_of,
};
use crate::acme;
use crate::ids::{DeploymentName, NodeId, ServiceId, ServiceKey};
use crate::spec::{Endpoint, Expose, Runtime};
use crate::state::{Node, Service, State, Wanted};

pub(super) use scope::{Offer, certificates_in};

/// A service with endpoints.
#[derive(Clone, Debug)]
struct Listed {
    key: ServiceKey,
    listing: Arc<Listing>,
    /// The nodes that have a replica of it, ready or not.
    nodes: OrdSet<NodeId>,
    /// What the last change of the listing was.
    delta: Option<Arc<Delta>>,
}

/// What came and went between two listings: made once for all nodes that have the first one.
#[derive(Debug)]
pub(super) struct Delta {
    pub from: Arc<Listing>,
    pub change: ListingChange,
}

impl PartialEq for Listed {
    /// How a listing came about does not count.
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.listing, &self.nodes) == (&other.key, &other.listing, &other.nodes)
    }
}

/// Whom a change concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Every node.
    pub all: bool,
    /// By what they run, and as those that take requests from outside.
    pub nodes: BTreeSet<NodeId>,
    /// Those who have asked for one of these.
    pub services: BTreeSet<ServiceKey>,
    /// Those who have asked for any service of these, which came, went or have other services.
    pub deployments: BTreeSet<DeploymentName>,
    /// Those who want all that they may call.
    pub is_open: bool,
}

/// Whom changes of services concern, before it is looked up which nodes those are: what many services of one deployment have in
/// common is looked up once.
#[derive(Debug, Default)]
struct Audience {
    nodes: Vec<OrdSet<NodeId>>,
    /// All nodes that have a replica of one of these.
    callers: BTreeSet<DeploymentName>,
    services: BTreeSet<ServiceKey>,
    /// Those that take requests from outside.
    ingress: bool,
    is_open: bool,
}

impl Audience {
    fn merge(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.callers.extend(other.callers);
        self.services.extend(other.services);
        self.ingress |= other.ingress;
        self.is_open |= other.is_open;
    }
}

/// Listings by service. A server keeps one beside its state; a copy costs next to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectoryIndex {
    services: OrdMap<ServiceId, Listed>,
    /// The nodes that have a replica of a service, of those services that have no endpoints too: by deployment.
    callers: OrdMap<DeploymentName, OrdMap<ServiceId, OrdSet<NodeId>>>,
    /// The deployment of each service in `callers`.
    known: OrdMap<ServiceId, DeploymentName>,
    /// Told to every node that asks for them: those that are public, or open to the whole cluster.
    open: OrdSet<ServiceId>,
    /// Told to every node that takes requests from outside.
    public: OrdSet<ServiceId>,
    /// Those that run as programs of their hosts: these ask nobody for names, so that their nodes are told of all that is
    /// open.
    programs: OrdSet<ServiceId>,
    /// Services of other deployments that an endpoint names, and whose nodes are told of it therefore.
    named: OrdMap<ServiceKey, OrdSet<ServiceId>>,
    pub(super) ways: Ways,
    /// By the label that says so.
    pub(super) zones: OrdMap<NodeId, Arc<str>>,
    /// Those with the label that makes a node of a large cluster take requests from outside.
    ingress: OrdSet<NodeId>,
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
        for (id, node) in &state.nodes {
            index.note_labels(*id, Some(node));
        }
        index.ways = Ways::of(state);
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
        let (mut concerned, mut audience) = (Concerned::default(), Audience::default());
        let mut services = touched.services.clone();
        for node in &touched.nodes {
            self.take_node(state, *node, &mut services, (&mut concerned, &mut audience));
        }
        self.ways.take_relays(state, &touched.nodes, &mut concerned);
        if std::mem::replace(&mut self.is_large, is_large(state)) != self.is_large {
            concerned.all = true;
        }
        concerned.all |= touched.everybody | self.take_removed(state, touched);
        concerned.deployments.extend(touched.deployments.iter().cloned());
        for id in services {
            let mut before = Audience::default();
            self.add_audience(id, &mut before);
            if self.renew(state, id) {
                audience.merge(before);
                self.add_audience(id, &mut audience);
            }
        }
        audience.callers.extend(touched.deployments.iter().cloned());
        audience.ingress |= touched.secrets.iter().any(|name| self.shows(name));
        self.add_nodes(audience, &mut concerned);
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

    /// Whether a public endpoint has its certificate from this secret.
    fn shows(&self, secret: &str) -> bool {
        let public = self.public.iter().filter_map(|id| self.services.get(id));
        let mut named = public.flat_map(|listed| certificates_of(&listed.listing.endpoints));
        named.any(|name| name == secret)
    }

    /// A node that is lost, back, removed or reached elsewhere concerns those who are told of its replicas; what it runs
    /// and how it is labelled concerns itself.
    fn take_node(
        &mut self,
        state: &State,
        id: NodeId,
        services: &mut BTreeSet<ServiceId>,
        (concerned, audience): (&mut Concerned, &mut Audience),
    ) {
        concerned.nodes.insert(id);
        let node = state.node(id);
        let mesh = node.and_then(|node| node.info.mesh_addr.clone());
        if let Some(node) = node {
            services.extend(node.replica_keys().map(|key| key.service));
        }
        let is_elsewhere = self.ways.said_by(id) != mesh.as_ref();
        if !(self.note_labels(id, node) | is_elsewhere) {
            return;
        }
        // Whoever calls a node through it has to hear where it is.
        concerned.all |= is_elsewhere && self.ways.passes_on(id);
        let named = self
            .services
            .iter()
            .filter(|(_, listed)| listed.nodes.contains(&id));
        let named: Vec<ServiceId> = named.map(|(service, _)| *service).collect();
        for service in named {
            self.add_audience(service, audience);
        }
        if is_elsewhere {
            self.ways.say(id, mesh);
        }
    }

    /// Notes what a node's labels say; whether its zone is another one.
    fn note_labels(&mut self, id: NodeId, node: Option<&Arc<Node>>) -> bool {
        let labels = node.map(|node| node.labels()).unwrap_or_default();
        match labels.get(INGRESS_LABEL).is_some_and(|value| value == "true") {
            true => self.ingress.insert(id),
            false => self.ingress.remove(&id),
        };
        let zone = labels.get(ZONE_LABEL).map(String::as_str);
        if self.zones.get(&id).map(|zone| &**zone) == zone {
            return false;
        }
        match zone {
            Some(zone) => self.zones.insert(id, zone.into()),
            None => self.zones.remove(&id),
        };
        true
    }

    /// Notes whether its replicas are programs of their hosts, and whether that is news: their nodes are told of more.
    fn note_runtime(&mut self, id: ServiceId, service: &Service) -> bool {
        let is_program = service
            .spec()
            .is_some_and(|spec| spec.runtime() == Runtime::Process);
        match is_program {
            true => self.programs.insert(id).is_none(),
            false => self.programs.remove(&id).is_some(),
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
        let mut moved = callers.get(&id) != Some(&nodes);
        if moved {
            callers.insert(id, nodes.clone());
            self.known.insert(id, deployment.clone());
        }
        moved |= self.note_runtime(id, service);
        let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
        let Some(endpoints) = endpoints.filter(|endpoints| !endpoints.is_empty()) else {
            return self.unlist(id) || moved;
        };
        let ready = ready_of(state, service);
        let known = self.services.get(&id);
        let same = known.map(|known| &known.listing.endpoints);
        let same = same.filter(|known| known[..] == *endpoints).cloned();
        let canary = CanaryShare::of(service);
        let cold_start = cold_start_of(service);
        let is_same = known.is_some_and(|known| {
            let Listing {
                ready: before,
                canary: known_canary,
                cold_start: known_start,
                ..
            } = known.listing.as_ref();
            same.is_some() && *before == ready && *known_canary == canary && *known_start == cold_start
        });
        if is_same && !moved {
            return false;
        }
        let listing = match known {
            Some(known) if is_same => Arc::clone(&known.listing),
            Some(_) | None => Arc::new(Listing {
                endpoints: same.unwrap_or_else(|| endpoints.into()),
                ready,
                canary,
                cold_start,
            }),
        };
        let delta = known.and_then(|known| {
            let from = Arc::clone(&known.listing);
            let change = listing_change(Some(&from), &listing)?;
            Some(Arc::new(Delta { from, change }))
        });
        self.unlist(id);
        let key = service.key.clone();
        self.list(
            id,
            Listed {
                key,
                listing,
                nodes,
                delta,
            },
        );
        true
    }

    fn list(&mut self, id: ServiceId, listed: Listed) {
        let Listed { key, listing, .. } = &listed;
        if is_open(&listing.endpoints) {
            self.open.insert(id);
        }
        // Where nobody runs it, some node has to take the request that wakes it.
        if listing.endpoints.iter().any(Endpoint::is_public) || listing.cold_start.is_some() {
            self.public.insert(id);
        }
        for named in named_by(key, &listing.endpoints) {
            self.named.entry(named).or_default().insert(id);
        }
        self.services.insert(id, listed);
    }

    /// Whether it was listed.
    fn unlist(&mut self, id: ServiceId) -> bool {
        let Some(listed) = self.services.remove(&id) else {
            return false;
        };
        self.open.remove(&id);
        self.public.remove(&id);
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
        self.programs.remove(&id);
        self.unlist(id);
        true
    }

    /// Adds those who are told of a service, and those who run it: what else its deployment has concerns them.
    fn add_audience(&self, id: ServiceId, to: &mut Audience) {
        let Some(deployment) = self.known.get(&id) else {
            return;
        };
        let nodes = self.callers.get(deployment).and_then(|callers| callers.get(&id));
        to.nodes.extend(nodes.cloned());
        let Some(listed) = self.services.get(&id) else {
            return;
        };
        to.callers.insert(deployment.clone());
        to.services.insert(listed.key.clone());
        to.is_open |= self.open.contains(&id);
        let named = named_by(&listed.key, &listed.listing.endpoints);
        to.callers.extend(named.into_iter().map(|named| named.deployment));
        to.ingress |= self.public.contains(&id);
    }

    /// Looks up which nodes an audience is.
    fn add_nodes(&self, audience: Audience, to: &mut Concerned) {
        to.services.extend(audience.services);
        to.is_open |= audience.is_open;
        to.all |= audience.ingress && !self.is_large;
        if to.all {
            return;
        }
        let callers = audience.callers.iter().filter_map(|name| self.callers.get(name));
        let callers = callers.flat_map(OrdMap::values);
        let programs = self.programs.iter().filter(|_| to.is_open);
        let programs = programs.filter_map(|id| self.callers.get(self.known.get(id)?)?.get(id));
        let groups = audience.nodes.iter().chain(callers).chain(programs);
        let ingress = self.ingress.iter().filter(|_| audience.ingress);
        let mut nodes: Vec<NodeId> = groups.flatten().chain(ingress).copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        to.nodes.extend(nodes);
    }
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

/// Whether every node that runs something may call it.
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
