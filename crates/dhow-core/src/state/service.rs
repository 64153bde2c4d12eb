//! A service inside the state: its roles, its generations and how many replicas it should have.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use super::ended::EndedReplica;
use super::failed_on::FailedOn;
use super::replica::Replica;
use super::rollout::{Rollout, Stage};
use super::runs::{DueTimes, ScheduleRun};
use super::scaling::Scaling;
use super::settings::{NextSettings, Trial};
use super::stopped::Stopped;
use crate::amount::Amount;
use crate::ids::{Generation, NodeId, RoleId, RoleName, ServiceId, ServiceKey, SettingsId, Slot, Template};
use crate::spec::{RType, ServiceSpec};
use crate::time::ClusterTime;

/// What the replicas of one generation are made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationInfo {
    pub template: Template,
    #[serde(with = "crate::spec::json_text")]
    pub spec: Arc<ServiceSpec>,
    /// What one replica of each role reserves, by role.
    pub demands: Arc<[Amount]>,
    /// What is to count in place of `spec`, and runs the same.
    #[serde(default)]
    pub next: Option<NextSettings>,
}

/// A service in State, across the revisions of its deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub id: ServiceId,
    pub key: ServiceKey,
    /// Only ever grows: a role's id is its place here.
    pub roles: Arc<[RoleName]>,
    /// Those that replicas still have, and the target.
    #[serde(deserialize_with = "crate::maps::read")]
    pub generations: OrdMap<Generation, Arc<GenerationInfo>>,
    /// What replicas should be of.
    pub target: Generation,
    /// A replica of the target was forgotten that its node may still have or remember: the next one needs a
    /// newer generation, so that no node takes it for the old one.
    pub spent: bool,
    pub next_template: Template,
    /// How many replicas each role should have, by role.
    pub counts: Arc<[u32]>,
    /// Whether the services that it depends on have let its target start.
    pub released: bool,
    /// When the target was set.
    pub asked: ClusterTime,
    /// When its rollout last came nearer to its end.
    pub progressed: ClusterTime,
    /// Replicas of an older template are being replaced: new ones must prove themselves.
    pub rolling: bool,
    /// A failed rollout with `on_failure: pause`: nothing more is replaced.
    pub held: bool,
    /// No longer in its deployment: it goes when its last replica has gone.
    pub removing: bool,
    /// Named volumes bind a slot to the node that keeps them.
    #[serde(deserialize_with = "crate::maps::read")]
    pub volumes: OrdMap<Slot, NodeId>,
    /// Where the current run of a cron service begins to count its replicas, and how many runs there were.
    pub cron_runs: u32,
    pub cron_base: u32,
    pub ended: Vector<Arc<EndedReplica>>,
    /// Slots of a job that are done and whose replicas were forgotten with their node.
    pub done: OrdSet<Slot>,
    /// Where its replicas kept failing, the newest last.
    #[serde(default)]
    pub failed_on: Vector<FailedOn>,
    /// The last settings that its replicas were told to try.
    #[serde(default)]
    pub settings: SettingsId,
    /// Runs of a schedule that are under way or kept, the newest last. Before feature level 5 there is one, told by
    /// `cron_base` and `counts`.
    #[serde(default)]
    pub runs: Vector<Arc<ScheduleRun>>,
    #[serde(default)]
    pub due_times: DueTimes,
    /// When a job was ended by its deadline: it has no work any more until somebody asks for it again.
    #[serde(default)]
    pub late: Option<ClusterTime>,
    #[serde(default)]
    pub rollout: Option<Rollout>,
    /// Services of its deployment that keep away from it.
    #[serde(default)]
    pub shunned_by: Vector<ServiceId>,
    /// People have stopped it, until somebody starts it again.
    #[serde(default)]
    pub stopped: Option<Stopped>,
    /// Of an adaptive service whose count was changed.
    #[serde(default)]
    pub scaling: Option<Scaling>,
}

impl Service {
    pub fn info(&self, generation: Generation) -> Option<&Arc<GenerationInfo>> {
        self.generations.get(&generation)
    }

    /// The target's spec, roles' demands and template. The target is always among the generations.
    pub fn target_info(&self) -> Option<&Arc<GenerationInfo>> {
        self.generations.get(&self.target)
    }

    pub fn spec(&self) -> Option<&Arc<ServiceSpec>> {
        self.target_info().map(|info| &info.spec)
    }

    pub fn role(&self, id: RoleId) -> Option<&RoleName> {
        self.roles.get(usize::from(id.0))
    }

    pub fn role_id(&self, name: &RoleName) -> Option<RoleId> {
        let place = self.roles.iter().position(|role| role == name)?;
        u16::try_from(place).ok().map(RoleId)
    }

    pub fn count(&self, role: RoleId) -> u32 {
        self.counts.get(usize::from(role.0)).copied().unwrap_or(0)
    }

    /// The sum of the counts of all roles. A system service's desired number is that of its nodes instead.
    pub fn count_total(&self) -> u32 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn rtype(&self) -> RType {
        self.spec().map_or(RType::Service, |spec| spec.rtype)
    }

    /// Whether the slot should have a replica.
    pub fn wants(&self, slot: Slot) -> bool {
        if self.is_off() || self.late.is_some() {
            return false;
        }
        if !self.runs.is_empty() {
            return self.open_runs().any(|run| run.has(slot));
        }
        self.is_counted(slot)
    }

    /// The slots that should have a replica, in order.
    pub fn wanted_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let has_none = self.is_off() || self.late.is_some();
        let roles = if has_none { 0 } else { self.counts.len() };
        (0..roles).flat_map(move |place| {
            let role = RoleId(place as u16);
            let own = match self.runs.is_empty() {
                true => self.cron_base..self.cron_base.saturating_add(self.count(role)),
                false => 0..0,
            };
            // Runs stand in the order of their indices.
            let of_runs = self.open_runs().flat_map(move |run| run.slots_in(role));
            own.map(move |index| Slot { role, index }).chain(of_runs)
        })
    }

    /// Whether the slot's work is done and nothing is left to show for it.
    pub fn is_done(&self, slot: Slot) -> bool {
        self.done.contains(&slot)
    }

    /// What one replica of a generation and role reserves.
    pub fn demand(&self, generation: Generation, role: RoleId) -> Amount {
        self.info(generation)
            .and_then(|info| info.demands.get(usize::from(role.0)).copied())
            .unwrap_or(Amount::ZERO)
    }

    /// The node that keeps the slot's volume, where the target has one. A system service's replicas are their
    /// nodes' own anyway.
    pub fn volume_node(&self, slot: Slot) -> Option<NodeId> {
        let binds = self
            .spec()
            .is_some_and(|spec| spec.has_named_storage() && spec.rtype != RType::System);
        binds.then(|| self.volumes.get(&slot).copied()).flatten()
    }

    /// Where its replicas kept failing, as far as that still counts.
    pub fn recently_failed_on(&self, now: ClusterTime) -> impl Iterator<Item = &FailedOn> {
        self.failed_on.iter().filter(move |failed| failed.is_recent(now))
    }

    /// The settings that a replica was told to try, with its attempt, where both are still of its generation.
    pub fn trial<'a>(
        &'a self,
        generation: Generation,
        replica: &'a Replica,
    ) -> Option<(&'a NextSettings, &'a Trial)> {
        let next = self.info(generation)?.next.as_ref()?;
        let trial = replica.trial.as_ref()?;
        (trial.settings == next.id).then_some((next, trial))
    }

    /// The generation in which the version before is started, while a canary of the target is tried. Each canary has
    /// another one, also where two of them run the same: it tells what was counted of one from the next.
    pub fn canary_base(&self) -> Option<Generation> {
        match self.rollout.as_ref()?.stage {
            Stage::Canary { base } => Some(base),
            Stage::Spread => None,
        }
    }

    /// How many replicas are its canary: those of its first slots.
    pub fn canary_count(&self) -> u32 {
        let asked = self.spec().map_or(0, |spec| spec.rollout.canary);
        asked.min(self.count_total())
    }

    /// Who stopped its rollout.
    pub fn paused_by(&self) -> Option<&Arc<str>> {
        self.rollout.as_ref()?.paused_by.as_ref()
    }

    /// Whether a generation runs the same thing as the target.
    pub fn is_current(&self, generation: Generation) -> bool {
        match (self.info(generation), self.target_info()) {
            (Some(info), Some(target)) => info.template == target.template,
            (None, _) | (_, None) => false,
        }
    }
}
