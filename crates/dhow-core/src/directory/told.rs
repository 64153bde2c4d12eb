//! What one node has been told, and what it has to hear next. The cost of a look is that of what changed: a server does it
//! for thousands of nodes a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::change::listing_change;
use super::index::{Delta, Offer, certificates_in};
use super::ways::Ways;
use super::{
    Absent, DirectoryChange, DirectoryIndex, Interest, Listing, ListingChange, READY_MAX, ReadyReplica,
};
use crate::ids::{NodeId, ServiceKey};
use crate::state::State;

/// A listing that the node has.
#[derive(Clone, Debug)]
struct Has {
    /// As the index had it then: the same value means that nothing has changed.
    whole: Arc<Listing>,
    /// The node's share of it.
    told: Arc<Listing>,
}

/// What was told of one service, and what is to be told now.
struct Update {
    before: Option<Has>,
    after: Option<Has>,
    /// The difference, where the index has it.
    delta: Option<Arc<Delta>>,
}

impl Update {
    fn change(&self) -> Option<ListingChange> {
        let Some(after) = &self.after else {
            return Some(ListingChange::Gone);
        };
        let told = self.before.as_ref().map(|has| &has.told);
        let made = self.delta.as_ref().filter(|delta| {
            let is_whole = Arc::ptr_eq(&after.whole, &after.told);
            is_whole && told.is_some_and(|told| Arc::ptr_eq(told, &delta.from))
        });
        match made {
            Some(delta) => Some(delta.change.clone()),
            None => listing_change(told, &after.told),
        }
    }
}

/// The directory as a node has it, kept by whoever tells it.
#[derive(Debug, Default)]
pub struct ToldListings {
    has_begun: bool,
    by_interest: bool,
    services: BTreeMap<ServiceKey, Has>,
    /// How nodes were reached, and which zones they were in, when it was last told.
    ways: Ways,
    zones: OrdMap<NodeId, Arc<str>>,
    is_ingress: bool,
    removed: OrdSet<NodeId>,
    certificates: BTreeMap<Arc<str>, u64>,
    absent: Absent,
}

impl ToldListings {
    /// What the node has to hear now; it counts as told. Everything where nothing was told before.
    pub fn look(
        &mut self,
        index: &DirectoryIndex,
        state: &State,
        id: NodeId,
        interest: &Interest,
    ) -> DirectoryChange {
        let mut change = DirectoryChange {
            whole: !self.has_begun,
            ..DirectoryChange::default()
        };
        let Some(node) = state.node(id) else {
            return change;
        };
        let mut scope = index.scope(state, node, interest);
        let certificates = certificates_in(state, &scope);
        let updates = self.updates(index, id, std::mem::take(&mut scope.services));
        for (key, update) in &updates {
            if let Some(changed) = update.change() {
                change.services.insert(key.clone(), changed);
            }
        }
        self.tell_nodes(index, id, &updates, &mut change);
        change.tell_removed(&scope.removed, &self.removed);
        let by_interest = *interest != Interest::All;
        let is_first = change.whole;
        let differs = |is_other: bool| is_first || is_other;
        change.is_ingress = differs(scope.is_ingress != self.is_ingress).then_some(scope.is_ingress);
        change.certificates = differs(certificates != self.certificates).then(|| certificates.clone());
        change.by_interest = differs(by_interest != self.by_interest).then_some(by_interest);
        change.absent = differs(scope.absent != self.absent).then(|| scope.absent.clone());
        for (key, update) in updates {
            match update.after {
                Some(has) => self.services.insert(key, has),
                None => self.services.remove(&key),
            };
        }
        (self.has_begun, self.by_interest) = (true, by_interest);
        (self.ways, self.zones) = (index.ways.clone(), index.zones.clone());
        (self.is_ingress, self.removed) = (scope.is_ingress, scope.removed);
        (self.certificates, self.absent) = (certificates, scope.absent);
        change
    }

    /// The services of which the node may have to hear something.
    fn updates(
        &self,
        index: &DirectoryIndex,
        id: NodeId,
        now: BTreeMap<ServiceKey, Offer>,
    ) -> BTreeMap<ServiceKey, Update> {
        let same_zones = self.zones.ptr_eq(&index.zones);
        let mut updates = BTreeMap::new();
        for key in self.services.keys().filter(|key| !now.contains_key(*key)) {
            let update = Update {
                before: self.services.get(key).cloned(),
                after: None,
                delta: None,
            };
            updates.insert(key.clone(), update);
        }
        for (
            key,
            Offer {
                listing: whole,
                delta,
            },
        ) in now
        {
            let before = self.services.get(&key);
            let is_chosen = whole.ready.len() > READY_MAX;
            let is_same = before.is_some_and(|has| Arc::ptr_eq(&has.whole, &whole));
            if is_same && (same_zones || !is_chosen) {
                continue;
            }
            let told = index.share(&whole, id);
            let (before, after) = (before.cloned(), Some(Has { whole, told }));
            updates.insert(key, Update { before, after, delta });
        }
        updates
    }

    /// Says how nodes are reached that are named now, and which ones are named no more.
    fn tell_nodes(
        &self,
        index: &DirectoryIndex,
        own: NodeId,
        updates: &BTreeMap<ServiceKey, Update>,
        change: &mut DirectoryChange,
    ) {
        let before = || self.services.values().map(|has| &*has.told);
        let after = || {
            let kept = self
                .services
                .iter()
                .filter(|(key, _)| !updates.contains_key(*key));
            let new = updates.values().filter_map(|update| update.after.as_ref());
            kept.map(|(_, has)| has).chain(new).map(|has| &*has.told)
        };
        let mut suspects: BTreeSet<NodeId> = BTreeSet::new();
        for (key, changed) in &change.services {
            match changed {
                ListingChange::Ready { came, went } => {
                    suspects.extend(came.iter().chain(went).map(|ready| ready.node));
                }
                ListingChange::Set(_) | ListingChange::Gone => {
                    let update = updates.get(key).into_iter();
                    let both = update.flat_map(|update| [&update.before, &update.after]);
                    suspects.extend(both.flatten().flat_map(|has| nodes_of(&has.told)));
                }
            }
        }
        if !self.ways.is_same(&index.ways) {
            suspects.extend(before().chain(after()).flat_map(nodes_of).chain([own]));
        }
        let relays: Vec<NodeId> = suspects
            .iter()
            .flat_map(|node| [&self.ways, &index.ways].map(|ways| ways.relays_for(*node)))
            .flatten()
            .collect();
        suspects.extend(relays);
        for node in suspects {
            let was = way_told(&self.ways, own, node, before);
            let is = way_told(&index.ways, own, node, after);
            if was != is {
                change.nodes.insert(node, is);
            }
        }
    }
}

/// How a node is told to reach another one that these listings name, or through which it calls one that they name.
fn way_told<'a, L: Iterator<Item = &'a Listing>>(
    ways: &Ways,
    own: NodeId,
    node: NodeId,
    listings: impl Fn() -> L,
) -> Option<Arc<str>> {
    if node == own {
        return ways.place(own);
    }
    let passes_on = || {
        let mut reached = listings().flat_map(nodes_of).chain([own]);
        ways.passes_on(node) && reached.any(|reached| ways.relays_for(reached).contains(&node))
    };
    let is_told = listings().any(|listing| names(listing, node)) || passes_on();
    is_told.then(|| ways.way(node)).flatten()
}

fn nodes_of(listing: &Listing) -> impl Iterator<Item = NodeId> {
    listing.ready.iter().map(|ready| ready.node)
}

fn names(listing: &Listing, node: NodeId) -> bool {
    // They are in the order of their nodes.
    let mut nodes = listing.ready.iter().map(|ready: &ReadyReplica| ready.node);
    nodes.find(|found| *found >= node) == Some(node)
}
