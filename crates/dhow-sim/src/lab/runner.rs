//! The runner of one replica of the lab: the decisions of a real one, over a script of how its workload behaves.

use std::collections::VecDeque;
use std::sync::Arc;

use dhow_agent::ledger::Tracked;
use dhow_agent::limits::STEADY_AFTER;
use dhow_agent::{Happening, LeftBehind, RunnerBeginning, RunnerCore, RunnerTask, Wish};
use dhow_core::ids::{NodeId, ReplicaKey};
use dhow_core::replica::{Exit, ReplicaEvent, ReplicaState};
use dhow_core::spec::{ServiceSpec, TimeSpan};
use dhow_core::time::ClusterTime;

use super::behaviour::{Behaviour, Behaviours};

/// From being told to try settings to knowing whether they pass.
const TRIED_AFTER: TimeSpan = TimeSpan::from_secs(1);

/// A run this long makes earlier failures forgotten.
const STEADY: TimeSpan = TimeSpan::from_secs(STEADY_AFTER.as_secs());

/// The scripted life of one replica: the decisions of a real runner, and what happens next.
pub(crate) struct ScriptedRunner {
    key: ReplicaKey,
    core: RunnerCore,
    behaviour: Behaviour,
    /// What its workload is made from, also where its runner does not know that.
    made_from: Arc<ServiceSpec>,
    /// What happens next, and when.
    due: VecDeque<(ClusterTime, ReplicaEvent)>,
    /// Since when its failures are counted.
    failing_since: Option<ClusterTime>,
    /// When it is known whether it passes the settings that it tries.
    tried_at: Option<ClusterTime>,
    /// What has happened and is not told yet.
    untold: Vec<Happening>,
}

pub(super) fn behaviour_of(behaviours: &Behaviours, node: NodeId, spec: &ServiceSpec) -> Behaviour {
    let image = spec.image.as_ref();
    let mut own = image
        .map(|image| behaviours.of(node, &image.name))
        .unwrap_or_default();
    // It starts once all its steps have ended.
    for (step, number) in spec.init_steps.iter().zip(1..) {
        let script = step.image.as_ref().map(|image| behaviours.of(node, &image.name));
        let script = script.unwrap_or_default();
        own.start = own.start.plus(script.exit_after.unwrap_or_default());
        if script.exit_code != 0 {
            own.failing_step = Some((number, script.exit_code));
            break;
        }
    }
    own
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
        let made_from = tracked.spec.clone().unwrap_or_default();
        let core = RunnerCore::new(name, tracked);
        let mut runner = Self::over(core, (key, behaviour), made_from);
        runner.resume(LeftBehind::Nothing, now);
        runner.take_wish(wish, now);
        runner
    }

    /// What an earlier daemon's runner has left, under one that remembers nothing of it.
    pub(super) fn found_again(self, wish: Wish, now: ClusterTime) -> Self {
        let left = match self.core.machine().pid {
            Some(pid) => LeftBehind::Runs { pid },
            None => LeftBehind::Nothing,
        };
        let core = RunnerCore::new(self.core.name().clone(), Tracked::default());
        let mut runner = Self::over(core, (self.key, self.behaviour), self.made_from);
        runner.resume(left, now);
        runner.take_wish(wish, now);
        runner
    }

    fn over(
        core: RunnerCore,
        (key, behaviour): (ReplicaKey, Behaviour),
        made_from: Arc<ServiceSpec>,
    ) -> Self {
        Self {
            key,
            core,
            behaviour,
            made_from,
            due: VecDeque::new(),
            failing_since: None,
            tried_at: None,
            untold: Vec::new(),
        }
    }

    pub(super) fn key(&self) -> ReplicaKey {
        self.key
    }

    pub(crate) fn runs(&self) -> bool {
        self.core.machine().pid.is_some()
    }

    pub(crate) fn next_due(&self) -> Option<ClusterTime> {
        let next = self.due.front().map(|(at, _)| *at);
        next.into_iter().chain(self.tried_at).min()
    }

    /// Behaves from now on as the script says.
    pub(super) fn behave(&mut self, behaviours: &Behaviours, node: NodeId) {
        self.behaviour = behaviour_of(behaviours, node, &self.made_from);
    }

    fn resume(&mut self, left: LeftBehind, now: ClusterTime) {
        if let Some(event) = self.core.resume(left) {
            self.step(event, now);
        }
    }

    /// Takes what the keeper wishes.
    pub(crate) fn take_wish(&mut self, wish: Wish, now: ClusterTime) {
        let change = self.core.take_wish(wish);
        if change.is_tracked {
            self.untold.extend(self.core.track());
        }
        if let Some(spec) = self.core.spec() {
            self.made_from = Arc::clone(spec);
        }
        if change.has_other_trial {
            self.tried_at = None;
            self.begin_trial(now);
        }
        self.take_up_task(now);
    }

    /// Has happen what the runner is to do now, where nothing is on its way.
    fn take_up_task(&mut self, now: ClusterTime) {
        match self.core.task() {
            RunnerTask::EndForGood => {
                if let Some(event) = self.core.stop_begins() {
                    self.due = VecDeque::from([(now, event)]);
                }
            }
            RunnerTask::Start(_) if self.due.is_empty() => {
                self.due.push_back((now, first_event(&self.behaviour)));
            }
            RunnerTask::StartAfter(wait, _) if self.due.is_empty() => {
                self.due
                    .push_back((now.after(wait), first_event(&self.behaviour)));
            }
            RunnerTask::Start(_)
            | RunnerTask::StartAfter(..)
            | RunnerTask::Watch
            | RunnerTask::FinishStop
            | RunnerTask::Rest => {}
        }
    }

    /// Lets what is due happen; says at the end that it is gone, where it is.
    pub(crate) fn happen(&mut self, now: ClusterTime, told: &mut Vec<Happening>) {
        loop {
            if self.tried_at.is_some_and(|at| at <= now) {
                self.tried_at = None;
                self.end_trial(now);
            } else if let Some((_, event)) = self.due.pop_front_if(|(at, _)| *at <= now) {
                if event == ReplicaEvent::StartBegan {
                    self.untold.extend(self.core.track());
                }
                self.step(event, now);
            } else {
                break;
            }
        }
        told.append(&mut self.untold);
        if self.core.is_to_end() && self.core.machine().state.is_ended() {
            told.push(Happening::Gone {
                name: self.core.name().clone(),
            });
        }
    }

    fn step(&mut self, event: ReplicaEvent, now: ClusterTime) {
        match self.core.happen(event.clone()) {
            Ok(happening) => self.untold.push(happening),
            Err(illegal) => panic!("an illegal event was made for {}: {illegal}", self.core.name()),
        }
        self.follow_up(&event, now);
        self.take_up_task(now);
    }

    fn begin_trial(&mut self, now: ClusterTime) {
        if self.core.tries().is_some() && self.core.machine().state == ReplicaState::Running {
            self.tried_at = Some(now.after(TRIED_AFTER));
        }
    }

    fn end_trial(&mut self, now: ClusterTime) {
        let Some(next) = self.core.tries() else {
            return;
        };
        let settings = next.id;
        if !self.behaviour.passes(next.spec.health.as_ref()) {
            let message = "connection refused".into();
            return self.step(ReplicaEvent::SettingsFailed { settings, message }, now);
        }
        self.untold.extend(self.core.pass(settings));
        let events = self.core.passes(settings);
        if events.contains(&ReplicaEvent::BecameHealthy) {
            self.due
                .retain(|(_, event)| !matches!(event, ReplicaEvent::BecameHealthy));
        }
        for event in events {
            self.step(event, now);
        }
    }

    /// What the event leads to, by the script.
    fn follow_up(&mut self, event: &ReplicaEvent, now: ClusterTime) {
        let script = self.behaviour;
        let fails = self.core.machine().failures > 0;
        self.failing_since = fails.then(|| self.failing_since.unwrap_or(now));
        match event {
            ReplicaEvent::StartBegan => {
                let next = match (script.cannot_start, script.failing_step) {
                    (true, _) => ReplicaEvent::CouldNotStart {
                        message: "no such image".into(),
                    },
                    (false, Some((step, code))) => ReplicaEvent::CouldNotStart {
                        message: format!("its step `{step}` failed: exit code {code}").into(),
                    },
                    (false, None) => ReplicaEvent::Started {
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
                self.due
                    .push_back((now.after(script.stop), self.core.sick_ends(None)));
            }
            ReplicaEvent::StopBegan => {
                self.due.clear();
                if self.core.machine().state == ReplicaState::Stopping {
                    // One that does not end when it is asked is ended when its grace is over.
                    let stop = self.core.spec().map(|spec| spec.stop.clone()).unwrap_or_default();
                    let grace = stop.grace;
                    let (after, signal) = match script.stop <= grace {
                        true => (script.stop, 15),
                        false => (grace, 9),
                    };
                    let exit = Exit::Signal(signal);
                    self.due
                        .push_back((now.after(after), ReplicaEvent::Ended { exit, oom: false }));
                }
            }
            ReplicaEvent::Ended { .. } | ReplicaEvent::CouldNotStart { .. } => self.due.clear(),
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
        if self.core.machine().state != ReplicaState::Running {
            self.tried_at = None;
        }
        if self.core.machine().state.is_ended() {
            self.due.clear();
        }
    }

    /// The course of one run, in order of time.
    fn script_run(&mut self, now: ClusterTime) {
        let script = self.behaviour;
        let mut course: Vec<(ClusterTime, ReplicaEvent)> = Vec::new();
        let deciding = self.core.deciding().unwrap_or_default();
        let passes = script.passes(deciding.health.as_ref());
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
        if self.core.has_failures_to_forget() {
            let at = match self.core.counting_interval() {
                None => now.after(STEADY),
                Some(interval) => now.max(self.failing_since.unwrap_or(now).after(interval)),
            };
            course.push((at, ReplicaEvent::RanSteadily));
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
