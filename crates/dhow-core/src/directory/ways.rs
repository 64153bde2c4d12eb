//! How the proxies of nodes are reached: at their addresses, or through servers that pass on for nodes that nobody can dial.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::Concerned;
use super::mesh_way::{self, REVERSE};
use crate::ids::NodeId;
use crate::state::{NodeRole, State};

/// The ways to all nodes. A copy costs next to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ways {
    /// What nodes say of their proxies.
    mesh: OrdMap<NodeId, Arc<str>>,
    /// Nodes that nobody can dial, and the servers that can pass on for them.
    reversed: OrdSet<NodeId>,
    relays: OrdSet<NodeId>,
}

impl Ways {
    pub fn of(state: &State) -> Self {
        let nodes = state.nodes.iter();
        let mesh: OrdMap<NodeId, Arc<str>> = nodes
            .filter_map(|(id, node)| Some((*id, node.info.mesh_addr.clone()?)))
            .collect();
        let reversed = mesh.iter().filter(|(_, addr)| is_reverse(addr));
        Self {
            reversed: reversed.map(|(node, _)| *node).collect(),
            relays: relays_of(state),
            mesh,
        }
    }

    /// Whether both are copies of the same; false says nothing.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self {
            mesh,
            reversed,
            relays,
        } = other;
        self.mesh.ptr_eq(mesh) && self.reversed.ptr_eq(reversed) && self.relays.ptr_eq(relays)
    }

    /// What a node says of its proxy.
    pub fn said_by(&self, node: NodeId) -> Option<&Arc<str>> {
        self.mesh.get(&node)
    }

    /// A node says something else from now on. Call [`Ways::take_relays`] when all have.
    pub fn say(&mut self, node: NodeId, mesh: Option<Arc<str>>) {
        match mesh {
            Some(mesh) => self.mesh.insert(node, mesh),
            None => self.mesh.remove(&node),
        };
    }

    /// Whether this is a server that others may be told of for nodes that nobody can dial.
    pub fn passes_on(&self, node: NodeId) -> bool {
        !self.reversed.is_empty() && self.relays.contains(&node)
    }

    /// A server that goes or comes changes whom others reach such nodes through; the first of these nodes makes servers pass
    /// on, and the last one ends it.
    pub fn take_relays(&mut self, state: &State, touched: &BTreeSet<NodeId>, concerned: &mut Concerned) {
        let is_server = |id: &NodeId| {
            let is_one = state
                .node(*id)
                .is_some_and(|node| node.info.role != NodeRole::Worker);
            is_one || self.relays.contains(id)
        };
        if touched.iter().any(is_server) {
            let relays = relays_of(state);
            if self.relays != relays {
                concerned.all |= !self.reversed.is_empty();
                self.relays = relays;
            }
        }
        let was_needed = !self.reversed.is_empty();
        for id in touched {
            // What is as before stays the same copy.
            let is_reversed = self.mesh.get(id).is_some_and(|addr| is_reverse(addr));
            match (is_reversed, self.reversed.contains(id)) {
                (true, false) => _ = self.reversed.insert(*id),
                (false, true) => _ = self.reversed.remove(id),
                (true, true) | (false, false) => {}
            }
        }
        if was_needed == self.reversed.is_empty() {
            concerned.nodes.extend(self.relays.iter().copied());
        }
    }

    /// The servers through whom a node is called that nobody can dial; none for other nodes.
    pub fn relays_for(&self, node: NodeId) -> Vec<NodeId> {
        match self.reversed.contains(&node) {
            true => mesh_way::relays_for(node, self.relays.iter().copied()),
            false => Vec::new(),
        }
    }

    /// How others are told to reach a node.
    pub fn way(&self, node: NodeId) -> Option<Arc<str>> {
        match self.reversed.contains(&node) {
            true => mesh_way::through(self.relays_for(node)),
            false => self.mesh.get(&node).cloned(),
        }
    }

    /// What a node is told of itself: who passes on for it where nobody can dial it, or that it passes on for others.
    pub fn place(&self, node: NodeId) -> Option<Arc<str>> {
        if self.reversed.contains(&node) {
            return mesh_way::through(self.relays_for(node));
        }
        self.passes_on(node).then(mesh_way::relay)
    }

    /// Tells a node of its own place, and of those who pass on for it.
    pub fn tell_place(&self, own: NodeId, to: &mut BTreeMap<NodeId, Arc<str>>) {
        if let Some(place) = self.place(own) {
            to.insert(own, place);
        }
        self.tell_relays(own, to);
    }

    /// Tells how a node is reached, and those through whom it is.
    pub fn tell_way(&self, node: NodeId, to: &mut BTreeMap<NodeId, Arc<str>>) {
        if to.contains_key(&node) {
            return;
        }
        if let Some(way) = self.way(node) {
            to.insert(node, way);
        }
        self.tell_relays(node, to);
    }

    fn tell_relays(&self, node: NodeId, to: &mut BTreeMap<NodeId, Arc<str>>) {
        for relay in self.relays_for(node) {
            if let Some(addr) = self.mesh.get(&relay) {
                to.entry(relay).or_insert_with(|| Arc::clone(addr));
            }
        }
    }
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
