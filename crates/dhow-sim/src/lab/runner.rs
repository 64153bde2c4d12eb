//! The runner of one replica of the lab: the real replica machine, moved by a script of how its workload behaves.

use std::collections::VecDeque;
use std::sync::Arc;

use dhow_agent::{Assigned, Happening, RunnerBeginning, Wish};
use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{NodeId, ReplicaKey, ReplicaName, SettingsId};
use dhow_core::replica::{
    Exit, Machine, ReplicaEvent, ReplicaState, RestartRule, backoff_delay, step as step_machine,
};
use dhow_core::spec::{ServiceSpec, TimeSpan};
use dhow_core::time::ClusterTime;

use super::behaviour::{Behaviour, Behaviours};

/// From being told to try settings to knowing whether they pass.
const TRIED_AFTER: TimeSpan = TimeSpan::from_secs(1);

/// A run this long makes earlier failures forgotten.
const STEADY: TimeSpan = TimeSpan::from_secs(60);

/// The scripted life of one replica: what the keeper wishes of it, and what happens next.
pub(crate) struct ScriptedRunner {
    name: ReplicaName,
    key: ReplicaKey,
    wish: Wish,
    spec: Arc<ServiceSpec>,
    machine: Machine,
    behaviour: Behaviour,
    /// What happens next, and when.
    due: VecDeque<(ClusterTime, ReplicaEvent)>,
    /// Settings that it tries, and the last ones that it has passed.
    next: Option<AssignedSettings>,
    passed: Option<SettingsId>,
    /// When it is known whether it passes them.
    tried_at: Option<ClusterTime>,
    /// What it is made from has changed since the ledger has it.
    is_untold: bool,
}

pub(super) fn behaviour_of(behaviours: &Behaviours, node: NodeId, spec: &ServiceSpec) -> Behaviour {
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

impl ScriptedRunner {
    /// A runner that the keeper wants.
    pub(crate) fn begin(
        beginning: RunnerBeginning,
        key: ReplicaKey,
        behaviour: Behaviour,
        now: ClusterTime,
    ) -> Self {
        let RunnerBeginning {
            name, wish, tracked, ..
        } = beginning;
        let mut runner = Self {
            key,
            name,
            wish: Wish::Undecided,
            behaviour,
            spec: tracked.spec.unwrap_or_default(),
            machine: tracked.machine,
            is_untold: false,
            due: VecDeque::new(),
            next: tracked.next,
            passed: tracked.passed,
            tried_at: None,
        };
        runner.take_wish(wish, now);
        runner
    }

    /// What an earlier daemon's runner has left, under one that remembers nothing of it.
    pub(super) fn found_again(self, wish: Wish, now: ClusterTime) -> Self {
        let adopted = self.machine.pid.map(|pid| (now, ReplicaEvent::Adopted { pid }));
        let mut runner = Self {
            wish: Wish::Undecided,
            machine: Machine::default(),
            due: adopted.into_iter().collect(),
            next: None,
            passed: None,
            tried_at: None,
            ..self
        };
        runner.take_wish(wish, now);
        runner
    }

    pub(super) fn key(&self) -> ReplicaKey {
        self.key
    }

    pub(crate) fn runs(&self) -> bool {
        self.machine.pid.is_some()
    }

    pub(crate) fn next_due(&self) -> Option<ClusterTime> {
        let next = self.due.front().map(|(at, _)| *at);
        next.into_iter().chain(self.tried_at).min()
    }

    /// Behaves from now on as the script says.
    pub(super) fn behave(&mut self, behaviours: &Behaviours, node: NodeId) {
        self.behaviour = behaviour_of(behaviours, node, &self.spec);
    }

    /// Takes what the keeper wishes.
    pub(crate) fn take_wish(&mut self, wish: Wish, now: ClusterTime) {
        match &wish {
            Wish::Run(assigned) | Wish::Confirmed(assigned) => self.take_assigned(assigned, now),
            Wish::Stop => self.begin_stop(now),
            Wish::Undecided => {}
        }
        self.wish = wish;
    }

    fn take_assigned(&mut self, assigned: &Assigned, now: ClusterTime) {
        self.is_untold = self.machine.state == ReplicaState::Running;
        self.spec = Arc::clone(&assigned.spec);
        let before = self.next.as_ref().map(|next| next.id);
        let is_news = assigned.next.as_ref().map(|next| next.id) != before;
        self.next = assigned.next.clone();
        if is_news {
            self.tried_at = None;
            self.begin_trial(now);
        }
        if self.machine.state == ReplicaState::Pending && self.due.is_empty() {
            self.due.push_back((now, first_event(&self.behaviour)));
        }
    }

    fn begin_stop(&mut self, now: ClusterTime) {
        let is_over = self.machine.state == ReplicaState::Stopping || self.machine.state.is_ended();
        if !is_over {
            self.due = VecDeque::from([(now, ReplicaEvent::StopBegan)]);
        }
    }

    /// Lets what is due happen; says at the end that it is gone, where it is.
    pub(crate) fn happen(&mut self, node: NodeId, now: ClusterTime, told: &mut Vec<Happening>) {
        if std::mem::take(&mut self.is_untold) {
            told.push(self.track());
        }
        while let Some(event) = self.pop_due(now) {
            let is_told_first = matches!(
                event,
                ReplicaEvent::StartBegan | ReplicaEvent::SettingsPassed { .. }
            );
            if is_told_first {
                told.push(self.track());
            }
            let rule = RestartRule::of(&self.spec);
            if let Err(illegal) = step_machine(&mut self.machine, &event, &rule) {
                panic!("node {node} made an illegal event for {}: {illegal}", self.name);
            }
            self.follow_up(&event, now);
            told.push(Happening::Event {
                name: self.name.clone(),
                event,
                machine: self.machine.clone(),
            });
        }
        if matches!(self.wish, Wish::Stop) && self.machine.state.is_ended() {
            told.push(Happening::Gone {
                name: self.name.clone(),
            });
        }
    }

    fn track(&self) -> Happening {
        Happening::Track {
            name: self.name.clone(),
            spec: Arc::clone(&self.spec),
            ports: Vec::new(),
            next: self.next.clone(),
            passed: self.passed,
        }
    }

    fn pop_due(&mut self, now: ClusterTime) -> Option<ReplicaEvent> {
        if self.tried_at.is_some_and(|at| at <= now) {
            self.tried_at = None;
            return self.outcome_of_trial(now);
        }
        let (at, _) = self.due.front()?;
        if *at > now {
            return None;
        }
        self.due.pop_front().map(|(_, event)| event)
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
    fn follow_up(&mut self, event: &ReplicaEvent, now: ClusterTime) {
        let script = self.behaviour;
        match event {
            ReplicaEvent::StartBegan => {
                let next = match script.cannot_start {
                    true => ReplicaEvent::CouldNotStart {
                        message: "no such image".into(),
                    },
                    false => ReplicaEvent::Started {
                        pid: 100 + self.key.slot.index,
                    },
                };
                self.due.push_back((now.after(script.start), next));
            }
            ReplicaEvent::Started { .. } | ReplicaEvent::Adopted { .. } => {
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
                if self.machine.state == ReplicaState::Backoff {
                    let wait = backoff_delay(&self.spec.restart.backoff, self.machine.failures, &self.name);
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
            | ReplicaEvent::NodeLost
            | ReplicaEvent::SettingsPassed { .. }
            | ReplicaEvent::SettingsFailed { .. } => {}
        }
        if self.machine.state != ReplicaState::Running {
            self.tried_at = None;
        }
        if self.machine.state.is_ended() {
            self.due.clear();
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
