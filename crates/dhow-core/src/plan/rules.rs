//! What the planner tells the placement engine of rules about several nodes, this plan's own placements included.

use super::Planner;
use super::placing::ask;
use super::view::View;
use crate::around::{Admission, Around};
use crate::ids::NodeId;
use crate::placement::{Ask, Company};
use crate::spec::RType;

impl Planner<'_> {
    /// What the rules of a service go by; empty, and cheap, for one without.
    pub(super) fn around(&self, view: &View<'_>) -> Around {
        let service = view.service;
        let around = Around::of(self.state, service, view.spec());
        if self.placed.is_empty() {
            return around;
        }
        let own = self.placed.get(&service.id).map_or(&[][..], Vec::as_slice);
        let others = |company: &Company| {
            let deployment = self.state.deployment(&service.key.deployment);
            let other = deployment.and_then(|known| known.services.get(&company.service));
            other
                .and_then(|id| self.placed.get(id))
                .cloned()
                .unwrap_or_default()
        };
        around.with_placed(own, &others)
    }

    /// Remembers for the rest of this plan where replicas go that rules are about.
    pub(super) fn note_placed(&mut self, view: &View<'_>, nodes: &[NodeId]) {
        let service = view.service;
        let is_ruled = view.spec().has_limits_of_places()
            || view.spec().affinity.has_neighbours()
            || !service.shunned_by.is_empty();
        if is_ruled && !nodes.is_empty() {
            self.placed.entry(service.id).or_default().extend(nodes);
        }
    }

    /// The rules of an ask once all that is ending has ended; none where it has no rules.
    pub(super) fn admission_to_come<'v>(&self, view: &'v View<'_>, ask: &Ask<'_>) -> Option<Admission<'v>> {
        let is_ruled =
            ask.rules.max_per_node.is_some() || ask.rules.max_per.is_some() || !ask.rules.company.is_empty();
        is_ruled.then(|| {
            let around = self.around(view).without_ending(self.state, view.service.id);
            Admission::of(self.state, &around, view.spec())
        })
    }

    /// Where every node has as many as it may have, a rollout gives one up before the next one begins, as far as some
    /// may be missing.
    pub(super) fn note_surge(&self, view: &mut View<'_>) {
        let spec = view.spec();
        let may = spec.rtype == RType::Service && spec.max_unavailable() > 0 && spec.max_surge() > 0;
        if !may || !spec.has_limits_of_places() {
            return;
        }
        let turn = view
            .slots
            .iter()
            .find(|(_, slot)| slot.fresh.is_empty() && !slot.old.is_empty());
        let Some(slot) = turn.map(|(slot, _)| *slot) else {
            return;
        };
        let Some(role) = view.service.role(slot.role) else {
            return;
        };
        let around = self.around(view);
        let ask = ask(view, slot.role, role, (&view.present, &around), None);
        let no_surge = self.cache.table.why_not(&ask).is_hindered();
        view.no_surge = no_surge;
    }
}
