//! A service's replicas, counted.

use dhow_core::ids::{ReplicaKey, Slot};
use dhow_core::replica::ReplicaState;
use dhow_core::spec::RType;
use dhow_core::state::{Replica, Service, State, Wanted};
use dhow_wire::ServiceHealthSummary;
use dhow_wire::stabilization::StoppedService;

/// The counts of a service's replicas that status, progress and stabilization read, computed once from State.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSum {
    pub desired: u32,
    /// Those that run, whatever they were made from.
    pub running: u32,
    /// A job's that have done their work, as the current revision asks for it.
    pub done: u32,
    /// Those that are to run what the service is to run and are healthy, or have done their work.
    pub healthy_count: u32,
    /// Whether every slot is served by a healthy replica, as far as its replicas can speak of it.
    pub healthy: bool,
    /// Those that are to run what the service is to run and do, or have done their work.
    pub updated: u32,
    /// Replicas of an older template are still to be replaced.
    pub outdated: u32,
    /// Its replicas have settings to try before those count.
    pub changes: bool,
    pub pending: u32,
    pub pulling: u32,
    pub starting: u32,
    pub failed: u32,
    /// Slots that have a healthy replica of what the service is to run, or whose work is done. Two replicas of one slot,
    /// as while a node drains, count once.
    served: u32,
    /// Slots that have a healthy replica of whatever revision, or whose work is done.
    pub serving: u32,
}

/// What the replicas of one slot say.
#[derive(Clone, Copy, Debug, Default)]
struct SlotHealth {
    speaks: bool,
    healthy: bool,
    served: bool,
}

impl ServiceSum {
    pub fn of(state: &State, service: &Service) -> Self {
        // Slots whose work is done and whose replicas are forgotten.
        let done_before = service
            .done
            .iter()
            .filter(|slot| service.is_present(**slot))
            .count();
        let done_before = u32::try_from(done_before).unwrap_or(u32::MAX);
        let mut sum = Self {
            desired: state.desired(service),
            done: done_before,
            updated: done_before,
            healthy_count: done_before,
            healthy: service.late.is_none(),
            changes: service.stopped.is_none()
                && service.target_info().is_some_and(|info| info.next.is_some()),
            served: done_before,
            serving: done_before,
            ..Self::default()
        };
        let mut present = done_before;
        let mut last: Option<(Slot, SlotHealth)> = None;
        let counted = state
            .replicas_of(service.id)
            .filter(|(key, replica)| !is_beside(state, service, replica) && service.is_present(key.slot));
        for (key, replica) in counted {
            let (slot, mut health) = last.take().unwrap_or((key.slot, SlotHealth::default()));
            if slot != key.slot {
                sum.add_slot(std::mem::take(&mut health));
            }
            sum.add(service, key, replica, &mut health);
            last = Some((key.slot, health));
            let counts = replica.wanted == Wanted::Run && is_current(service, key);
            present = present.saturating_add(u32::from(counts));
        }
        if let Some((_, health)) = last {
            sum.add_slot(health);
        }
        sum.pending = sum.pending.saturating_add(sum.desired.saturating_sub(present));
        sum
    }

    /// What ends or cannot be reached says nothing about its health; that it is missing, the count says. One that is to
    /// take another's place makes nothing worse while that one serves.
    fn add_slot(&mut self, slot: SlotHealth) {
        self.healthy &= !slot.speaks || slot.healthy;
        self.served = self.served.saturating_add(u32::from(slot.served));
        self.serving = self.serving.saturating_add(u32::from(slot.healthy));
    }

    fn add(&mut self, service: &Service, key: &ReplicaKey, replica: &Replica, slot: &mut SlotHealth) {
        self.running += u32::from(replica.is_running());
        if replica.wanted == Wanted::Stop {
            return;
        }
        let current = is_current(service, key);
        let good = replica.is_healthy() || replica.is_completed() || is_run_under_way(service, replica);
        self.done += u32::from(current && replica.is_completed());
        self.updated += u32::from(current && (replica.is_running() || replica.is_completed()));
        self.healthy_count += u32::from(current && good);
        self.outdated += u32::from(!current && !replica.is_completed());
        slot.speaks |= replica.machine.state != ReplicaState::Lost;
        slot.healthy |= good;
        slot.served |= current && good;
        match replica.machine.state {
            ReplicaState::Pending => self.pending += 1,
            ReplicaState::Pulling => self.pulling += 1,
            ReplicaState::Starting => self.starting += 1,
            ReplicaState::Backoff | ReplicaState::Failed => self.failed += 1,
            ReplicaState::Running | ReplicaState::Stopping | ReplicaState::Exited | ReplicaState::Lost => {}
        }
    }

    /// Running, or done where it is a job.
    pub fn running_or_done(&self) -> u32 {
        self.running.saturating_add(self.done)
    }

    /// What status shows: one that should run and of which nothing does is not healthy.
    pub fn is_healthy(&self) -> bool {
        self.desired == 0 || (self.healthy && (self.running_or_done() > 0 || self.served > 0))
    }

    /// Whether it has what it should have, and nothing of it is being replaced.
    pub fn is_whole(&self) -> bool {
        self.healthy && self.served >= self.desired && self.outdated == 0 && !self.changes
    }

    /// A job that is done counts as running, so that it holds nobody up.
    pub fn summary(&self, service: &Service) -> ServiceHealthSummary {
        let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
        ServiceHealthSummary {
            name: service.key.service.to_string(),
            running: self.running_or_done(),
            desired: self.desired,
            healthy: self.is_healthy(),
            endpoints: endpoints
                .unwrap_or_default()
                .iter()
                .map(|endpoint| endpoint.address())
                .collect(),
            done: self.done_of(service),
            updated: (self.outdated > 0).then_some(self.updated),
            outdated: (self.outdated > 0).then_some(self.outdated),
            // The calendar is another's.
            next_run_unix_secs: None,
            stopped: service.stopped.as_ref().map(|stopped| StoppedService {
                by: stopped.by.to_string(),
                at_unix_secs: stopped.wall_unix_secs,
                replicas: match service.rtype() {
                    RType::Service | RType::Job => Some(service.count_total()),
                    RType::System | RType::Cron => None,
                },
            }),
        }
    }

    /// How many have done their work, where work is what they are for.
    pub fn done_of(&self, service: &Service) -> Option<u32> {
        match service.rtype() {
            RType::Job | RType::Cron => Some(self.done),
            RType::Service | RType::System => None,
        }
    }

    /// A job's replicas that work on what the current revision asks for.
    pub fn at_work(&self) -> u32 {
        self.updated.saturating_sub(self.done)
    }

    /// What the stabilization's verdict is made from: while others are to be replaced, those of the current revision. A job
    /// counts once it is done, and nobody waits for the runs of a schedule.
    pub fn summary_for(&self, service: &Service, desired: u32) -> ServiceHealthSummary {
        let summary = self.summary(service);
        let healthy = summary.healthy && self.outdated == 0 && !self.changes;
        let (desired, running, healthy) = match service.rtype() {
            RType::Service | RType::System if self.outdated > 0 => (desired, self.updated, healthy),
            RType::Service | RType::System => (desired, summary.running, healthy),
            // Its health is that its work is done.
            RType::Job => (desired, self.done, healthy && self.done >= desired),
            RType::Cron => (0, summary.running, healthy),
        };
        ServiceHealthSummary {
            desired,
            running,
            healthy,
            // A verdict says nothing of what is under way.
            updated: None,
            outdated: None,
            ..summary
        }
    }
}

/// Whether it runs what the service is to run. A run of a schedule that has begun is left to its end.
pub(super) fn is_current(service: &Service, key: &ReplicaKey) -> bool {
    match service.rtype() {
        RType::Cron => true,
        RType::Service | RType::Job | RType::System => service.is_current(key.generation),
    }
}

/// Whether it is a run of a schedule that has begun and not failed: each firing would call its service ill otherwise,
/// until the run has come up.
fn is_run_under_way(service: &Service, replica: &Replica) -> bool {
    let begins_or_works = match replica.machine.state {
        ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Running => {
            true
        }
        ReplicaState::Backoff
        | ReplicaState::Stopping
        | ReplicaState::Exited
        | ReplicaState::Failed
        | ReplicaState::Lost => false,
    };
    service.rtype() == RType::Cron && begins_or_works && replica.machine.failures == 0
}

/// Whether it is none of those that the service is to have: a `system` service is to be on the nodes that take replicas,
/// and what it has on one that drains leaves last, or stays there in the version that it has.
fn is_beside(state: &State, service: &Service, replica: &Replica) -> bool {
    let drains = || state.node(replica.node).is_some_and(|node| node.is_draining());
    service.rtype() == RType::System && !service.removing && drains()
}
