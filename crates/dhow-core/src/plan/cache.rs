//! What the planner remembers between two plans.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;

use super::report::{PlanReport, ServiceReport};
use super::summary::Summary;
use crate::ids::{DeploymentName, Generation, NodeId, ServiceId};
use crate::placement::NodeTable;
use crate::rollout::Figures;
use crate::state::{Service, State};
use crate::time::ClusterTime;

/// Follows the state by its changes. It only makes planning faster: a warm cache plans what a cold one does.
#[derive(Debug, Default)]
pub struct PlanCache {
    /// The snapshot that the rest was derived from.
    pub(super) seen: State,
    pub(super) table: NodeTable,
    pub(super) summaries: BTreeMap<ServiceId, Summary>,
    /// Services to look at.
    pub(super) dirty: BTreeSet<ServiceId>,
    /// Services with replicas that no node takes: looked at again when any node changes.
    pub(super) blocked: BTreeSet<ServiceId>,
    /// Services that displaced nobody, because the plan ended others already: looked at again in the next one.
    pub(super) held_back: BTreeSet<ServiceId>,
    /// Services that run on every node that fits.
    pub(super) system: BTreeSet<ServiceId>,
    /// Services that wait for others of their deployment.
    pub(super) waiting: BTreeSet<(DeploymentName, ServiceId)>,
    /// Services that are as they should be.
    pub(super) settled: BTreeSet<ServiceId>,
    /// Deployments that have something to come to rest from.
    pub(super) under_way: BTreeSet<DeploymentName>,
    pub(super) draining: BTreeSet<NodeId>,
    /// Nodes with replicas that are about to end: room to come.
    pub(super) stopping: BTreeSet<NodeId>,
    now: ClusterTime,
    timers: BTreeSet<(ClusterTime, ServiceId)>,
    timer_of: BTreeMap<ServiceId, ClusterTime>,
    reports: OrdMap<ServiceId, ServiceReport>,
    /// What was counted of canaries, by service and the base of the canary.
    figures: CanaryBook,
    /// Whether this plan has reserved anything in the table.
    pub(super) reserved: bool,
}

/// What balancers have counted of canaries, by service and the base of the canary. It is beside the state: the next plan goes by it, and
/// what comes of it is a command that holds it.
pub type CanaryBook = BTreeMap<(ServiceId, Generation), Figures>;

impl PlanCache {
    /// Takes in what was counted of canaries until now.
    pub fn hear(&mut self, figures: CanaryBook) {
        let changed = figures
            .iter()
            .filter(|(key, count)| self.figures.get(key) != Some(count));
        let changed: Vec<ServiceId> = changed.map(|((service, _), _)| *service).collect();
        self.dirty.extend(changed);
        self.figures = figures;
    }

    pub(super) fn figures_of(&self, service: &Service) -> Figures {
        let base = service.canary_base();
        let known = base.and_then(|base| self.figures.get(&(service.id, base)));
        known.copied().unwrap_or_default()
    }

    /// The services to plan: those that leave, then the most important first.
    pub(super) fn due(&self, state: &State) -> Vec<ServiceId> {
        let rank = |id: &ServiceId| {
            let service = state.service(*id);
            let priority = service
                .and_then(|service| service.spec())
                .map_or(0, |spec| spec.priority);
            (
                !service.is_some_and(|service| service.removing),
                std::cmp::Reverse(priority),
                *id,
            )
        };
        let mut due: Vec<_> = self.dirty.iter().map(rank).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Forgets what the last look at a service found.
    pub(super) fn begin(&mut self, id: ServiceId) {
        self.blocked.remove(&id);
        self.settled.remove(&id);
        self.reports.remove(&id);
        self.clear_timer(id);
    }

    /// A service that was acted on is looked at again: what came of it is seen only then.
    pub(super) fn end(&mut self, id: ServiceId, acted: bool) {
        if !acted {
            self.dirty.remove(&id);
        }
    }

    /// Forgets a service that is gone.
    pub(super) fn drop_service(&mut self, id: ServiceId) {
        self.begin(id);
        self.summaries.remove(&id);
        self.dirty.remove(&id);
        self.system.remove(&id);
    }

    pub(super) fn report_service(&mut self, id: ServiceId, report: ServiceReport) {
        if !report.is_empty() {
            self.reports.insert(id, report);
        }
    }

    pub(super) fn report(&self) -> PlanReport {
        PlanReport {
            services: self.reports.clone(),
        }
    }

    /// Looks at a service again at `at`, or earlier. What has passed already was looked at just now.
    pub(super) fn wake_at(&mut self, id: ServiceId, at: ClusterTime) {
        if at <= self.now {
            return;
        }
        match self.timer_of.get(&id) {
            Some(set) if *set <= at => return,
            Some(_) | None => self.clear_timer(id),
        }
        self.timers.insert((at, id));
        self.timer_of.insert(id, at);
    }

    fn clear_timer(&mut self, id: ServiceId) {
        if let Some(at) = self.timer_of.remove(&id) {
            self.timers.remove(&(at, id));
        }
    }

    pub(super) fn take_due_timers(&mut self, now: ClusterTime) {
        self.now = now;
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            self.timer_of.remove(&id);
            self.dirty.insert(id);
        }
    }

    pub(super) fn next_wake(&self) -> Option<ClusterTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn take_back_reservations(&mut self) {
        if self.reserved {
            self.table.rollback();
            self.reserved = false;
        }
    }
}
