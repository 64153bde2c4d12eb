//! What a runner decides of its replica: what it does next, what a change of the wish asks for, which events an
//! attempt to start, an end or a trial amounts to, and what follows from what an earlier daemon left.
//!
//! It has no task, clock or driver. The runner carries out what it says, with all of these; the simulator's runner does it
//! by a script.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{
    Exit, Illegal, Machine, ReplicaEvent, ReplicaState, RestartRule, backoff_delay, step,
};
use dhow_core::spec::{ServiceSpec, TimeSpan};
use dhow_driver::driver::PortBinding;

use crate::ledger::Tracked;
use crate::wish::{Assigned, Happening, Wish};

/// What a runner does until something happens or another thing is wished.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerTask {
    /// Nothing, until another thing is wished.
    Rest,
    Start(Arc<ServiceSpec>),
    /// Start it once this long has passed.
    StartAfter(TimeSpan, Arc<ServiceSpec>),
    /// Watch its run.
    Watch,
    /// End what runs of it.
    FinishStop,
    /// End it, remove it, and say that it is gone.
    EndForGood,
}

/// What a change of what a replica is to run asks of its runner, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssignedChange {
    /// The ledger has to have it: it concerns a replica that runs.
    pub is_tracked: bool,
    /// Its endpoints, or those of the settings that it has passed, are others.
    pub has_other_endpoints: bool,
    /// It tries other settings than before, or none.
    pub has_other_trial: bool,
    /// The settings that it has tried are not asked for any more: what they listen on is given up.
    pub gives_up_trial: bool,
    /// The configs and secrets that it is to see as files are others, or mounted otherwise.
    pub has_other_files: bool,
}

/// What an earlier daemon has left of a replica on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    Runs {
        pid: u32,
    },
    Ended {
        exit: Exit,
        oom: bool,
    },
    /// Nothing, or a start that came to nothing.
    Nothing,
}

/// The decisions of one runner, with all that they rest on. Each runner has one.
#[derive(Clone, Debug)]
pub struct RunnerCore {
    name: ReplicaName,
    wish: Wish,
    replica: Tracked,
}

impl RunnerCore {
    pub fn new(name: ReplicaName, tracked: Tracked) -> Self {
        Self {
            name,
            wish: Wish::Undecided,
            replica: tracked,
        }
    }

    pub fn name(&self) -> &ReplicaName {
        &self.name
    }

    pub fn machine(&self) -> &Machine {
        &self.replica.machine
    }

    /// What counts.
    pub fn spec(&self) -> Option<&Arc<ServiceSpec>> {
        self.replica.spec.as_ref()
    }

    pub fn ports(&self) -> &[PortBinding] {
        &self.replica.ports
    }

    pub fn take_ports(&mut self, ports: Vec<PortBinding>) {
        self.replica.ports = ports;
    }

    /// The spec whose check decides and whose ports are served: with settings that it has passed, else what counts.
    pub fn deciding(&self) -> Option<Arc<ServiceSpec>> {
        match self.passed() {
            Some(next) => Some(Arc::clone(&next.spec)),
            None => self.replica.spec.clone(),
        }
    }

    /// The spec whose files it sees: of settings that it tries as well as of those that it has passed.
    pub fn showing(&self) -> Option<&Arc<ServiceSpec>> {
        let next = self.replica.next.as_ref().map(|next| &next.spec);
        next.or(self.replica.spec.as_ref())
    }

    /// Settings that it is to try.
    pub fn tries(&self) -> Option<&AssignedSettings> {
        let next = self.replica.next.as_ref();
        next.filter(|next| Some(next.id) != self.replica.passed)
    }

    /// Settings that it has passed and that do not count for all yet.
    pub fn passed(&self) -> Option<&AssignedSettings> {
        let next = self.replica.next.as_ref();
        next.filter(|next| Some(next.id) == self.replica.passed)
    }

    /// Takes what is wished; says what that asks for.
    pub fn take_wish(&mut self, wish: Wish) -> AssignedChange {
        let change = match &wish {
            Wish::Run(assigned) | Wish::Confirmed(assigned) => self.take_assigned(assigned),
            Wish::Undecided | Wish::Stop => AssignedChange::default(),
        };
        self.wish = wish;
        change
    }

    fn take_assigned(&mut self, assigned: &Assigned) -> AssignedChange {
        let replica = &self.replica;
        if replica.spec.as_ref() == Some(&assigned.spec) && replica.next == assigned.next {
            return AssignedChange::default();
        }
        let before = (self.replica.spec.clone(), self.deciding());
        let shown = self.showing().cloned();
        let tried = self.replica.next.as_ref().map(|next| next.id);
        self.replica.spec = Some(Arc::clone(&assigned.spec));
        self.replica.next = assigned.next.clone();
        let tries = self.replica.next.as_ref().map(|next| next.id);
        let differs = |old: &Option<Arc<ServiceSpec>>, new: &Option<Arc<ServiceSpec>>| match (old, new) {
            (Some(old), Some(new)) => old.endpoints != new.endpoints,
            (None, _) | (_, None) => true,
        };
        let shows_other = match (&shown, self.showing()) {
            (Some(old), Some(new)) => old.configs != new.configs || old.secrets != new.secrets,
            (None, _) | (_, None) => true,
        };
        AssignedChange {
            is_tracked: self.replica.machine.state == ReplicaState::Running,
            has_other_endpoints: differs(&before.0, &self.replica.spec)
                || differs(&before.1, &self.deciding()),
            has_other_trial: tried != tries,
            gives_up_trial: tried.is_some() && tried != tries,
            has_other_files: shows_other,
        }
    }

    pub fn is_to_end(&self) -> bool {
        matches!(self.wish, Wish::Stop)
    }

    /// What is to be done now.
    pub fn task(&self) -> RunnerTask {
        let (state, spec) = (self.replica.machine.state, &self.replica.spec);
        match (&self.wish, state) {
            (Wish::Stop, _) => RunnerTask::EndForGood,
            (_, ReplicaState::Running) => RunnerTask::Watch,
            (_, ReplicaState::Stopping) => RunnerTask::FinishStop,
            // It may run elsewhere by now.
            (Wish::Confirmed(_), _) => RunnerTask::Rest,
            (_, ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting) => match spec {
                Some(spec) => RunnerTask::Start(Arc::clone(spec)),
                None => RunnerTask::Rest,
            },
            (_, ReplicaState::Backoff) => match spec {
                Some(spec) => RunnerTask::StartAfter(self.backoff(spec), Arc::clone(spec)),
                None => RunnerTask::Rest,
            },
            (_, ReplicaState::Exited | ReplicaState::Failed | ReplicaState::Lost) => RunnerTask::Rest,
        }
    }

    fn backoff(&self, spec: &ServiceSpec) -> TimeSpan {
        backoff_delay(&spec.restart.backoff, self.replica.machine.failures, &self.name)
    }

    /// What makes the machine agree with what the host has, after a daemon before this one.
    pub fn resume(&self, left: LeftBehind) -> Option<ReplicaEvent> {
        let machine = &self.replica.machine;
        let state = machine.state;
        let is_before_run =
            self.is_before_start() || matches!(state, ReplicaState::Pulling | ReplicaState::Starting);
        if is_before_run && self.has_steps() {
            // What is there may be one of its steps: they run from the first one again.
            return None;
        }
        let ran = matches!(state, ReplicaState::Running | ReplicaState::Stopping);
        match left {
            LeftBehind::Runs { pid } => {
                let is_known = state == ReplicaState::Running && machine.pid == Some(pid);
                (!is_known && !state.is_ended()).then_some(ReplicaEvent::Adopted { pid })
            }
            LeftBehind::Ended { exit, oom } => {
                let has_begun = ran || state == ReplicaState::Starting;
                has_begun.then_some(ReplicaEvent::Ended { exit, oom })
            }
            // What was about to start is started again.
            LeftBehind::Nothing => ran.then_some(ReplicaEvent::Ended {
                exit: Exit::Unknown,
                oom: false,
            }),
        }
    }

    /// Whether something runs before its program.
    pub fn has_steps(&self) -> bool {
        let spec = self.replica.spec.as_ref();
        spec.is_some_and(|spec| spec.has_init_steps())
    }

    /// What it is made from is being fetched.
    pub fn pull_begins(&self) -> Option<ReplicaEvent> {
        self.is_before_start().then_some(ReplicaEvent::PullBegan)
    }

    /// Its start begins. A daemon before this one may have said so already.
    pub fn start_begins(&self) -> Option<ReplicaEvent> {
        (self.replica.machine.state != ReplicaState::Starting).then_some(ReplicaEvent::StartBegan)
    }

    /// What it is made from could not be fetched: the failure of a pull, which does not count against the node.
    pub fn could_not_fetch(&self, message: Arc<str>) -> Vec<ReplicaEvent> {
        let begun = self.pull_begins();
        let failed = ReplicaEvent::CouldNotStart { message };
        begun.into_iter().chain([failed]).collect()
    }

    /// It could not be started.
    pub fn could_not_start(&self, message: Arc<str>) -> Vec<ReplicaEvent> {
        let waited = self.replica.machine.state == ReplicaState::Backoff;
        let begun = waited.then_some(ReplicaEvent::StartBegan);
        let failed = ReplicaEvent::CouldNotStart { message };
        begun.into_iter().chain([failed]).collect()
    }

    fn is_before_start(&self) -> bool {
        matches!(
            self.replica.machine.state,
            ReplicaState::Pending | ReplicaState::Backoff
        )
    }

    /// Whether earlier failures are forgotten once it has run for long. However long a job's attempt takes, one that fails
    /// in the end is one of its attempts.
    pub fn has_failures_to_forget(&self) -> bool {
        let is_job = self.deciding().is_some_and(|spec| spec.runs_to_completion());
        self.replica.machine.failures > 0 && !is_job
    }

    /// The time within which failures are counted, where its spec names one.
    pub fn counting_interval(&self) -> Option<TimeSpan> {
        self.deciding().and_then(|spec| spec.restart.interval)
    }

    /// It bears these settings: from now on they decide. What the ledger has to have first.
    pub fn pass(&mut self, settings: SettingsId) -> Option<Happening> {
        self.replica.passed = Some(settings);
        self.track()
    }

    /// What is said once its settings have passed and its ports are theirs.
    pub fn passes(&self, settings: SettingsId) -> Vec<ReplicaEvent> {
        let is_well = self.replica.machine.healthy;
        let well = (!is_well).then_some(ReplicaEvent::BecameHealthy);
        let passed = ReplicaEvent::SettingsPassed { settings };
        std::iter::once(passed).chain(well).collect()
    }

    /// What is said of files that a running replica cannot be shown: its settings do not pass, where it tries some.
    pub fn files_failed(&self, message: Arc<str>) -> Option<ReplicaEvent> {
        let settings = self.tries()?.id;
        Some(ReplicaEvent::SettingsFailed { settings, message })
    }

    /// The ports of settings that it has passed are gone: it tries them again.
    pub fn try_again(&mut self) {
        self.replica.passed = None;
    }

    /// How the run of one ends that was ended because it was unhealthy: it did not end by itself, so that the run has failed
    /// however politely it went.
    pub fn sick_ends(&self, ended: Option<(Exit, bool)>) -> ReplicaEvent {
        const TERM: i32 = 15;
        match ended {
            Some((exit, oom)) if exit != Exit::Code(0) => ReplicaEvent::Ended { exit, oom },
            Some(_) | None => ReplicaEvent::Ended {
                exit: Exit::Signal(TERM),
                oom: false,
            },
        }
    }

    /// Whether it has to be asked to end, and what is said of that.
    pub fn stop_begins(&self) -> Option<ReplicaEvent> {
        let state = self.replica.machine.state;
        (!state.is_ended() && state != ReplicaState::Stopping).then_some(ReplicaEvent::StopBegan)
    }

    /// What the ledger has to have of what it is made from and goes by.
    pub fn track(&self) -> Option<Happening> {
        let spec = self.replica.spec.as_ref()?;
        Some(Happening::Track {
            name: self.name.clone(),
            spec: Arc::clone(spec),
            ports: self.replica.ports.clone(),
            next: self.replica.next.clone(),
            passed: self.replica.passed,
        })
    }

    /// Moves the machine; gives what the keeper is told. Refused where it cannot have happened: then nothing has changed.
    pub fn happen(&mut self, event: ReplicaEvent) -> Result<Happening, Illegal> {
        let spec = self.replica.spec.as_deref();
        let rule = spec.map_or_else(RestartRule::default, RestartRule::of);
        step(&mut self.replica.machine, &event, &rule)?;
        Ok(Happening::Event {
            name: self.name.clone(),
            event,
            machine: self.replica.machine.clone(),
        })
    }
}
