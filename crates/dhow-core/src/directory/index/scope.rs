//! What one node is told, by what it runs and what it wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdSet;

use super::super::chosen::chosen;
use super::super::{Absent, CanaryShare, Directory, Interest, Listing, READY_MAX, cold_start_of};
use super::{Delta, DirectoryIndex, certificates_of, is_open, ready_of};
use crate::ids::{DeploymentName, NodeId, ServiceId, ServiceKey};
use crate::state::{Node, Service, State};

/// A listing as the index has it, and how it came about.
pub(in crate::directory) struct Offer {
    pub listing: Arc<Listing>,
    pub delta: Option<Arc<Delta>>,
}

/// What a node is told of, before the listings themselves.
pub(in crate::directory) struct Scope {
    /// Services in the order of their names.
    pub services: BTreeMap<ServiceKey, Offer>,
    pub absent: Absent,
    pub is_ingress: bool,
    pub removed: OrdSet<NodeId>,
}

impl DirectoryIndex {
    /// What a node is told of. The state says what the node runs; it may be newer than the index, which then has the
    /// newest listings that it was given.
    pub(in crate::directory) fn scope(&self, state: &State, node: &Node, interest: &Interest) -> Scope {
        let is_ingress = !self.is_large || self.ingress.contains(&node.id);
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
        if is_ingress {
            told.extend(&self.public);
        }
        let is_somebody = !runs.is_empty() || is_ingress;
        let wants_all = match interest {
            Interest::All => true,
            Interest::In(_) => runs.iter().any(|id| self.programs.contains(id)),
        };
        if wants_all && is_somebody {
            told.extend(&self.open);
        }
        let asked: &BTreeSet<ServiceKey> = match interest {
            Interest::All => &BTreeSet::new(),
            Interest::In(keys) => keys,
        };
        let open = asked
            .iter()
            .filter_map(|key| state.service_named(&key.deployment, &key.service))
            .filter(|service| is_somebody && self.has_open(service));
        told.extend(open.map(|service| service.id));
        let services: BTreeMap<_, _> = told.into_iter().filter_map(|id| self.offer(state, id)).collect();
        let mut absent = Absent::default();
        for key in asked.iter().filter(|key| !services.contains_key(*key)) {
            match state.deployment(&key.deployment) {
                Some(_) => absent.services.insert(key.clone()),
                None => absent.deployments.insert(key.deployment.clone()),
            };
        }
        Scope {
            services,
            absent,
            is_ingress,
            removed: match is_somebody || self.ways.place(node.id).is_some() {
                true => self.removed.clone(),
                false => OrdSet::new(),
            },
        }
    }

    /// All that a node is told.
    pub fn directory(&self, state: &State, id: NodeId, interest: &Interest) -> Directory {
        let Some(node) = state.node(id) else {
            return Directory::default();
        };
        let scope = self.scope(state, node, interest);
        let mut directory = Directory {
            certificates: certificates_in(state, &scope),
            is_ingress: scope.is_ingress,
            removed: scope.removed,
            by_interest: *interest != Interest::All,
            absent: scope.absent,
            ..Directory::default()
        };
        self.ways.tell_place(id, &mut directory.nodes);
        for (key, offer) in scope.services {
            let listing = self.share(&offer.listing, id);
            for ready in listing.ready.iter().filter(|ready| ready.node != id) {
                self.ways.tell_way(ready.node, &mut directory.nodes);
            }
            directory.services.insert(key, listing);
        }
        directory
    }

    /// Whether every node that asks for a service is told of it. One that is too new for the index says so itself.
    fn has_open(&self, service: &Service) -> bool {
        match self.services.contains_key(&service.id) {
            true => self.open.contains(&service.id),
            false => service.spec().is_some_and(|spec| is_open(&spec.endpoints)),
        }
    }

    fn offer(&self, state: &State, id: ServiceId) -> Option<(ServiceKey, Offer)> {
        match self.services.get(&id) {
            Some(listed) => {
                let offer = Offer {
                    listing: Arc::clone(&listed.listing),
                    delta: listed.delta.clone(),
                };
                Some((listed.key.clone(), offer))
            }
            // Too new for the index: its names are needed before its replicas start.
            None => {
                let (key, listing) = state.service(id).and_then(|service| fresh(state, service))?;
                let listing = Arc::new(listing);
                Some((key, Offer { listing, delta: None }))
            }
        }
    }

    /// What of a listing a node is told.
    pub(in crate::directory) fn share(&self, listing: &Arc<Listing>, node: NodeId) -> Arc<Listing> {
        match listing.ready.len() > READY_MAX {
            true => Arc::new(chosen(listing, node, &self.zones)),
            false => Arc::clone(listing),
        }
    }
}

/// The secrets with certificates of which a node is told the versions.
pub(in crate::directory) fn certificates_in(state: &State, scope: &Scope) -> BTreeMap<Arc<str>, u64> {
    if !scope.is_ingress {
        return BTreeMap::new();
    }
    let listings = scope.services.values().map(|offer| &offer.listing);
    let named = listings.flat_map(|listing| certificates_of(&listing.endpoints));
    named.map(|name| (name.into(), version_of(state, name))).collect()
}

fn fresh(state: &State, service: &Service) -> Option<(ServiceKey, Listing)> {
    let endpoints = &service.spec()?.endpoints;
    if endpoints.is_empty() {
        return None;
    }
    let listing = Listing {
        endpoints: endpoints.as_slice().into(),
        ready: ready_of(state, service),
        canary: CanaryShare::of(service),
        cold_start: cold_start_of(service),
    };
    Some((service.key.clone(), listing))
}

fn version_of(state: &State, secret: &str) -> u64 {
    state.secrets.get(secret).map_or(0, |secret| secret.version)
}
