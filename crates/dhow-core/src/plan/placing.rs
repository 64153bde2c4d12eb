//! Finds nodes for the slots that need one.

use super::report::{ServiceReport, Why};
use super::together::Home;
use super::view::View;
use super::{PLACEMENTS_PER_COMMAND_MAX, Planner};
use crate::around::Around;
use crate::command::{Placement, PlanCommand};
use crate::ids::{Generation, NodeId, RoleId, RoleName, Slot};
use crate::placement::{Ask, Unplaced};
use crate::spec::RType;
use crate::state::Service;
use crate::step::VOLUMES_LEVEL;

impl Planner<'_> {
    /// Places the slots, role by role; those that find no node are reported. Whether all were placed.
    pub(super) fn place_missing(
        &mut self,
        view: &View<'_>,
        missing: &[Slot],
        report: &mut ServiceReport,
    ) -> bool {
        let mut present = view.present.clone();
        if missing.is_empty() {
            return true;
        }
        let mistaking = self.mistaking(view.service);
        let mut disliked = self.disliked(view);
        let is_any_disliked = !disliked.is_empty();
        disliked.extend(&mistaking);
        let mut placements = Vec::new();
        let mut all_placed = true;
        let mut rest = missing;
        while let Some(first) = rest.first() {
            let bound = self.bound_node(view.service, *first);
            let home = match bound.or_else(|| self.target(view, *first)) {
                Some(node) => Home::On(node),
                None => self.home(view),
            };
            let is_free =
                |slot: Slot| view.service.volume_node(slot).is_none() && view.moves_to(slot).is_none();
            let same = |slot: &&Slot| slot.role == first.role && is_free(**slot);
            let length = match home {
                Home::On(_) | Home::Unsettled(_) | Home::Nowhere(_) => 1,
                Home::Anywhere => rest.iter().take_while(same).count().max(1),
            };
            let (bound, unfit) = match home {
                Home::Anywhere => (None, Vec::new()),
                Home::On(node) => (Some(node), Vec::new()),
                Home::Unsettled(unfit) => (None, unfit),
                Home::Nowhere(why) => {
                    self.cache.blocked.insert(view.service.id);
                    self.report_all(view, rest, &why, report);
                    all_placed = false;
                    break;
                }
            };
            let settles = length == 1 && bound.is_none() && self.settles(view);
            let avoid: Vec<NodeId> = mistaking.iter().chain(&unfit).copied().collect();
            let disliked: Vec<NodeId> = disliked.iter().chain(&unfit).copied().collect();
            let (batch, after) = rest.split_at(length);
            rest = after;
            let mut placed = 0;
            // Nodes where its replicas kept failing come after all others, and only then.
            if bound.is_none() && is_any_disliked {
                placed = self.place_batch(view, batch, (None, &disliked), &mut present, &mut placements);
            }
            let left = &batch[placed..];
            placed += self.place_batch(view, left, (bound, &avoid), &mut present, &mut placements);
            if let (true, Some(chosen)) = (settles && placed > 0, placements.last()) {
                self.settle_home(view.service, chosen.node);
            }
            let left = &batch[placed..];
            if !left.is_empty() && self.placements_left > 0 {
                all_placed = false;
                self.report_unplaced(view, left, bound, &present, report);
            }
        }
        self.push_placements(view.service, view.target, &placements);
        all_placed
    }

    /// The node that is to have the slot by a rebalance, as long as it takes any.
    fn target(&self, view: &View<'_>, slot: Slot) -> Option<NodeId> {
        let target = view.moves_to(slot)?;
        self.state
            .node(target)
            .filter(|node| node.is_open())
            .map(|node| node.id)
    }

    /// Places as many of a batch of alike slots as find a node, and says how many.
    fn place_batch(
        &mut self,
        view: &View<'_>,
        batch: &[Slot],
        (bound_to, avoid): (Option<NodeId>, &[NodeId]),
        present: &mut Vec<(NodeId, u32)>,
        placements: &mut Vec<Placement>,
    ) -> usize {
        let Some(role) = batch.first().and_then(|slot| view.service.role(slot.role)) else {
            return 0;
        };
        let wanted = u32::try_from(batch.len())
            .unwrap_or(u32::MAX)
            .min(self.placements_left);
        let role_id = batch.first().map_or(RoleId(0), |slot| slot.role);
        let around = self.around(view);
        let ask = Ask {
            avoid,
            ..ask(view, role_id, role, (present, &around), bound_to)
        };
        let chosen = self.cache.table.place(&ask, wanted);
        self.note_placed(view, &chosen);
        self.cache.reserved |= !chosen.is_empty();
        self.placements_left -= u32::try_from(chosen.len()).unwrap_or(self.placements_left);
        for (slot, node) in batch.iter().zip(&chosen) {
            let Some(found) = self.state.node(*node) else {
                continue;
            };
            placements.push(Placement {
                slot: *slot,
                node: *node,
                eligibility: found.eligibility,
            });
            self.note_plain(view.service, *node);
        }
        let placed = chosen.len();
        add_present(present, chosen);
        placed
    }

    /// Whether a node would take a replica of the slot, which this plan then counts on; else it is reported why not.
    pub(super) fn has_place(&mut self, view: &View<'_>, slot: Slot, report: &mut ServiceReport) -> bool {
        let Some(role) = view.service.role(slot.role) else {
            return false;
        };
        let bound = self.bound_node(view.service, slot);
        let mistaking = self.mistaking(view.service);
        let around = self.around(view);
        let ask = Ask {
            avoid: &mistaking,
            ..ask(view, slot.role, role, (&view.present, &around), bound)
        };
        let chosen = self.cache.table.place(&ask, 1);
        self.note_placed(view, &chosen);
        let found = !chosen.is_empty();
        self.cache.reserved |= found;
        if !found {
            self.report_unplaced(view, &[slot], bound, &view.present, report);
        }
        found
    }

    /// Whether the first replica to be placed chooses the node for those that follow.
    fn settles(&self, view: &View<'_>) -> bool {
        let binds = !view.spec().binding_volumes().is_empty();
        let is_cron = view.spec().rtype == RType::Cron;
        let knows = self.state.feature_level >= VOLUMES_LEVEL;
        knows && binds && (is_cron || !self.state.volume_mates(view.service).is_empty())
    }

    fn report_all(&self, view: &View<'_>, slots: &[Slot], why: &Why, report: &mut ServiceReport) {
        for slot in slots {
            if let Some(role) = view.service.role(slot.role) {
                report.add(role, *slot, why.clone());
            }
        }
    }

    fn report_unplaced(
        &mut self,
        view: &View<'_>,
        left: &[Slot],
        bound: Option<NodeId>,
        present: &[(NodeId, u32)],
        report: &mut ServiceReport,
    ) {
        let Some(first) = left.first() else { return };
        let Some(role) = view.service.role(first.role) else {
            return;
        };
        self.cache.blocked.insert(view.service.id);
        let mistaking = self.mistaking(view.service);
        let around = self.around(view);
        let ask = Ask {
            avoid: &mistaking,
            ..ask(view, first.role, role, (present, &around), bound)
        };
        let why = match self.make_room(view, &ask, left.len()) {
            Some(nodes) => Why::RoomToCome { nodes },
            None => {
                let unplaced: Unplaced = self.cache.table.why_not(&ask);
                Why::Unplaced { unplaced }
            }
        };
        for slot in left {
            report.add(role, *slot, why.clone());
        }
    }

    pub(super) fn push_placements(
        &mut self,
        service: &Service,
        generation: Generation,
        placements: &[Placement],
    ) {
        if service.spent && !placements.is_empty() {
            // The next plan places them, under keys that no node has seen.
            self.push(PlanCommand::OpenGeneration {
                service: service.id,
                generation: service.target,
            });
            return;
        }
        for part in placements.chunks(PLACEMENTS_PER_COMMAND_MAX) {
            self.push(PlanCommand::Place {
                service: service.id,
                generation,
                placements: part.to_vec(),
            });
        }
    }
}

pub(super) fn ask<'a>(
    view: &'a View<'_>,
    role_id: RoleId,
    role: &'a RoleName,
    (present, around): (&'a [(NodeId, u32)], &'a Around),
    bound_to: Option<NodeId>,
) -> Ask<'a> {
    Ask {
        service: view.service.id,
        spec: view.spec(),
        role,
        demand: view.service.demand(view.target, role_id),
        present,
        bound_to,
        avoid: &[],
        rules: around.rules(view.spec()),
    }
}

/// Counts the chosen nodes among those present, which stay in order.
fn add_present(present: &mut Vec<(NodeId, u32)>, mut chosen: Vec<NodeId>) {
    if chosen.is_empty() {
        return;
    }
    chosen.sort_unstable();
    let mut merged: Vec<(NodeId, u32)> = Vec::with_capacity(present.len() + chosen.len());
    let (mut known, mut new) = (present.iter().copied().peekable(), chosen.into_iter().peekable());
    loop {
        let next = match (known.peek(), new.peek()) {
            (Some((a, count)), Some(b)) if *a <= *b => {
                let pair = (*a, *count);
                known.next();
                pair
            }
            (_, Some(b)) => {
                let pair = (*b, 1);
                new.next();
                pair
            }
            (Some(pair), None) => {
                let pair = *pair;
                known.next();
                pair
            }
            (None, None) => break,
        };
        match merged.last_mut() {
            Some((node, count)) if *node == next.0 => *count = count.saturating_add(next.1),
            Some(_) | None => merged.push(next),
        }
    }
    *present = merged;
}
