//! A service's replicas, sorted by slot and by what they are good for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::summary::Summary;
use crate::ids::{Generation, NodeId, ReplicaKey, ServiceId, Slot};
use crate::replica::ReplicaState;
use crate::spec::{AffinityMode, NodeMode, RType, ServiceSpec, TimeSpan};
use crate::state::{GenerationInfo, Replica, Service, State, Wanted};
use crate::time::ClusterTime;

/// How long a new replica must have run where the service has no check and asks for no proof (`min_healthy: 0s`):
/// long enough that one that cannot even start is not taken for one that serves.
const RUN_PROOF: TimeSpan = TimeSpan::from_millis(200);

/// One replica, as a rollout sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub key: ReplicaKey,
    pub replica: &'a Replica,
    /// It is of the target's template and may stay where it is.
    pub fresh: bool,
    /// It runs and its health can be relied on, or its service asks for no proof of that.
    pub available: bool,
}

impl Seen<'_> {
    pub fn is_lost(&self) -> bool {
        self.replica.machine.state == ReplicaState::Lost
    }

    pub fn has_ended(&self) -> bool {
        self.replica.machine.state.is_ended()
    }
}

/// The replicas of one slot.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotView<'a> {
    /// To run, as the target says.
    pub fresh: Vec<Seen<'a>>,
    /// To run, but of an older template or on a node that drains.
    pub old: Vec<Seen<'a>>,
    /// Told to end, or about to be.
    pub stopping: Vec<Seen<'a>>,
    /// Of those, on a node whose drain waits no longer: to be told now.
    pub overdue: Vec<ReplicaKey>,
}

impl SlotView<'_> {
    /// The node that is to have the slot, where one of its replicas is to be moved.
    pub fn moves_to(&self) -> Option<NodeId> {
        let there = self.old.iter().chain(&self.stopping);
        there.filter_map(|seen| seen.replica.moves_to).next()
    }

    pub fn is_available(&self) -> bool {
        self.fresh.iter().chain(&self.old).any(|seen| seen.available)
    }

    /// Served by one replica that can be relied on, and by no other. Work that is under way is not done
    /// yet, nor is a change of settings.
    fn is_steady(&self, info: &GenerationInfo) -> bool {
        if info.spec.runs_to_completion() || info.next.is_some() {
            return false;
        }
        let alone = self.old.is_empty() && self.stopping.is_empty();
        alone && matches!(self.fresh.as_slice(), [seen] if seen.available && seen.replica.is_healthy())
    }

    /// Served by the target alone, which can be relied on.
    pub fn is_done(&self) -> bool {
        self.old.is_empty() && self.fresh.iter().any(|seen| seen.available)
    }

    /// Its old replicas have gone, and the one in their place is not what it should be. A lost node or the end
    /// of a job is no failure.
    pub fn is_failing(&self) -> bool {
        let fails = |seen: &Seen<'_>| !seen.available && !seen.is_lost() && !seen.replica.is_completed();
        self.old.is_empty() && !self.fresh.is_empty() && self.fresh.iter().all(fails)
    }
}

/// Which replicas of a service a view is of. While a canary is tried, it and the version beside it are planned as if they
/// were two services: each has its own slots, and neither gives way to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    All,
    /// What was there before the canary, and is started in this generation.
    Base(Generation),
    /// The target, in these slots alone.
    Canary(BTreeSet<Slot>),
}

impl Line {
    fn has(&self, service: &Service, generation: Generation) -> bool {
        match self {
            Self::All => true,
            Self::Base(_) => !service.is_current(generation),
            Self::Canary(_) => service.is_current(generation),
        }
    }
}

/// A service with its slots.
pub(super) struct View<'a> {
    pub service: &'a Service,
    pub line: Line,
    /// What its replicas are started in.
    pub target: Generation,
    pub info: Arc<GenerationInfo>,
    /// Wanted slots, and those that only have replicas left, in order.
    pub slots: Vec<(Slot, SlotView<'a>)>,
    /// Wanted slots that were left out because they need nothing.
    pub steady: u32,
    /// How many replicas that are to run are on which node, ascending by node. What a rollout is about to end
    /// takes room, but the new ones spread as if it were gone already.
    pub present: Vec<(NodeId, u32)>,
    pub now: ClusterTime,
    /// No node may have one more by the rules about nodes, so that nothing is doubled where one may be missing.
    pub no_surge: bool,
    trust: Trust,
}

/// When a fresh replica is relied on.
#[derive(Clone, Copy)]
struct Trust {
    /// After it has been healthy for so long.
    healthy_for: TimeSpan,
    /// Or has run for so long, where no more is asked.
    running_for: Option<TimeSpan>,
}

impl Trust {
    /// A replica that is in its place already, or that nobody waits for.
    const AT_ONCE: Self = Self {
        healthy_for: TimeSpan::ZERO,
        running_for: None,
    };

    /// What the spec asks of a replica that takes another's place.
    fn proof(spec: &ServiceSpec) -> Self {
        let healthy_for = spec.rollout.min_healthy;
        let asks_nothing =
            healthy_for == TimeSpan::ZERO && spec.health.is_none() && !spec.runs_to_completion();
        Self {
            healthy_for,
            running_for: asks_nothing.then_some(RUN_PROOF),
        }
    }

    fn holds(self, replica: &Replica, now: ClusterTime) -> bool {
        let runs = |span| replica.is_running() && replica.since.after(span) <= now;
        replica.is_healthy_for(self.healthy_for, now) || self.running_for.is_some_and(runs)
    }

    /// From when on it will hold, where that is only a matter of time.
    fn from(self, replica: &Replica) -> Option<ClusterTime> {
        let healthy = replica.healthy_since.map(|since| since.after(self.healthy_for));
        let runs = self.running_for.filter(|_| replica.is_running());
        let running = runs.map(|span| replica.since.after(span));
        healthy.into_iter().chain(running).min()
    }
}

impl<'a> View<'a> {
    /// All slots. None for a service whose target is missing, which the invariants exclude.
    pub fn of(state: &'a State, service: &'a Service, now: ClusterTime) -> Option<Self> {
        Self::build(
            state,
            service,
            now,
            state.replicas_of(service.id),
            service.wanted_slots(),
            Line::All,
        )
    }

    /// All slots of one of the two lines of a service with a canary.
    pub fn of_line(state: &'a State, service: &'a Service, now: ClusterTime, line: Line) -> Option<Self> {
        let of_line = line.clone();
        let replicas = state.replicas_of(service.id);
        let replicas = replicas.filter(move |(key, _)| of_line.has(service, key.generation));
        let wanted: Vec<Slot> = match &line {
            Line::All | Line::Base(_) => service.wanted_slots().collect(),
            Line::Canary(slots) => slots.iter().copied().collect(),
        };
        Self::build(state, service, now, replicas, wanted.into_iter(), line)
    }

    /// Only the slots that may need something: the others are served by one replica that can be relied on.
    /// The summary says which, and is brought up to date.
    pub fn of_open(
        state: &'a State,
        service: &'a Service,
        now: ClusterTime,
        summary: &mut Summary,
    ) -> Option<Self> {
        if !summary.is_of(service) {
            return Self::of_all(state, service, now, summary);
        }
        let open = std::mem::take(&mut summary.open);
        let replicas = open.iter().flat_map(|slot| replicas_in(state, service.id, *slot));
        let wanted = open.iter().copied().filter(|slot| service.wants(*slot));
        let mut view = Self::build(state, service, now, replicas, wanted, Line::All)?;
        // A move gives a replica up as a rollout does: those that stay are asked for more than when they were left out.
        if !service.rolling && view.slots.iter().any(|(_, slot)| slot.moves_to().is_some()) {
            return Self::of_all(state, service, now, summary);
        }
        view.present = summary
            .present
            .iter()
            .map(|(node, count)| (*node, *count))
            .collect();
        view.leave_out_steady(summary);
        Some(view)
    }

    /// The same after a look at every slot.
    fn of_all(
        state: &'a State,
        service: &'a Service,
        now: ClusterTime,
        summary: &mut Summary,
    ) -> Option<Self> {
        let mut view = Self::of(state, service, now)?;
        *summary = Summary::new(service, &view.present);
        view.leave_out_steady(summary);
        Some(view)
    }

    fn build(
        state: &'a State,
        service: &'a Service,
        now: ClusterTime,
        replicas: impl Iterator<Item = (&'a ReplicaKey, &'a Arc<Replica>)>,
        wanted: impl Iterator<Item = Slot>,
        line: Line,
    ) -> Option<Self> {
        let target = match line {
            Line::All | Line::Canary(_) => service.target,
            Line::Base(base) => base,
        };
        let info = service.info(target)?.clone();
        let rolls = service.rolling && !matches!(line, Line::Base(_));
        let mut trust = match rolls {
            true => Trust::proof(&info.spec),
            false => Trust::AT_ONCE,
        };
        let is_base = matches!(line, Line::Base(_));
        let mut wanted = wanted.peekable();
        let mut slots: Vec<(Slot, SlotView<'a>)> = Vec::new();
        let mut on_nodes: Vec<NodeId> = Vec::new();
        for (key, replica) in replicas {
            while let Some(slot) = wanted.next_if(|slot| *slot < key.slot) {
                slots.push((slot, SlotView::default()));
            }
            wanted.next_if_eq(&key.slot);
            if slots.last().is_none_or(|(slot, _)| *slot != key.slot) {
                slots.push((key.slot, SlotView::default()));
            }
            let Some((_, view)) = slots.last_mut() else {
                continue;
            };
            let seen = look(state, service, &info, (*key, is_base), replica, trust, now);
            match (replica.wanted, seen.fresh) {
                (Wanted::Stop, _) => view.stopping.push(seen),
                (Wanted::Run, _) if is_overdue(state, replica, now) => {
                    view.overdue.push(*key);
                    view.stopping.push(seen);
                }
                (Wanted::Run, true) => view.fresh.push(seen),
                (Wanted::Run, false) => view.old.push(seen),
            }
            if is_counted(state, service, &info, (key, is_base), replica) {
                on_nodes.push(replica.node);
            }
        }
        slots.extend(wanted.map(|slot| (slot, SlotView::default())));
        // A drain gives replicas up as a rollout does, so the same is asked of those that stay.
        if !rolls && slots.iter().any(|(_, slot)| !slot.old.is_empty()) {
            trust = Trust::proof(&info.spec);
            let fresh = slots.iter_mut().flat_map(|(_, slot)| &mut slot.fresh);
            fresh.for_each(|seen| seen.available = trust.holds(seen.replica, now));
        }
        Some(Self {
            service,
            line,
            target,
            info,
            slots,
            steady: 0,
            present: count(on_nodes),
            now,
            no_surge: false,
            trust,
        })
    }

    fn leave_out_steady(&mut self, summary: &mut Summary) {
        let (service, info) = (self.service, &self.info);
        self.slots
            .retain(|(slot, view)| !(service.wants(*slot) && view.is_steady(info)));
        summary.open = self.slots.iter().map(|(slot, _)| *slot).collect();
        let open = self.slots.iter().filter(|(slot, _)| service.wants(*slot)).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        self.steady = service.count_total().saturating_sub(open);
    }

    /// The node that is to have a slot by a rebalance.
    pub fn moves_to(&self, slot: Slot) -> Option<NodeId> {
        let at = self.slots.binary_search_by_key(&slot, |(slot, _)| *slot).ok()?;
        self.slots[at].1.moves_to()
    }

    /// Whether a generation is of this view's version.
    pub fn is_current(&self, generation: Generation) -> bool {
        match self.line {
            Line::All => self.service.is_current(generation),
            Line::Base(_) | Line::Canary(_) => self.line.has(self.service, generation),
        }
    }

    pub fn spec(&self) -> &ServiceSpec {
        &self.info.spec
    }

    /// When the next healthy replica will have been so for long enough.
    pub fn trusted_from(&self) -> Option<ClusterTime> {
        let seen = self.slots.iter().flat_map(|(_, slot)| &slot.fresh);
        seen.filter(|seen| !seen.available)
            .filter_map(|seen| self.trust.from(seen.replica))
            .min()
    }

    /// Whether the slot should have a replica. Those of a system service are its nodes' own: any will do.
    pub fn wants(&self, slot: Slot) -> bool {
        match (&self.line, self.info.spec.rtype) {
            (Line::Canary(slots), _) => slots.contains(&slot) && self.service.wants(slot),
            (Line::All | Line::Base(_), RType::System) => !self.service.is_off(),
            (Line::All | Line::Base(_), RType::Service | RType::Job | RType::Cron) => {
                self.service.wants(slot)
            }
        }
    }
}

/// Whether it counts where the service's replicas are: it is to run, and a rollout is not about to end it. Who
/// wants a node for itself must know its own old ones from others', and packing goes where they are.
pub(super) fn is_counted(
    state: &State,
    service: &Service,
    info: &GenerationInfo,
    (key, is_base): (&ReplicaKey, bool),
    replica: &Replica,
) -> bool {
    let old_count = info.spec.node_mode != NodeMode::Shared || info.spec.affinity.mode == AffinityMode::Pack;
    let runs = replica.wanted == Wanted::Run && replica.reserves();
    runs && (old_count || is_fresh(state, service, info, (key, is_base), replica))
}

/// Whether it is of the target's template and may stay where it is.
fn is_fresh(
    state: &State,
    service: &Service,
    info: &GenerationInfo,
    (key, is_base): (&ReplicaKey, bool),
    replica: &Replica,
) -> bool {
    let same = match info.spec.rtype {
        _ if is_base => !service.is_current(key.generation),
        // A run that has begun is left to its end; the next one has the new spec.
        RType::Cron => true,
        RType::Service | RType::Job | RType::System => service.is_current(key.generation),
    };
    let leaving = !replica.machine.state.is_ended()
        && state
            .node(replica.node)
            .is_none_or(|node| node.is_ready() && node.is_draining());
    // One on a lost node is dealt with as any other there.
    let is_moving = replica.moves_to.is_some() && replica.machine.state != ReplicaState::Lost;
    same && !leaving && !is_moving
}

/// Whether its node waits no longer for it to leave.
fn is_overdue(state: &State, replica: &Replica, now: ClusterTime) -> bool {
    replica.reserves()
        && state
            .node(replica.node)
            .is_some_and(|node| node.ends_replicas(now))
}

fn replicas_in(
    state: &State,
    service: ServiceId,
    slot: Slot,
) -> impl Iterator<Item = (&ReplicaKey, &Arc<Replica>)> {
    let key = |generation| ReplicaKey {
        service,
        slot,
        generation: Generation(generation),
    };
    state.replicas.range(key(0)..=key(u32::MAX))
}

fn look<'a>(
    state: &State,
    service: &Service,
    info: &GenerationInfo,
    (key, is_base): (ReplicaKey, bool),
    replica: &'a Replica,
    trust: Trust,
    now: ClusterTime,
) -> Seen<'a> {
    let fresh = is_fresh(state, service, info, (&key, is_base), replica);
    let trust = if fresh { trust } else { Trust::AT_ONCE };
    Seen {
        key,
        replica,
        fresh,
        available: trust.holds(replica, now),
    }
}

fn count(mut nodes: Vec<NodeId>) -> Vec<(NodeId, u32)> {
    nodes.sort_unstable();
    let mut counts: Vec<(NodeId, u32)> = Vec::new();
    for node in nodes {
        match counts.last_mut() {
            Some((last, count)) if *last == node => *count += 1,
            Some(_) | None => counts.push((node, 1)),
        }
    }
    counts
}
