//! What changed between two directories of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdSet;

use super::{Absent, Directory, Listing, ReadyReplica};
use crate::ids::{NodeId, ServiceKey};
use crate::spec::Endpoint;

/// What a node is told after what it was told before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectoryChange {
    /// What was told before counts no more.
    pub whole: bool,
    pub services: BTreeMap<ServiceKey, ListingChange>,
    /// None: nobody names the node any more, or it cannot be reached.
    pub nodes: BTreeMap<NodeId, Option<Arc<str>>>,
    /// None: as before.
    pub is_ingress: Option<bool>,
    /// Removed from the cluster, and not to be let in.
    pub removed: Vec<NodeId>,
    /// Removed so long ago that no certificate of theirs is good, or back.
    pub forgotten: Vec<NodeId>,
    /// All of them; none: as before.
    pub certificates: Option<BTreeMap<Arc<str>, u64>>,
    /// None: as before.
    pub by_interest: Option<bool>,
    /// All of it; none: as before.
    pub absent: Option<Absent>,
}

/// What changed of one service.
#[derive(Clone, Debug, PartialEq)]
pub enum ListingChange {
    /// All of it.
    Set(Arc<Listing>),
    /// Its endpoints, the share of a canary and how requests wait are what they were.
    Ready {
        came: Vec<ReadyReplica>,
        went: Vec<ReadyReplica>,
    },
    /// The node need not know it any more.
    Gone,
}

impl DirectoryChange {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        let Self {
            whole,
            services,
            nodes,
            is_ingress,
            removed,
            forgotten,
            certificates,
            by_interest,
            absent,
        } = self;
        let lists_are_empty = removed.is_empty() && forgotten.is_empty();
        let is_as_before =
            is_ingress.is_none() && certificates.is_none() && by_interest.is_none() && absent.is_none();
        !whole && services.is_empty() && nodes.is_empty() && is_as_before && lists_are_empty
    }

    /// Says which nodes were removed, or need not be known as such any more.
    pub(super) fn tell_removed(&mut self, now: &OrdSet<NodeId>, last: &OrdSet<NodeId>) {
        // Mostly the very same set, which the index shares.
        if now.ptr_eq(last) {
            return;
        }
        let less = |more: &OrdSet<NodeId>, less: &OrdSet<NodeId>| {
            let more = more.iter().filter(|node| !less.contains(*node));
            more.copied().collect()
        };
        self.removed = less(now, last);
        self.forgotten = less(last, now);
    }
}

impl Directory {
    /// What a node has to be told that has `last`; everything where it has nothing.
    pub fn since(&self, last: Option<&Directory>) -> DirectoryChange {
        let Some(last) = last else {
            let services = self.services.iter();
            let nodes = self.nodes.iter();
            return DirectoryChange {
                whole: true,
                services: services
                    .map(|(key, listing)| (key.clone(), ListingChange::Set(Arc::clone(listing))))
                    .collect(),
                nodes: nodes.map(|(node, addr)| (*node, Some(addr.clone()))).collect(),
                is_ingress: Some(self.is_ingress),
                removed: self.removed.iter().copied().collect(),
                forgotten: Vec::new(),
                certificates: Some(self.certificates.clone()),
                by_interest: Some(self.by_interest),
                absent: Some(self.absent.clone()),
            };
        };
        let mut change = DirectoryChange {
            is_ingress: (self.is_ingress != last.is_ingress).then_some(self.is_ingress),
            certificates: (self.certificates != last.certificates).then(|| self.certificates.clone()),
            by_interest: (self.by_interest != last.by_interest).then_some(self.by_interest),
            absent: (self.absent != last.absent).then(|| self.absent.clone()),
            ..DirectoryChange::default()
        };
        for (key, listing) in &self.services {
            if let Some(changed) = listing_change(last.services.get(key), listing) {
                change.services.insert(key.clone(), changed);
            }
        }
        let gone = last
            .services
            .keys()
            .filter(|key| !self.services.contains_key(*key));
        for key in gone {
            change.services.insert(key.clone(), ListingChange::Gone);
        }
        for (node, addr) in &self.nodes {
            if last.nodes.get(node) != Some(addr) {
                change.nodes.insert(*node, Some(addr.clone()));
            }
        }
        for node in last.nodes.keys().filter(|node| !self.nodes.contains_key(*node)) {
            change.nodes.insert(*node, None);
        }
        change.tell_removed(&self.removed, &last.removed);
        change
    }

    /// Takes in what changed. Replicas of a service that is not known are left out: the next whole one has it.
    pub fn apply(&mut self, change: DirectoryChange) {
        if change.whole {
            *self = Self::default();
        }
        for (key, changed) in change.services {
            match changed {
                ListingChange::Set(listing) => {
                    self.services.insert(key, listing);
                }
                ListingChange::Ready { came, went } => {
                    if let Some(listing) = self.services.get_mut(&key) {
                        let listing = Arc::make_mut(listing);
                        listing.ready.retain(|ready| !went.contains(ready));
                        listing.ready.extend(came);
                    }
                }
                ListingChange::Gone => {
                    self.services.remove(&key);
                }
            }
        }
        for (node, addr) in change.nodes {
            match addr {
                Some(addr) => self.nodes.insert(node, addr),
                None => self.nodes.remove(&node),
            };
        }
        for node in change.forgotten {
            self.removed.remove(&node);
        }
        self.removed.extend(change.removed);
        if let Some(is_ingress) = change.is_ingress {
            self.is_ingress = is_ingress;
        }
        if let Some(certificates) = change.certificates {
            self.certificates = certificates;
        }
        self.by_interest = change.by_interest.unwrap_or(self.by_interest);
        if let Some(absent) = change.absent {
            self.absent = absent;
        }
    }
}

fn same_endpoints(one: &Arc<[Endpoint]>, other: &Arc<[Endpoint]>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

pub(super) fn listing_change(last: Option<&Arc<Listing>>, now: &Arc<Listing>) -> Option<ListingChange> {
    let is_alike = |last: &&Arc<Listing>| {
        let is_alike = last.canary == now.canary && last.cold_start == now.cold_start;
        is_alike && same_endpoints(&last.endpoints, &now.endpoints)
    };
    let Some(last) = last.filter(is_alike) else {
        return Some(ListingChange::Set(Arc::clone(now)));
    };
    // Most are the very same value, which the index shares.
    if Arc::ptr_eq(last, now) || last.ready == now.ready {
        return None;
    }
    Some(ListingChange::Ready {
        came: now.ready.difference(&last.ready).cloned().collect(),
        went: last.ready.difference(&now.ready).cloned().collect(),
    })
}
