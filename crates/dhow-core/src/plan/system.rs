//! Services that run once on every node that fits.

use std::collections::{BTreeMap, BTreeSet};

use super::Planner;
use super::report::ServiceReport;
use super::view::{Seen, SlotView, View};
use crate::command::{Placement, StopReason};
use crate::ids::{NodeId, RoleId, RoleName, Slot};
use crate::placement::{Ask, NodeTable, Rules};
use crate::state::{Node, Service, State};

/// How many nodes a system service should be on now.
pub(crate) fn system_nodes(state: &State, service: &Service) -> u32 {
    let Some(spec) = service.spec() else { return 0 };
    if service.is_off() {
        return 0;
    }
    let mut table = NodeTable::new();
    for node in state.nodes.values() {
        table.upsert(super::node_row(node));
    }
    let present: Vec<(NodeId, u32)> = present(state, service);
    let role = RoleName::fallback();
    let demand = service.demand(service.target, RoleId(0));
    let ask = Ask {
        service: service.id,
        spec,
        role: &role,
        demand,
        present: &present,
        bound_to: None,
        avoid: &[],
        rules: Rules::default(),
    };
    u32::try_from(table.fitting(&ask).len()).unwrap_or(u32::MAX)
}

fn present(state: &State, service: &Service) -> Vec<(NodeId, u32)> {
    let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for (_, replica) in state
        .replicas_of(service.id)
        .filter(|(_, replica)| replica.reserves())
    {
        *counts.entry(replica.node).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Those on a node whose drain waits no longer; here they go last all the same.
fn overdue<'s, 'a>(slot: &'s SlotView<'a>) -> impl Iterator<Item = &'s Seen<'a>> {
    slot.stopping
        .iter()
        .filter(|seen| slot.overdue.contains(&seen.key))
}

impl Planner<'_> {
    pub(super) fn system_service(&mut self, service: &Service) {
        let state = self.state;
        let Some(view) = View::of(state, service, self.now) else {
            return;
        };
        let present = present(state, service);
        let role = RoleName::fallback();
        let demand = service.demand(service.target, RoleId(0));
        let ask = Ask {
            service: service.id,
            spec: view.spec(),
            role: &role,
            demand,
            present: &present,
            bound_to: None,
            avoid: &[],
            rules: Rules::default(),
        };
        let fitting: BTreeSet<NodeId> = self.cache.table.fitting(&ask).into_iter().collect();
        let seen: Vec<Seen<'_>> = view
            .slots
            .iter()
            .flat_map(|(_, slot)| slot.fresh.iter().chain(&slot.old).chain(overdue(slot)))
            .copied()
            .collect();
        let (draining, unfit) = self.unfit(&seen, &fitting);
        let outdated = self.outdated(&view, &seen, &fitting);
        let done = draining.is_empty() && unfit.is_empty() && outdated.is_empty();
        self.stop(service, draining, StopReason::Draining);
        self.stop(service, unfit, StopReason::NodeUnfit);
        self.stop(service, outdated, StopReason::Replaced);
        let open: Vec<NodeId> = fitting
            .iter()
            .filter(|id| present.binary_search_by_key(*id, |(node, _)| *node).is_err())
            .copied()
            .collect();
        self.place_on(&view, &open, demand);
        // Every node has one that can be relied on: one whose replica is still ending has none.
        let good = seen.iter().filter(|seen| seen.fresh && seen.available);
        let served: BTreeSet<NodeId> = good.map(|seen| seen.replica.node).collect();
        let mut report = ServiceReport::default();
        let at_rest = self.settings(&view, &mut report);
        let settled = done && at_rest && fitting.is_subset(&served);
        self.cache.report_service(service.id, report);
        if settled {
            self.cache.settled.insert(service.id);
        } else {
            if let Some(at) = view.trusted_from() {
                self.cache.wake_at(service.id, at);
            }
            self.judge_system(&view);
        }
    }

    /// Replicas on nodes that drain, and on others that no longer fit. On a draining node they leave last: what
    /// is still there may need them. One on a node that is not reachable stays: its reports may be heard a moment before
    /// the node itself is back.
    fn unfit(
        &self,
        seen: &[Seen<'_>],
        fitting: &BTreeSet<NodeId>,
    ) -> (Vec<crate::ids::ReplicaKey>, Vec<crate::ids::ReplicaKey>) {
        let (mut draining, mut unfit) = (Vec::new(), Vec::new());
        let is_away = |node: NodeId| self.state.node(node).is_some_and(|node| !node.is_ready());
        let leaving = seen.iter().filter(|seen| {
            let node = seen.replica.node;
            !fitting.contains(&node) && !seen.is_lost() && !is_away(node)
        });
        for seen in leaving {
            match self
                .state
                .node(seen.replica.node)
                .filter(|node| node.is_draining())
            {
                None => unfit.push(seen.key),
                Some(node) if node.drain_rules.ignore_system => {}
                Some(node) if self.has_only_system(node) => draining.push(seen.key),
                Some(_) => {}
            }
        }
        (draining, unfit)
    }

    /// Whether nothing runs on the node but what every node has.
    fn has_only_system(&self, node: &Node) -> bool {
        let mut others = node.replica_keys().filter(|key| {
            let runs = self
                .state
                .replicas
                .get(key)
                .is_some_and(|replica| replica.reserves());
            runs && !self.cache.system.contains(&key.service)
        });
        others.next().is_none()
    }

    /// Replicas of an older template, as many as may be down at once (at least one: there is no second place
    /// on a node to start the new one first).
    fn outdated(
        &self,
        view: &View<'_>,
        seen: &[Seen<'_>],
        fitting: &BTreeSet<NodeId>,
    ) -> Vec<crate::ids::ReplicaKey> {
        if view.service.held || view.service.paused_by().is_some() {
            return Vec::new();
        }
        let down_max = view.spec().max_unavailable().max(1) as usize;
        let available = seen
            .iter()
            .filter(|seen| seen.available && fitting.contains(&seen.replica.node));
        let down = fitting.len().saturating_sub(available.count());
        let mut budget = down_max.saturating_sub(down);
        let mut old: Vec<&Seen<'_>> = seen
            .iter()
            .filter(|seen| {
                !view.service.is_current(seen.key.generation) && fitting.contains(&seen.replica.node)
            })
            .collect();
        old.sort_by_key(|seen| (seen.available, seen.key));
        let mut keys = Vec::new();
        for seen in old {
            if seen.available {
                if budget == 0 {
                    break;
                }
                budget -= 1;
            }
            keys.push(seen.key);
        }
        keys
    }

    fn place_on(&mut self, view: &View<'_>, nodes: &[NodeId], demand: crate::amount::Amount) {
        let service = view.service;
        let taken: BTreeSet<u32> = view.slots.iter().map(|(slot, _)| slot.index).collect();
        let mut free = (0..u32::MAX).filter(|index| !taken.contains(index));
        let mut placements = Vec::new();
        for id in nodes {
            if self.placements_left == 0 {
                break;
            }
            let role = RoleName::fallback();
            let ask = Ask {
                service: service.id,
                spec: view.spec(),
                role: &role,
                demand,
                present: &[],
                bound_to: Some(*id),
                avoid: &[],
                rules: Rules::default(),
            };
            if self.cache.table.place(&ask, 1).is_empty() {
                continue;
            }
            self.cache.reserved = true;
            self.placements_left -= 1;
            let (Some(index), Some(node)) = (free.next(), self.state.node(*id)) else {
                continue;
            };
            let slot = Slot {
                role: RoleId(0),
                index,
            };
            placements.push(Placement {
                slot,
                node: *id,
                eligibility: node.eligibility,
            });
        }
        self.push_placements(service, service.target, &placements);
    }

    fn judge_system(&mut self, view: &View<'_>) {
        // The slots of a system service are those that have a replica, so the view judges just these.
        self.judge(view, true, &ServiceReport::default());
    }
}
