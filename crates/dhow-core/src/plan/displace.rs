//! More important services may have the room of less important ones.

use std::collections::BTreeSet;

use super::Planner;
use super::nodes::node_row;
use super::view::View;
use crate::command::{PlanCommand, StopReason};
use crate::ids::{NodeId, ReplicaKey};
use crate::placement::{Ask, Candidate, NodeTable, Rules};
use crate::state::Wanted;

/// Replicas that one plan makes room for, by ending others. The next plan goes on.
const DISPLACEMENTS_PER_PLAN_MAX: usize = 64;

impl Planner<'_> {
    /// Counts nodes where room is about to come free, and ends less important replicas where that is not
    /// enough. None where there is nothing to wait for.
    pub(super) fn make_room(&mut self, view: &View<'_>, ask: &Ask<'_>, missing: usize) -> Option<u32> {
        let mut used: BTreeSet<NodeId> = self.room_to_come(view, ask);
        // Nobody is displaced for room that this very plan frees: the next one sees how much it is.
        let frees = self
            .commands
            .iter()
            .any(|command| matches!(command, PlanCommand::Stop { .. }));
        if frees && used.len() < missing {
            self.cache.held_back.insert(view.service.id);
        }
        while !frees && used.len() < missing.min(DISPLACEMENTS_PER_PLAN_MAX) {
            let Some((node, victims)) = self.victims(ask, view.spec().priority, &used) else {
                break;
            };
            used.insert(node);
            self.push_victims(view, &victims);
        }
        (!used.is_empty()).then(|| u32::try_from(used.len()).unwrap_or(u32::MAX))
    }

    /// Nodes that will take the replica once what is ending there has ended.
    fn room_to_come(&self, view: &View<'_>, ask: &Ask<'_>) -> BTreeSet<NodeId> {
        let admission = self.admission_to_come(view, ask);
        let ask = &Ask {
            rules: Rules::default(),
            ..*ask
        };
        let fits = |id: &&NodeId| {
            let Some(node) = self.state.node(**id) else {
                return false;
            };
            if !admission.as_ref().is_none_or(|admission| admission.admits(node)) {
                return false;
            }
            let mut row = node_row(node);
            for key in &node.stopping {
                let Some(replica) = self.state.replicas.get(key).filter(|replica| replica.reserves()) else {
                    continue;
                };
                debug_assert_eq!(replica.wanted, Wanted::Stop);
                row.used = row.used.minus(self.demand(key));
                row.replicas = row.replicas.saturating_sub(1);
            }
            if row.replicas == 0 {
                row.occupant = crate::placement::Occupant::Nobody;
            }
            let mut alone = NodeTable::new();
            alone.upsert(row);
            !alone.place(ask, 1).is_empty()
        };
        self.cache.stopping.iter().filter(fits).copied().collect()
    }

    fn victims(
        &self,
        ask: &Ask<'_>,
        priority: u8,
        used: &BTreeSet<NodeId>,
    ) -> Option<(NodeId, Vec<ReplicaKey>)> {
        let running = |id: NodeId| match used.contains(&id) {
            true => Vec::new(),
            false => self.candidates(id),
        };
        let found = self.cache.table.displace(ask, priority, &running)?;
        Some((found.node, found.victims))
    }

    /// What runs on a node, with its importance.
    fn candidates(&self, id: NodeId) -> Vec<Candidate> {
        let Some(node) = self.state.node(id) else {
            return Vec::new();
        };
        node.assignments
            .services()
            .filter_map(|(id, assigned)| Some((self.state.service(id)?, assigned)))
            .flat_map(|(service, assigned)| {
                let priority = service.spec().map_or(u8::MAX, |spec| spec.priority);
                assigned.replicas.iter().map(move |replica| Candidate {
                    key: ReplicaKey {
                        service: service.id,
                        slot: replica.slot,
                        generation: replica.generation,
                    },
                    priority,
                    demand: service.demand(replica.generation, replica.slot.role),
                })
            })
            .filter(|candidate| {
                self.state
                    .replicas
                    .get(&candidate.key)
                    .is_some_and(|replica| replica.reserves())
            })
            .collect()
    }

    fn push_victims(&mut self, view: &View<'_>, victims: &[ReplicaKey]) {
        for key in victims {
            let Some(service) = self.state.service(key.service) else {
                continue;
            };
            let command = PlanCommand::Stop {
                service: key.service,
                generation: service.target,
                replicas: vec![*key],
                why: StopReason::Displaced { by: view.service.id },
            };
            self.push(command);
        }
    }

    fn demand(&self, key: &ReplicaKey) -> crate::amount::Amount {
        let service = self.state.service(key.service);
        service.map_or(crate::amount::Amount::ZERO, |service| {
            service.demand(key.generation, key.slot.role)
        })
    }
}
