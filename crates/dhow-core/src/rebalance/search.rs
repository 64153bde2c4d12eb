//! The search for moves: one after the other, each better than what there is, until there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::is_movable;
use super::standing::Standing;
use crate::around::{Admission, Around};
use crate::command::ReplicaMove;
use crate::ids::{NodeId, ReplicaKey, RoleName, ServiceId};
use crate::placement::{Ask, NodeTable};
use crate::spec::ServiceSpec;
use crate::state::{Service, State};

/// Nodes of a service from which a move is tried, the worst first.
const SOURCES_MAX: usize = 3;
/// Moves that are tried in all, also of replicas that go on from where they were moved to: each is better than the one
/// before, so that this is far beyond any end.
const STEPS_MAX: usize = 20 * super::MOVES_MAX as usize;

/// Where each replica of a service is, in what is proposed so far.
type Places = BTreeMap<ReplicaKey, NodeId>;

/// The looking for moves: the services, where their replicas are in what is proposed so far, and what is moved.
pub(super) struct Search<'a> {
    state: &'a State,
    table: NodeTable,
    moves_max: usize,
    services: Vec<(&'a Arc<Service>, Arc<ServiceSpec>)>,
    places: BTreeMap<ServiceId, Places>,
    /// From where each replica is moved, and where it is to be.
    moves: BTreeMap<ReplicaKey, (NodeId, NodeId)>,
    steps_left: usize,
    is_cut: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        state: &'a State,
        table: NodeTable,
        moves_max: u32,
        services: impl Iterator<Item = &'a Arc<Service>>,
    ) -> Self {
        let mut search = Self {
            state,
            table,
            moves_max: moves_max as usize,
            services: Vec::new(),
            places: BTreeMap::new(),
            moves: BTreeMap::new(),
            steps_left: STEPS_MAX,
            is_cut: false,
        };
        for service in services {
            let replicas = || {
                state
                    .replicas_of(service.id)
                    .filter(|(_, replica)| replica.reserves())
            };
            let movable = replicas().filter(|(key, replica)| is_movable(state, service, key, replica));
            let places: Places = movable.map(|(key, replica)| (*key, replica.node)).collect();
            // Where some are on their way, it is not known yet how the service will lie.
            if places.len() == replicas().count()
                && let Some(spec) = service.spec().filter(|_| !places.is_empty())
            {
                search.services.push((service, Arc::clone(spec)));
                search.places.insert(service.id, places);
            }
        }
        search
    }

    /// A move of one service makes room, or takes it, for another one: they are gone through until nothing changes.
    pub(super) fn run(&mut self) {
        loop {
            let steps = self.steps_left;
            for (service, spec) in self.services.clone() {
                self.one_service(service, &spec);
            }
            if self.steps_left == steps || self.is_cut {
                return;
            }
        }
    }

    pub(super) fn into_found(self) -> (NodeTable, Vec<ReplicaMove>, bool) {
        let moves = self
            .moves
            .into_iter()
            .map(|(replica, (from, to))| ReplicaMove { replica, from, to });
        (self.table, moves.collect(), self.is_cut)
    }

    /// Moves replicas of the service as long as that is worth something.
    fn one_service(&mut self, service: &Service, spec: &ServiceSpec) {
        while !self.is_cut
            && let Some((key, from, to)) = self.better_move(service, spec)
        {
            let is_new = !self.moves.contains_key(&key);
            if (is_new && self.moves.len() == self.moves_max) || self.steps_left == 0 {
                let demand = service.demand(key.generation, key.slot.role);
                self.table.give_back(to, demand);
                self.table.take(from, demand);
                self.is_cut = true;
                return;
            }
            self.steps_left -= 1;
            let made = self.moves.entry(key).or_insert((from, to));
            made.1 = to;
            if made.0 == made.1 {
                self.moves.remove(&key);
            }
            if let Some(places) = self.places.get_mut(&service.id) {
                places.insert(key, to);
            }
        }
    }

    /// The first replica, of those that lie worst, that lies better elsewhere; the table has it there by then.
    fn better_move(&mut self, service: &Service, spec: &ServiceSpec) -> Option<(ReplicaKey, NodeId, NodeId)> {
        let mut sources: Vec<(Standing, ReplicaKey, NodeId)> = self.sources(service, spec)?;
        sources.sort_by(|(a, a_key, _), (b, b_key, _)| b.cmp(a).then(a_key.cmp(b_key)));
        for (now, key, from) in sources.into_iter().take(SOURCES_MAX) {
            if let Some(to) = self.better_place(service, spec, key, (from, &now)) {
                return Some((key, from, to));
            }
        }
        None
    }

    /// One replica of each role on each node, with how it lies.
    fn sources(&self, service: &Service, spec: &ServiceSpec) -> Option<Vec<(Standing, ReplicaKey, NodeId)>> {
        let places = self.places.get(&service.id)?;
        let counts = counts(places.values());
        let around = self.around(service, spec, &counts);
        let admission = Admission::of(self.state, &around, spec);
        let mut first: BTreeMap<(u16, NodeId), ReplicaKey> = BTreeMap::new();
        for (key, node) in places {
            first.entry((key.slot.role.0, *node)).or_insert(*key);
        }
        let mut sources = Vec::with_capacity(first.len());
        for (role_id, role) in service.roles.iter().enumerate() {
            let ask = ask(service, spec, role, (&counts, &around));
            let of_role: Vec<(NodeId, ReplicaKey)> = first
                .iter()
                .filter(|((found, _), _)| usize::from(*found) == role_id)
                .map(|((_, node), key)| (*node, *key))
                .collect();
            let nodes: Vec<NodeId> = of_role.iter().map(|(node, _)| *node).collect();
            for ((node, key), look) in of_role.into_iter().zip(self.table.look_at_present(&ask, &nodes)) {
                let known = self.state.node(node)?;
                let breaks = !look.suits || !admission.keeps(known);
                sources.push((Standing::new(look, breaks), key, node));
            }
        }
        Some(sources)
    }

    /// Where it lies better, if anywhere.
    fn better_place(
        &mut self,
        service: &Service,
        spec: &ServiceSpec,
        key: ReplicaKey,
        (from, now): (NodeId, &Standing),
    ) -> Option<NodeId> {
        let role = service.role(key.slot.role)?;
        let demand = service.demand(key.generation, key.slot.role);
        let places = self.places.get(&service.id)?;
        let others = places.iter().filter(|(other, _)| **other != key);
        let without = counts(others.map(|(_, node)| node));
        let around = self.around(service, spec, &without);
        self.table.give_back(from, demand);
        let avoid = [from];
        let ask = Ask {
            demand,
            avoid: &avoid,
            ..ask(service, spec, role, (&without, &around))
        };
        let Some(to) = self.table.place(&ask, 1).first().copied() else {
            self.table.take(from, demand);
            return None;
        };
        let then = self
            .table
            .look_at(&ask, to)
            .map(|look| Standing::new(look, false));
        if then.is_some_and(|then| then.is_worth_a_move(now)) {
            return Some(to);
        }
        self.table.give_back(to, demand);
        self.table.take(from, demand);
        None
    }

    /// Who is where, once what is proposed so far has been done.
    fn around(&self, service: &Service, spec: &ServiceSpec, counts: &[(NodeId, u32)]) -> Around {
        let around = Around::of(self.state, service, spec);
        around.proposed_as(counts, &|company| {
            let deployment = self.state.deployment(&service.key.deployment);
            let other = deployment.and_then(|known| known.services.get(&company.service));
            let places = other.and_then(|id| self.places.get(id))?;
            Some(places.values().copied().collect())
        })
    }
}

fn ask<'a>(
    service: &Service,
    spec: &'a ServiceSpec,
    role: &'a RoleName,
    (present, around): (&'a [(NodeId, u32)], &'a Around),
) -> Ask<'a> {
    Ask {
        service: service.id,
        spec,
        role,
        demand: crate::amount::Amount::ZERO,
        present,
        bound_to: None,
        avoid: &[],
        rules: around.rules(spec),
    }
}

fn counts<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> Vec<(NodeId, u32)> {
    let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for node in nodes {
        *counts.entry(*node).or_default() += 1;
    }
    counts.into_iter().collect()
}
