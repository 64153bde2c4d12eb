//! A replica that keeps failing is tried on another node before its version is blamed: the node may be at fault.

use std::collections::BTreeSet;

use super::Planner;
use super::placing::ask;
use super::view::{Seen, View};
use crate::command::StopReason;
use crate::ids::{NodeId, ReplicaKey};
use crate::replica::ReplicaState;
use crate::spec::{RType, RestartPolicy};
use crate::time::ClusterTime;

/// Failures in a row on one node after which another one is tried: as many as take a version back.
const FAILURES_TO_MOVE: u32 = 3;
/// Nodes that one slot leaves while others of its version are healthy elsewhere. Beyond that it is the slot.
const MOVES_MAX: usize = 3;

impl Planner<'_> {
    /// Ends replicas that keep failing where they are, so that they are placed elsewhere.
    pub(super) fn move_failing(&mut self, view: &View<'_>) {
        if !self.may_move(view) {
            return;
        }
        let wanted = view.slots.iter().filter(|(slot, _)| view.wants(*slot));
        let failing: Vec<Seen<'_>> = wanted
            .flat_map(|(_, slot)| &slot.fresh)
            .filter(|seen| self.keeps_failing(view, seen))
            .copied()
            .collect();
        let mut moved = Vec::new();
        for seen in failing {
            if self.is_nodes_fault(view, &seen) && self.has_other_place(view, &seen) {
                self.moving.insert(seen.key);
                moved.push(seen.key);
            }
        }
        self.stop(view.service, moved, StopReason::FailsThere);
    }

    /// What is bound to a node, by its storage or by what it is, never moves.
    fn may_move(&self, view: &View<'_>) -> bool {
        let spec = view.spec();
        let free = match spec.rtype {
            RType::Service | RType::Job | RType::Cron => !spec.has_named_storage(),
            RType::System => false,
        };
        self.state.feature_level >= 2 && free && !view.service.held
    }

    fn keeps_failing(&self, view: &View<'_>, seen: &Seen<'_>) -> bool {
        let replica = seen.replica;
        if seen.available || seen.is_lost() {
            return false;
        }
        match replica.machine.state {
            ReplicaState::Backoff => replica.node_failures >= FAILURES_TO_MOVE || self.is_late(view, seen),
            // It is not started again here; elsewhere it begins anew, unless it is to run once.
            ReplicaState::Failed => {
                let again = view.spec().restart.policy != RestartPolicy::Never;
                replica.node_failures > 0 && again && view.spec().rtype == RType::Service
            }
            ReplicaState::Pending | ReplicaState::Starting | ReplicaState::Running => {
                self.is_late(view, seen)
            }
            ReplicaState::Pulling | ReplicaState::Stopping | ReplicaState::Exited | ReplicaState::Lost => {
                false
            }
        }
    }

    /// Not healthy by its deadline, which only a deployment under way is judged by.
    fn is_late(&self, view: &View<'_>, seen: &Seen<'_>) -> bool {
        let deadline = seen.replica.placed.after(view.spec().rollout.healthy_deadline);
        let never_healthy = seen.replica.healthy_since.is_none();
        never_healthy && self.now >= deadline && self.judged(view.service).is_some()
    }

    /// Whether what is known speaks against the node rather than against the version: the same version is healthy
    /// elsewhere, or it has been tried on this one node alone.
    fn is_nodes_fault(&mut self, view: &View<'_>, seen: &Seen<'_>) -> bool {
        let template = view.info.template;
        let recent: Vec<_> = view
            .service
            .recently_failed_on(self.now)
            .filter(|failed| failed.template == template)
            .copied()
            .collect();
        if let Some(at) = recent.iter().map(|failed| failed.forgotten()).min() {
            self.cache.wake_at(view.service.id, at);
        }
        let moves = recent
            .iter()
            .filter(|failed| failed.slot == seen.key.slot)
            .count();
        if self.is_healthy_elsewhere(view, seen) {
            return moves < MOVES_MAX;
        }
        let others = view.slots.iter().flat_map(|(_, slot)| &slot.fresh);
        let fails_elsewhere = others
            .filter(|other| !other.available && other.replica.node_failures > 0)
            .map(|other| other.replica.node)
            .chain(recent.iter().map(|failed| failed.node))
            .any(|node| node != seen.replica.node);
        let late_only = seen.replica.node_failures < FAILURES_TO_MOVE && !seen.has_ended();
        moves == 0 && !fails_elsewhere && !late_only
    }

    fn is_healthy_elsewhere(&mut self, view: &View<'_>, seen: &Seen<'_>) -> bool {
        let proof = view.spec().rollout.min_healthy;
        let mut proved_at: Option<ClusterTime> = None;
        for (key, replica) in self.state.replicas_of(view.service.id) {
            let same = view.service.is_current(key.generation) && replica.is_healthy();
            let since = replica
                .healthy_since
                .filter(|_| same && replica.node != seen.replica.node);
            match since.map(|since| since.after(proof)) {
                Some(at) if at <= self.now => return true,
                Some(at) => proved_at = Some(proved_at.map_or(at, |set| set.min(at))),
                None => {}
            }
        }
        if let Some(at) = proved_at {
            self.cache.wake_at(view.service.id, at);
        }
        false
    }

    /// Whether a node takes it where its service has not failed; this plan then counts on that place.
    fn has_other_place(&mut self, view: &View<'_>, seen: &Seen<'_>) -> bool {
        let slot = seen.key.slot;
        let Some(role) = view.service.role(slot.role) else {
            return false;
        };
        let mut avoid = self.disliked(view);
        avoid.push(seen.replica.node);
        avoid.extend(self.mistaking(view.service));
        let around = self.around(view);
        let mut ask = ask(view, slot.role, role, (&view.present, &around), None);
        ask.avoid = &avoid;
        let chosen = self.cache.table.place(&ask, 1);
        self.note_placed(view, &chosen);
        let found = !chosen.is_empty();
        match found {
            true => self.cache.reserved = true,
            // A node that comes or has room changes that.
            false => drop(self.cache.blocked.insert(view.service.id)),
        }
        found
    }

    /// Nodes where replicas of the service kept failing: others come first.
    pub(super) fn disliked(&self, view: &View<'_>) -> Vec<NodeId> {
        let nodes: BTreeSet<NodeId> = view
            .service
            .recently_failed_on(self.now)
            .map(|failed| failed.node)
            .collect();
        nodes.into_iter().collect()
    }

    /// Where the slot failed before, as part of a sentence.
    pub(super) fn failed_before(&self, view: &View<'_>, seen: &Seen<'_>) -> String {
        let ReplicaKey { slot, .. } = seen.key;
        let nodes: BTreeSet<NodeId> = view
            .service
            .recently_failed_on(self.now)
            .filter(|failed| failed.slot == slot && failed.template == view.info.template)
            .map(|failed| failed.node)
            .filter(|node| *node != seen.replica.node)
            .collect();
        let nodes: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
        match nodes.is_empty() {
            true => String::new(),
            false => format!(", as before on {}", nodes.join(" and ")),
        }
    }
}
