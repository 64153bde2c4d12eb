//! The rules of a rollout, slot by slot. Pure: from a view of a service to what should be done about it.
//!
//! A slot is served by a fresh replica (of the target, on a node that stays) or by an old one. Never fewer
//! slots are available than the spec promises, never more are doubled than it allows.

use super::jobs;
use super::report::Why;
use super::view::{Line, Seen, SlotView, View};
use crate::command::StopReason;
use crate::ids::{ReplicaKey, Slot};
use crate::rollout::{Gate, Wave, paused, wave};
use crate::state::State;
use crate::time::ClusterTime;

/// What should be done about a service.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Of slots that are not wanted any more.
    pub surplus: Vec<ReplicaKey>,
    /// Superseded by a fresh replica, or given up to make room for one.
    pub replaced: Vec<ReplicaKey>,
    pub draining: Vec<ReplicaKey>,
    /// On a node that drains, to be ended before another one has their place: only where there is one.
    pub leaving: Vec<Leaving>,
    /// On a lost node, with another one in their place.
    pub lost: Vec<ReplicaKey>,
    /// Slots that need a replica of the target now.
    pub missing: Vec<Slot>,
    /// A new generation is needed before a replica can move.
    pub reopen: bool,
    /// When to look again.
    pub wake: Option<ClusterTime>,
    pub waiting: Vec<(Slot, Why)>,
    /// Whether every slot is as it should be.
    pub settled: bool,
}

/// Replicas of one slot that end before the next one begins.
#[derive(Debug)]
pub(super) struct Leaving {
    pub slot: Slot,
    pub replicas: Vec<ReplicaKey>,
    pub why: StopReason,
}

impl Decisions {
    fn wake_at(&mut self, at: ClusterTime) {
        self.wake = Some(self.wake.map_or(at, |set| set.min(at)));
    }

    pub(super) fn wait(&mut self, slot: Slot, why: Why) {
        self.waiting.push((slot, why));
    }
}

/// How far a rollout may go at the moment.
struct Budget {
    /// Slots that may be doubled.
    surge: u32,
    /// Slots that have been through the replacement and are not what they should be: they count against the surge,
    /// so that no more is given up for replicas that do not hold.
    failing: u32,
    /// Available slots that may be given up.
    down: u32,
    /// Slots that nothing serves at the moment.
    empty: u32,
    /// Slots that may still be begun before those so far have proved themselves.
    wave_left: u32,
    wave: Wave,
}

impl Budget {
    fn of(view: &View<'_>) -> Self {
        let wanted: Vec<&SlotView<'_>> = view
            .slots
            .iter()
            .filter(|(slot, _)| view.wants(*slot))
            .map(|(_, view)| view)
            .collect();
        let doubled = wanted
            .iter()
            .filter(|slot| !slot.fresh.is_empty() && !slot.old.is_empty())
            .count();
        let steady = view.steady as usize;
        let available = steady + wanted.iter().filter(|slot| slot.is_available()).count();
        let promised = (wanted.len() + steady).saturating_sub(view.spec().max_unavailable() as usize);
        let failing = wanted.iter().filter(|slot| slot.is_failing()).count();
        let begun = steady + wanted.iter().filter(|slot| !slot.fresh.is_empty()).count();
        let done = steady + wanted.iter().filter(|slot| slot.is_done()).count();
        let empty = wanted
            .iter()
            .filter(|slot| slot.fresh.is_empty() && slot.old.is_empty())
            .count();
        // Those that may fail are passed over: they cost the rollout none of its room.
        let failed = wanted.iter().filter(|slot| has_failed(view, slot));
        let spared: Vec<_> = failed.take(tolerated(view) as usize).collect();
        let spared_alone = spared.iter().filter(|slot| slot.old.is_empty()).count();
        let clamp = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let wave = wave(clamp(wanted.len() + steady), clamp(done + spared.len()));
        Self {
            surge: max_surge(view).saturating_sub(clamp(doubled - (spared.len() - spared_alone))),
            failing: clamp(failing - spared_alone),
            wave_left: wave.end.saturating_sub(clamp(begun)),
            wave,
            down: clamp(available.saturating_sub(promised)),
            empty: clamp(empty),
        }
    }
}

/// How many slots may be doubled.
fn max_surge(view: &View<'_>) -> u32 {
    match view.no_surge {
        true => 0,
        false => view.spec().max_surge(),
    }
}

/// Whether all that is to serve the slot from now on has failed.
fn has_failed(view: &View<'_>, slot: &SlotView<'_>) -> bool {
    !slot.fresh.is_empty() && slot.fresh.iter().all(|seen| view.has_failed(seen))
}

/// How many slots may fail without the revision being given up.
pub(super) fn tolerated(view: &View<'_>) -> u32 {
    let rolls = view.service.rolling && view.line == Line::All;
    match rolls {
        true => view.spec().rollout.failure_ratio.of(view.service.count_total()),
        false => 0,
    }
}

impl Budget {
    /// Why nothing more is begun, whatever there is room for.
    fn closed(&self, view: &View<'_>) -> Option<Why> {
        if view.service.held {
            return Some(Why::Paused);
        }
        let rolls = view.service.rolling && view.line == Line::All;
        if let Some(at) = paused(view.service.rollout.as_ref()).filter(|_| rolls) {
            return Some(Why::AtGate { at });
        }
        if self.wave_left > 0 || !rolls {
            return None;
        }
        let Wave { number, end } = self.wave;
        let at = Gate::Wave.waits(format!(
            "wave {number} ends when {end} replicas of the new version can be relied on"
        ));
        Some(Why::AtGate { at })
    }

    /// A slot is begun.
    fn begin(&mut self) {
        self.wave_left = self.wave_left.saturating_sub(1);
    }
}

pub(super) fn decide(state: &State, view: &View<'_>) -> Decisions {
    let mut decisions = Decisions {
        settled: true,
        wake: view.trusted_from(),
        ..Decisions::default()
    };
    let mut budget = Budget::of(view);
    let mut turns = Vec::new();
    let mut spared = tolerated(view);
    for (slot, seen) in &view.slots {
        let settled = decisions.settled;
        if !seen.overdue.is_empty() {
            decisions.settled = false;
            decisions.draining.extend(&seen.overdue);
        }
        if !view.wants(*slot) {
            let left = seen.fresh.iter().chain(&seen.old);
            // What a run that is kept has left is for people to look at.
            let left: Vec<_> = left
                .filter(|seen| !(seen.has_ended() && view.service.keeps(*slot)))
                .map(|seen| seen.key)
                .collect();
            decisions.settled &= left.is_empty();
            decisions.surplus.extend(left);
            continue;
        }
        match (seen.fresh.as_slice(), seen.old.as_slice()) {
            ([], []) if view.service.is_done(*slot) => {}
            ([], []) => open_slot(state, view, *slot, seen, &mut decisions),
            ([], [_, ..]) => turns.push((*slot, seen)),
            ([..], _) => served(state, view, *slot, seen, &mut decisions),
        }
        if spared > 0 && has_failed(view, seen) {
            spared -= 1;
            decisions.settled = settled;
        }
    }
    // Those that serve nobody first: replacing them costs nothing.
    turns.sort_by_key(|(slot, seen)| (seen.is_available(), *slot));
    for (slot, seen) in turns {
        decisions.settled = false;
        replace(state, view, slot, seen, &mut budget, &mut decisions);
    }
    jobs::hold_back(view, &mut decisions);
    wake_for_drains(state, view, &mut decisions);
    decisions
}

/// Looks again when a drain has waited long enough.
fn wake_for_drains(state: &State, view: &View<'_>, decisions: &mut Decisions) {
    for old in view.slots.iter().flat_map(|(_, slot)| &slot.old) {
        let node = state.node(old.replica.node).filter(|node| node.is_draining());
        if let Some(at) = node.and_then(|node| node.drain_rules.ends_at) {
            decisions.wake_at(at);
        }
    }
}

/// Nothing serves the slot.
fn open_slot(state: &State, view: &View<'_>, slot: Slot, seen: &SlotView<'_>, decisions: &mut Decisions) {
    decisions.settled = false;
    let one_at_a_time = view.spec().max_surge() == 0;
    let in_the_way = seen.stopping.iter().find(|stopping| {
        one_at_a_time || stopping.key.generation == view.target || is_on_plain(state, stopping)
    });
    match in_the_way {
        Some(stopping) => decisions.wait(
            slot,
            Why::OldStopping {
                node: stopping.replica.node,
            },
        ),
        None => decisions.missing.push(slot),
    }
}

/// A fresh replica has the slot: see that it lives, and send the others away once it can be relied on.
fn served(state: &State, view: &View<'_>, slot: Slot, seen: &SlotView<'_>, decisions: &mut Decisions) {
    let best = best_of(&seen.fresh);
    for spare in seen.fresh.iter().filter(|other| other.key != best.key) {
        match spare.is_lost() {
            true => decisions.lost.push(spare.key),
            false => decisions.replaced.push(spare.key),
        }
    }
    if seen.fresh.len() > 1 {
        decisions.settled = false;
    }
    if best.is_lost() {
        decisions.settled = false;
        lost(state, view, slot, best, decisions);
    } else if is_done(view, best) {
        let is_paused = view.service.rolling && paused(view.service.rollout.as_ref()).is_some();
        for old in seen
            .old
            .iter()
            .filter(|old| !is_paused || is_leaving(state, view, old))
        {
            match is_leaving(state, view, old) {
                true => decisions.draining.push(old.key),
                false => decisions.replaced.push(old.key),
            }
        }
        // Going on with the rollout is one thing, calling it good another.
        let job = view.spec().runs_to_completion();
        let proven = best.replica.is_completed() || (!job && best.replica.is_healthy());
        decisions.settled &= seen.old.is_empty() && proven;
    } else {
        decisions.settled = false;
        if seen.old.iter().any(|old| is_leaving(state, view, old)) {
            let node = best.replica.node;
            decisions.wait(slot, Why::ReplacementUnproven { node });
        }
    }
}

/// Whether the replica is all that the slot needs.
fn is_done(view: &View<'_>, seen: &Seen<'_>) -> bool {
    if view.spec().runs_to_completion() {
        return seen.replica.is_completed() || seen.replica.is_healthy();
    }
    // With a restart policy that lets it end, a replica that ended well has done what it should.
    seen.available || seen.replica.is_completed()
}

/// The one to keep: available before not, then the older, which disturbs least.
fn best_of<'s, 'a>(fresh: &'s [Seen<'a>]) -> &'s Seen<'a> {
    let rank = |seen: &&Seen<'_>| {
        (
            !seen.available,
            seen.is_lost() || seen.has_ended(),
            seen.key.generation,
        )
    };
    // The caller has at least one.
    fresh.iter().min_by_key(rank).unwrap_or(&fresh[0])
}

/// The replica's node cannot be reached.
fn lost(state: &State, view: &View<'_>, slot: Slot, seen: &Seen<'_>, decisions: &mut Decisions) {
    let (spec, node) = (view.spec(), seen.replica.node);
    let rule = spec.reschedule;
    if state.volume_home(view.service, slot).is_some() {
        decisions.wait(slot, Why::VolumeLost { node });
        return;
    }
    if !rule.enabled {
        decisions.wait(slot, Why::NotRescheduled { node });
        return;
    }
    let given = rule.lost_after.plus(rule.delay);
    let until = seen.replica.since.after(given);
    if until > view.now {
        decisions.wake_at(until);
        decisions.wait(slot, Why::NodeMayReturn { node, given, until });
        return;
    }
    debug_assert!(
        state.node(node).is_none_or(|node| !node.is_ready()),
        "a lost replica is on a lost node"
    );
    // Its node may still run it: the one in its place has a key of its own, and this one stays until it has.
    match seen.key.generation == view.target {
        true => decisions.reopen = true,
        false => decisions.missing.push(slot),
    }
}

/// Only old replicas have the slot: replace them when the limits allow.
fn replace(
    state: &State,
    view: &View<'_>,
    slot: Slot,
    seen: &SlotView<'_>,
    budget: &mut Budget,
    decisions: &mut Decisions,
) {
    if let Some(why) = budget.closed(view) {
        decisions.wait(slot, why);
        return;
    }
    let keys = || seen.old.iter().map(|old| old.key);
    let serving = seen.is_available();
    let is_on_draining_node = seen.old.iter().any(|old| is_on_draining(state, old));
    // A node that drains gets no new one, so that no two of the slot are ever there at once.
    if serving && !is_on_draining_node && seen.old.iter().any(|old| is_on_plain(state, old)) {
        // Nothing is doubled there: one slot is given up where another service would double one.
        let allowed = budget.surge.saturating_add(budget.down);
        if allowed > budget.failing.saturating_add(budget.empty) {
            budget.begin();
            match budget.surge {
                0 => budget.down = budget.down.saturating_sub(1),
                _ => budget.surge -= 1,
            }
            decisions.replaced.extend(keys());
        } else {
            decisions.wait(slot, Why::TurnToCome);
        }
        return;
    }
    if serving && budget.surge > budget.failing {
        if seen
            .old
            .iter()
            .chain(&seen.stopping)
            .any(|old| old.key.generation == view.target)
        {
            decisions.reopen = true;
        } else {
            budget.surge -= 1;
            budget.begin();
            decisions.missing.push(slot);
        }
        return;
    }
    give_way(state, view, (slot, seen), budget, decisions);
}

/// Its old replicas end before the next one begins, where one may be missing.
fn give_way(
    state: &State,
    view: &View<'_>,
    (slot, seen): (Slot, &SlotView<'_>),
    budget: &mut Budget,
    decisions: &mut Decisions,
) {
    let keys = || seen.old.iter().map(|old| old.key);
    let serving = seen.is_available();
    let is_on_draining_node = seen.old.iter().any(|old| is_on_draining(state, old));
    let leaving = seen.old.iter().find(|old| is_leaving(state, view, old));
    if serving && budget.down == 0 {
        let node = leaving.map(|old| old.replica.node);
        decisions.wait(
            slot,
            node.map_or(Why::TurnToCome, |node| Why::LeavesLater { node }),
        );
        return;
    }
    if serving {
        budget.down -= 1;
    }
    budget.begin();
    let why = match leaving {
        Some(_) => StopReason::Draining,
        None => StopReason::Replaced,
    };
    match is_on_draining_node {
        // What it has there does not come free for the next one.
        true => decisions.leaving.push(Leaving {
            slot,
            replicas: keys().collect(),
            why,
        }),
        false => decisions.replaced.extend(keys()),
    }
}

/// Its node would not tell the next replica of the slot from it.
fn is_on_plain(state: &State, seen: &Seen<'_>) -> bool {
    state.node(seen.replica.node).is_some_and(|node| node.is_plain)
}

/// It has to go for its node's sake, not for its template's.
fn is_leaving(state: &State, view: &View<'_>, seen: &Seen<'_>) -> bool {
    view.is_current(seen.key.generation) && is_on_draining(state, seen)
}

fn is_on_draining(state: &State, seen: &Seen<'_>) -> bool {
    state
        .node(seen.replica.node)
        .is_some_and(|node| node.is_draining())
}
