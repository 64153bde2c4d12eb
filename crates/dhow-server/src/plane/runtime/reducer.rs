//! The reducer: the one task that owns the cluster's state. It proposes what it is asked, applies what the log has
//! committed, tells callers what became of it, and has plans made. It never waits for a proposal: committed entries
//! come back on a channel of their own, which is looked at before the inbox.
//!
//! Started by `spawn`. Everybody else sends inputs or reads the published state.

mod heartbeat;
mod in_flight;
mod input;
mod log_event;
mod outbox;
mod planning;
mod propose;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::directory::Touched;
use dhow_core::ids::Term;
use dhow_core::state::State;
use dhow_core::time::ClusterTime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::cluster_timer::ClusterTimer;
use super::error::{RuntimeFailure, WriteError};
use super::event::EventRecorder;
use super::event_log::EventLogSender;
use super::input::ReducerInput;
use super::limits::IN_FLIGHT_MAX;
use super::options::{PlanFn, SnapshotPolicy};
use super::shutdown::ShutdownSender;
use super::view::Publisher;
use crate::clock::{Clock, Sleep};
use crate::plane::log::store::LogPosition;
use crate::plane::log::{Leadership, Log, LogEvent, RecoverError};
use crate::plane::storage::Storage;
use in_flight::InFlight;
use outbox::Outbox;
use planning::{PlanTurn, Planning};
pub(super) use propose::told;
use snapshots::{InstallWork, Installed, SnapshotError, SnapshotWork};

/// Proposals that are kept free for the reducer's own: the parts of a plan and the beginning of a term. Inputs
/// take the rest.
const OWN_PROPOSALS_MAX: usize = 64;

/// What the reducer is made of.
pub(super) struct Parts {
    pub state: State,
    pub applied: LogPosition,
    pub since_snapshot: u64,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    pub planner: Arc<PlanFn>,
    pub plan_debounce_ms: u64,
    pub snapshots: Option<SnapshotPolicy>,
    pub storage: Storage,
    pub publisher: Publisher,
    pub effects: mpsc::Sender<super::applier::Effects>,
    pub event_log: EventLogSender,
    pub cancel: CancellationToken,
    /// Dropped when the reducer ends, which ends the others.
    pub children: Vec<ShutdownSender>,
}

/// What the reducer listens to.
pub(super) struct Channels {
    pub inbox: mpsc::Receiver<ReducerInput>,
    pub log_events: mpsc::Receiver<LogEvent>,
}

/// The task that owns State: what it proposes, applies, answers, plans and publishes.
pub(super) struct Reducer {
    state: State,
    /// The last entry of the log that is in the state.
    applied: LogPosition,
    recorder: EventRecorder,
    /// What the applied entries of this turn touched.
    touched: Touched,
    timer: ClusterTimer,
    leadership: Leadership,
    in_flight: InFlight,
    planning: Planning,
    snapshots: SnapshotWork,
    install: InstallWork,
    outbox: Outbox,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    publisher: Publisher,
    event_log: EventLogSender,
    cancel: CancellationToken,
    /// Why the last set of manifests was not taken, so that it is told once and not at every poll.
    manifests_refused: BTreeMap<Option<Arc<str>>, String>,
    /// Ends when the beginning of the term is to be proposed again: the log did not take it.
    begin_again: Option<Sleep>,
    storage: Storage,
    is_draining: bool,
    /// Whether the inbox may still give something.
    is_inbox_open: bool,
    _children: Vec<ShutdownSender>,
}

/// What the reducer does next.
enum Turn {
    Drain,
    Log(Option<LogEvent>),
    Installed(Box<Result<Installed, RecoverError>>),
    Plan(PlanTurn),
    SnapshotEnded(Result<LogPosition, SnapshotError>),
    Flushed,
    BeginAgain,
    Input(Option<ReducerInput>),
}

impl Reducer {
    pub fn new(parts: Parts) -> Self {
        let timer = ClusterTimer::new(parts.state.time, parts.clock.monotonic_ms());
        Self {
            timer,
            leadership: Leadership {
                term: 0,
                leader: None,
                is_here: false,
            },
            recorder: EventRecorder::default(),
            touched: Touched::default(),
            in_flight: InFlight::default(),
            planning: Planning::new(parts.planner, Arc::clone(&parts.clock), parts.plan_debounce_ms),
            snapshots: SnapshotWork::new(parts.snapshots, parts.since_snapshot),
            install: InstallWork::default(),
            outbox: Outbox::new(parts.effects),
            state: parts.state,
            applied: parts.applied,
            log: parts.log,
            clock: parts.clock,
            publisher: parts.publisher,
            event_log: parts.event_log,
            cancel: parts.cancel,
            manifests_refused: BTreeMap::new(),
            begin_again: None,
            storage: parts.storage,
            is_draining: false,
            is_inbox_open: true,
            _children: parts.children,
        }
    }

    /// Runs until it is cancelled or all senders are gone, and everything that was taken in has its answer; or
    /// until something fails that must not be ignored.
    pub async fn run(mut self, mut channels: Channels) -> Result<(), RuntimeFailure> {
        let mut outcome = Ok(());
        while outcome.is_ok() && !self.is_done() {
            let turn = self.next_turn(&mut channels).await;
            outcome = self.take(turn, &mut channels);
        }
        for waiting in self.in_flight.take_all() {
            waiting.fail(WriteError::Unknown);
        }
        outcome
    }

    fn is_done(&self) -> bool {
        self.is_draining && !self.is_inbox_open && self.in_flight.is_empty() && !self.snapshots.is_running()
    }

    /// The log comes before everything that can make more work, and the inbox last: what is under way is finished
    /// before something new is begun. None of these waits loses anything when another one is first.
    async fn next_turn(&mut self, channels: &mut Channels) -> Turn {
        let may_plan = self.may_plan();
        let takes_input = self.is_inbox_open && self.in_flight.len() < IN_FLIGHT_MAX - OWN_PROPOSALS_MAX;
        tokio::select! {
            biased;
            () = self.cancel.cancelled(), if !self.is_draining => Turn::Drain,
            event = channels.log_events.recv(), if !self.install.is_running() => Turn::Log(event),
            installed = self.install.next() => Turn::Installed(Box::new(installed)),
            turn = self.planning.next(may_plan) => Turn::Plan(turn),
            ended = self.snapshots.next() => Turn::SnapshotEnded(ended),
            () = self.outbox.flush() => Turn::Flushed,
            () = due(&mut self.begin_again), if !self.is_draining => Turn::BeginAgain,
            input = channels.inbox.recv(), if takes_input => Turn::Input(input),
        }
    }

    fn take(&mut self, turn: Turn, channels: &mut Channels) -> Result<(), RuntimeFailure> {
        match turn {
            Turn::Drain => self.drain(channels),
            Turn::Log(Some(event)) => return self.take_log_events(event, channels),
            Turn::Log(None) => return Err(RuntimeFailure::LogEnded),
            Turn::Installed(installed) => return self.take_installed(*installed),
            Turn::Plan(turn) => return self.take_plan_turn(turn),
            Turn::SnapshotEnded(Ok(at)) => tracing::debug!(index = at.index, "a snapshot was made"),
            Turn::SnapshotEnded(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "no snapshot was made; the log keeps what it has");
            }
            Turn::Flushed => {}
            Turn::BeginAgain if self.state.term == self.term() => self.begin_again = None,
            Turn::BeginAgain => return self.begin_term(),
            Turn::Input(Some(input)) => return self.take_input(input),
            Turn::Input(None) => {
                self.is_inbox_open = false;
                self.drain(channels);
            }
        }
        Ok(())
    }

    /// Takes nothing new from now on; what was taken is finished.
    fn drain(&mut self, channels: &mut Channels) {
        self.is_draining = true;
        channels.inbox.close();
    }

    /// The cluster's time now.
    fn now(&self) -> ClusterTime {
        self.timer.now(self.clock.monotonic_ms())
    }

    fn term(&self) -> Term {
        Term(self.leadership.term)
    }

    /// A leader plans once the beginning of its term is applied: from then on no older plan can get in between.
    fn may_plan(&self) -> bool {
        self.leadership.is_here && self.state.term == self.term() && !self.is_draining
    }

    fn take_plan_turn(&mut self, turn: PlanTurn) -> Result<(), RuntimeFailure> {
        match turn {
            PlanTurn::Due => {
                let state = self.publisher.state();
                let canaries = self.publisher.observed().canaries(&state);
                self.planning.start(state, canaries, self.now());
            }
            PlanTurn::Panicked { message } => return Err(RuntimeFailure::Planner { message }),
            PlanTurn::Planned(plan) => {
                self.publisher.report(plan.report);
                if self.may_plan() {
                    self.propose_plan(plan.commands)?;
                    if let Some(wake) = plan.wake {
                        self.planning.wake_at(self.timer.monotonic_at(wake));
                    }
                }
            }
        }
        Ok(())
    }

    fn take_installed(&mut self, installed: Result<Installed, RecoverError>) -> Result<(), RuntimeFailure> {
        let installed = installed.map_err(|cause| RuntimeFailure::Snapshot {
            index: self.applied.index,
            cause,
        })?;
        self.state = installed.recovered.state;
        self.applied = installed.recovered.applied;
        let now_ms = self.clock.monotonic_ms();
        self.timer.committed(self.state.time, now_ms);
        self.event_log.installed(installed.events);
        self.publish(installed.woken, Touched::everything());
        Ok(())
    }
}

/// Ends when the moment has come; never where there is none.
async fn due(sleep: &mut Option<Sleep>) {
    match sleep {
        Some(sleep) => sleep.as_mut().await,
        None => std::future::pending().await,
    }
}
