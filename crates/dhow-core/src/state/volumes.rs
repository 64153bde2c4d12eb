//! Where volumes are: the node that keeps what services of one deployment share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Service, State};
use crate::ids::{NodeId, ServiceName, Slot};
use crate::spec::RType;
use crate::step::VOLUMES_LEVEL;

/// A volume that several services name, and of which each has another one: they were placed before services that
/// share a volume were kept together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    pub volume: String,
    /// The nodes on which each service has it.
    pub places: BTreeMap<ServiceName, BTreeSet<NodeId>>,
}

impl std::fmt::Display for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { volume, places } = self;
        write!(f, "volume `{volume}` is not one: ")?;
        for (position, (service, nodes)) in places.iter().enumerate() {
            let before = if position == 0 { "" } else { ", " };
            let nodes: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
            write!(f, "{before}`{service}` has one on {}", nodes.join(" and "))?;
        }
        f.write_str("; nothing is moved by itself")
    }
}

impl State {
    /// The services that must run where this one does, because each shares a volume with another of them; itself among
    /// them. Empty where it shares none.
    pub fn volume_mates(&self, service: &Service) -> Vec<Arc<Service>> {
        let own = self.volumes_in_use(service);
        if own.is_empty() {
            return Vec::new();
        }
        let Some(deployment) = self.deployment(&service.key.deployment) else {
            return Vec::new();
        };
        let mut others: Vec<&Arc<Service>> = deployment
            .services
            .values()
            .filter_map(|id| self.services.get(id))
            .filter(|other| other.id != service.id && !self.volumes_in_use(other).is_empty())
            .collect();
        let mut shared: BTreeSet<&str> = own;
        let mut mates: Vec<Arc<Service>> = Vec::new();
        loop {
            let touches = |other: &&Arc<Service>| !self.volumes_in_use(other).is_disjoint(&shared);
            let (new, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(touches);
            if new.is_empty() {
                break;
            }
            for mate in new {
                shared.extend(self.volumes_in_use(mate));
                mates.push(mate.clone());
            }
            others = rest;
        }
        if let (false, Some(itself)) = (mates.is_empty(), self.services.get(&service.id)) {
            mates.push(itself.clone());
        }
        mates.sort_by_key(|mate| mate.id);
        mates
    }

    /// The volumes by which the service is bound to nodes.
    fn volumes_in_use<'s>(&self, service: &'s Service) -> BTreeSet<&'s str> {
        match service.spec() {
            Some(spec) if !service.removing => spec.binding_volumes(),
            Some(_) | None => BTreeSet::new(),
        }
    }

    /// The node where a replica of the slot has to run for its volumes' sake: the one that keeps them, else the one where
    /// another service has what they share, or where the last run of a schedule was. Where there are several, as after an
    /// upgrade, the one with most of them.
    pub fn volume_home(&self, service: &Service, slot: Slot) -> Option<NodeId> {
        let own = service.volume_node(slot);
        if own.is_some() || self.feature_level < VOLUMES_LEVEL {
            return own;
        }
        self.shared_home(service)
    }

    /// The same for slots that no node is bound to.
    pub fn shared_home(&self, service: &Service) -> Option<NodeId> {
        let binds = service.spec().filter(|spec| !spec.binding_volumes().is_empty())?;
        if self.feature_level < VOLUMES_LEVEL {
            return None;
        }
        if binds.rtype == RType::Cron
            && let Some(node) = service.volumes.values().next()
        {
            return Some(*node);
        }
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for mate in self.volume_mates(service) {
            for node in mate.volumes.values() {
                *counts.entry(*node).or_default() += 1;
            }
        }
        let most = counts
            .iter()
            .max_by_key(|(node, count)| (**count, std::cmp::Reverse(**node)));
        most.map(|(node, _)| *node)
    }

    /// Volumes that the service shares by name alone.
    pub fn volumes_apart(&self, service: &Service) -> Vec<Apart> {
        let mates = self.volume_mates(service);
        let mut apart: BTreeMap<&str, BTreeMap<ServiceName, BTreeSet<NodeId>>> = BTreeMap::new();
        for volume in self.volumes_in_use(service) {
            for mate in mates
                .iter()
                .filter(|mate| self.volumes_in_use(mate).contains(volume))
            {
                let nodes: BTreeSet<NodeId> = mate.volumes.values().copied().collect();
                if !nodes.is_empty() {
                    let places = apart.entry(volume).or_default();
                    places.insert(mate.key.service.clone(), nodes);
                }
            }
        }
        let is_apart = |places: &BTreeMap<ServiceName, BTreeSet<NodeId>>| {
            let nodes: BTreeSet<&NodeId> = places.values().flatten().collect();
            places.len() > 1 && nodes.len() > 1
        };
        let found = apart.into_iter().filter(|(_, places)| is_apart(places));
        found
            .map(|(volume, places)| Apart {
                volume: volume.to_owned(),
                places,
            })
            .collect()
    }
}
