//! An agent with made-up workloads: the real replica machine, a ledger with sequence numbers, and a link that
//! can be cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dhow_core::assignment::{AssignedSettings, RoleAssignment, assignment_since};
use dhow_core::command::{AgentCommand, AgentEvent, InventoryItem, Outcome, Refused};
use dhow_core::ids::{NodeId, ReplicaKey, SettingsId};
use dhow_core::replica::{
    Exit, Machine, ReplicaEvent, ReplicaState, RestartRule, backoff_delay, step as step_machine,
};
use dhow_core::spec::{ServiceSpec, TimeSpan};
use dhow_core::state::State;
use dhow_core::time::ClusterTime;

use super::behaviour::{Behaviour, Behaviours};

/// From being told to try settings to knowing whether they pass.
const TRIED_AFTER: TimeSpan = TimeSpan::from_secs(1);

/// A run this long makes earlier failures forgotten.
const STEADY: TimeSpan = TimeSpan::from_secs(60);

struct Workload {
    spec: ServiceSpec,
    machine: Machine,
    behaviour: Behaviour,
    /// What happens next, and when.
    due: VecDeque<(ClusterTime, ReplicaEvent)>,
    ended_at: Option<ClusterTime>,
    /// It was told to end: assigned again, it begins anew.
    stopped: bool,
    /// Settings that it tries, and the last ones that it has passed.
    next: Option<AssignedSettings>,
    passed: Option<SettingsId>,
    /// When it is known whether it passes them.
    tried_at: Option<ClusterTime>,
}

/// A simulated node of the lab.
pub struct Agent {
    id: NodeId,
    linked: bool,
    powered: bool,
    incarnation: u64,
    /// The number of the last event in the ledger.
    seq: u64,
    durable_seq: u64,
    ledger: VecDeque<AgentEvent>,
    needs_inventory: bool,
    workloads: BTreeMap<ReplicaKey, Workload>,
    /// What it was last told to run.
    assigned: BTreeSet<ReplicaKey>,
}

impl Agent {
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            linked: true,
            powered: true,
            incarnation: 1,
            seq: 0,
            durable_seq: 0,
            ledger: VecDeque::new(),
            needs_inventory: true,
            workloads: BTreeMap::new(),
            assigned: BTreeSet::new(),
        }
    }

    pub(super) fn cut(&mut self) {
        self.linked = false;
    }

    pub(super) fn power_off(&mut self) {
        self.linked = false;
        self.powered = false;
        self.workloads.clear();
        self.assigned.clear();
        self.ledger.clear();
    }

    pub(super) fn link(&mut self) {
        self.linked = true;
        if !self.powered {
            self.powered = true;
            self.incarnation += 1;
            (self.seq, self.durable_seq) = (0, 0);
        }
        // What a returning node has is compared with what is believed of it.
        self.needs_inventory = true;
    }

    /// Reached again, with its ledger as it was.
    pub(super) fn resume(&mut self) {
        self.linked = true;
    }

    /// Its workloads go on under their own supervision; what it knew of them is found again, not remembered.
    pub(super) fn lose_ledger(&mut self) {
        self.ledger.clear();
        self.incarnation += 1;
        (self.seq, self.durable_seq) = (0, 0);
        self.needs_inventory = true;
    }

    /// What runs here at the moment.
    pub fn running(&self) -> impl Iterator<Item = ReplicaKey> + '_ {
        let runs = |workload: &Workload| workload.machine.pid.is_some();
        self.workloads
            .iter()
            .filter(move |(_, workload)| runs(workload))
            .map(|(key, _)| *key)
    }

    pub fn machine(&self, key: &ReplicaKey) -> Option<&Machine> {
        self.workloads.get(key).map(|workload| &workload.machine)
    }

    pub(super) fn next_due(&self) -> Option<ClusterTime> {
        self.workloads
            .values()
            .flat_map(|workload| {
                workload
                    .due
                    .front()
                    .map(|(at, _)| *at)
                    .into_iter()
                    .chain(workload.tried_at)
            })
            .min()
    }

    /// Takes its assignment and lets what is due happen. Whether anything did.
    pub(super) fn act(&mut self, state: &State, behaviours: &Behaviours, now: ClusterTime) -> bool {
        if !self.powered {
            return false;
        }
        let mut acted = false;
        // The agent tells what it has before it takes what it should have.
        if self.linked && !self.needs_inventory {
            acted |= self.take_assignment(state, behaviours, now);
        }
        // An image may have been mended or broken since it was last started.
        for workload in self.workloads.values_mut() {
            workload.behaviour = behaviour_of(behaviours, self.id, &workload.spec);
        }
        let keys: Vec<ReplicaKey> = self.workloads.keys().copied().collect();
        for key in keys {
            while let Some(event) = self.pop_due(&key, now) {
                acted = true;
                self.happen(state, &key, event, now);
            }
        }
        // What has ended and is not asked for is forgotten.
        let assigned = &self.assigned;
        self.workloads
            .retain(|key, workload| assigned.contains(key) || workload.ended_at.is_none());
        acted
    }

    fn pop_due(&mut self, key: &ReplicaKey, now: ClusterTime) -> Option<ReplicaEvent> {
        let workload = self.workloads.get_mut(key)?;
        if workload.tried_at.is_some_and(|at| at <= now) {
            workload.tried_at = None;
            return workload.outcome_of_trial(now);
        }
        let (at, _) = workload.due.front()?;
        if *at > now {
            return None;
        }
        workload.due.pop_front().map(|(_, event)| event)
    }

    fn take_assignment(&mut self, state: &State, behaviours: &Behaviours, now: ClusterTime) -> bool {
        let Some(told) = assignment_since(state, self.id, None) else {
            return false;
        };
        let mut acted = false;
        let mut assigned = BTreeSet::new();
        for (name, alike) in told.replicas() {
            let Some(key) = state.replica_key(&name) else {
                continue;
            };
            assigned.insert(key);
            let over = |known: &Workload| known.stopped && known.ended_at.is_some();
            match self.workloads.get_mut(&key).filter(|known| !over(known)) {
                Some(known) => acted |= known.take_settings(alike, now),
                None => {
                    let behaviour = behaviour_of(behaviours, self.id, &alike.spec);
                    self.workloads.insert(key, Workload::new(alike, behaviour, now));
                    acted = true;
                }
            }
        }
        for (key, workload) in &mut self.workloads {
            let stopping = workload.machine.state == ReplicaState::Stopping
                || workload
                    .due
                    .iter()
                    .any(|(_, event)| matches!(event, ReplicaEvent::StopBegan));
            if !assigned.contains(key) && !stopping && workload.ended_at.is_none() {
                workload.due = VecDeque::from([(now, ReplicaEvent::StopBegan)]);
                acted = true;
            }
        }
        self.assigned = assigned;
        acted
    }

    fn happen(&mut self, state: &State, key: &ReplicaKey, event: ReplicaEvent, now: ClusterTime) {
        let Some(workload) = self.workloads.get_mut(key) else {
            return;
        };
        let rule = RestartRule::of(&workload.spec);
        if let Err(illegal) = step_machine(&mut workload.machine, &event, &rule) {
            panic!("node {} made an illegal event for {key:?}: {illegal}", self.id);
        }
        workload.follow_up(state, key, &event, now);
        self.seq += 1;
        self.ledger.push_back(AgentEvent { replica: *key, event });
    }

    /// What it has to say, one message at a time.
    pub(super) fn next_message(&mut self) -> Option<AgentCommand> {
        if !self.linked || !self.powered {
            return None;
        }
        if self.needs_inventory {
            let items = self.workloads.iter().map(|(key, workload)| InventoryItem {
                replica: *key,
                machine: workload.machine.clone(),
            });
            return Some(AgentCommand::Inventory {
                node: self.id,
                incarnation: self.incarnation,
                seq: self.seq,
                replicas: items.collect(),
            });
        }
        if self.ledger.is_empty() {
            return None;
        }
        Some(AgentCommand::Report {
            node: self.id,
            incarnation: self.incarnation,
            first_seq: self.durable_seq + 1,
            events: self.ledger.iter().cloned().collect(),
        })
    }

    /// Trims the ledger to what is durable; a refusal means that all it has is asked for.
    pub(super) fn answered(&mut self, outcome: &Result<Outcome, Refused>) {
        match outcome {
            Ok(Outcome::Reported {
                durable_seq,
                diverged,
            }) => {
                self.needs_inventory = !diverged.is_empty();
                let durable = usize::try_from(durable_seq.saturating_sub(self.durable_seq)).unwrap_or(0);
                self.ledger.drain(..durable.min(self.ledger.len()));
                self.durable_seq = *durable_seq;
            }
            Ok(_) => {}
            Err(Refused::Missing(_)) => self.linked = false,
            Err(_) => self.needs_inventory = true,
        }
    }
}

fn behaviour_of(behaviours: &Behaviours, node: NodeId, spec: &ServiceSpec) -> Behaviour {
    let image = spec.image.as_ref();
    image
        .map(|image| behaviours.of(node, &image.name))
        .unwrap_or_default()
}

/// The first thing that a node does with a replica.
fn first_event(behaviour: &Behaviour) -> ReplicaEvent {
    match behaviour.cannot_pull {
        true => ReplicaEvent::PullBegan,
        false => ReplicaEvent::StartBegan,
    }
}

impl Workload {
    fn new(told: &RoleAssignment, behaviour: Behaviour, now: ClusterTime) -> Self {
        Self {
            spec: told.spec.as_ref().clone(),
            machine: Machine::default(),
            behaviour,
            due: VecDeque::from([(now, first_event(&behaviour))]),
            ended_at: None,
            stopped: false,
            next: told.next.clone(),
            passed: None,
            tried_at: None,
        }
    }

    /// Takes what changed under it. Whether it has something else to try.
    fn take_settings(&mut self, told: &RoleAssignment, now: ClusterTime) -> bool {
        if self.spec != *told.spec {
            self.spec = told.spec.as_ref().clone();
        }
        let before = self.next.as_ref().map(|next| next.id);
        let news = told.next.as_ref().map(|next| next.id) != before;
        self.next = told.next.clone();
        if news {
            self.tried_at = None;
            self.begin_trial(now);
        }
        news
    }

    fn begin_trial(&mut self, now: ClusterTime) {
        let open = self
            .next
            .as_ref()
            .is_some_and(|next| Some(next.id) != self.passed);
        if open && self.machine.state == ReplicaState::Running {
            self.tried_at = Some(now.after(TRIED_AFTER));
        }
    }

    /// The settings that decide: those that it has passed, else those that count for all.
    fn deciding(&self) -> &ServiceSpec {
        match &self.next {
            Some(next) if Some(next.id) == self.passed => &next.spec,
            Some(_) | None => &self.spec,
        }
    }

    fn outcome_of_trial(&mut self, now: ClusterTime) -> Option<ReplicaEvent> {
        let next = self.next.as_ref()?;
        let settings = next.id;
        if !self.behaviour.passes(next.spec.health.as_ref()) {
            let message = "connection refused".into();
            return Some(ReplicaEvent::SettingsFailed { settings, message });
        }
        self.passed = Some(settings);
        if !self.machine.healthy {
            self.due
                .retain(|(_, event)| !matches!(event, ReplicaEvent::BecameHealthy));
            self.due.push_front((now, ReplicaEvent::BecameHealthy));
        }
        Some(ReplicaEvent::SettingsPassed { settings })
    }

    /// What the event leads to, by the script.
    fn follow_up(&mut self, state: &State, key: &ReplicaKey, event: &ReplicaEvent, now: ClusterTime) {
        let script = self.behaviour;
        match event {
            ReplicaEvent::StartBegan => {
                let next = match script.cannot_start {
                    true => ReplicaEvent::CouldNotStart {
                        message: "no such image".into(),
                    },
                    false => ReplicaEvent::Started {
                        pid: 100 + key.slot.index,
                    },
                };
                self.due.push_back((now.after(script.start), next));
            }
            ReplicaEvent::Started { .. } => {
                self.script_run(now);
                self.begin_trial(now);
            }
            ReplicaEvent::BecameUnhealthy { .. } => {
                self.due.clear();
                let exit = ReplicaEvent::Ended {
                    exit: Exit::Signal(15),
                    oom: false,
                };
                self.due.push_back((now.after(script.stop), exit));
            }
            ReplicaEvent::StopBegan => {
                self.stopped = true;
                self.due.clear();
                if self.machine.state == ReplicaState::Stopping {
                    // One that does not end when it is asked is ended when its grace is over.
                    let (after, signal) = match script.stop <= self.spec.stop.grace {
                        true => (script.stop, 15),
                        false => (self.spec.stop.grace, 9),
                    };
                    let exit = Exit::Signal(signal);
                    self.due
                        .push_back((now.after(after), ReplicaEvent::Ended { exit, oom: false }));
                }
            }
            ReplicaEvent::Ended { .. } | ReplicaEvent::CouldNotStart { .. } => {
                self.due.clear();
                if self.machine.state == ReplicaState::Backoff
                    && let Some(name) = state.replica_name(key)
                {
                    let wait = backoff_delay(&self.spec.restart.backoff, self.machine.failures, &name);
                    self.due.push_back((now.after(wait), first_event(&script)));
                }
            }
            ReplicaEvent::PullBegan => {
                let message = "the registry does not answer".into();
                self.due
                    .push_back((now.after(script.start), ReplicaEvent::CouldNotStart { message }));
            }
            ReplicaEvent::BecameHealthy
            | ReplicaEvent::RanSteadily
            | ReplicaEvent::Adopted { .. }
            | ReplicaEvent::NodeLost
            | ReplicaEvent::SettingsPassed { .. }
            | ReplicaEvent::SettingsFailed { .. } => {}
        }
        if self.machine.state != ReplicaState::Running {
            self.tried_at = None;
        }
        if self.machine.state.is_ended() {
            self.due.clear();
            self.ended_at.get_or_insert(now);
        }
    }

    /// The course of one run, in order of time.
    fn script_run(&mut self, now: ClusterTime) {
        let script = self.behaviour;
        let mut course: Vec<(ClusterTime, ReplicaEvent)> = Vec::new();
        let passes = script.passes(self.deciding().health.as_ref());
        if let Some(after) = script.healthy_after.filter(|_| passes) {
            course.push((now.after(after), ReplicaEvent::BecameHealthy));
            if let Some(sick) = script.unhealthy_after {
                let message = "the check failed 3 times".into();
                course.push((
                    now.after(after).after(sick),
                    ReplicaEvent::BecameUnhealthy { message },
                ));
            }
        }
        if !self.spec.runs_to_completion() {
            course.push((now.after(STEADY), ReplicaEvent::RanSteadily));
        }
        if let Some(after) = script.exit_after {
            let exit = Exit::Code(script.exit_code);
            course.push((now.after(after), ReplicaEvent::Ended { exit, oom: false }));
        }
        course.sort_by_key(|(at, _)| *at);
        // Nothing follows the first end of a run.
        let end = course.iter().position(|(_, event)| {
            matches!(
                event,
                ReplicaEvent::Ended { .. } | ReplicaEvent::BecameUnhealthy { .. }
            )
        });
        course.truncate(end.map_or(course.len(), |end| end + 1));
        self.due = course.into();
    }
}
