//! The life of one replica on this node: a task that starts it, watches it, starts it again and ends it. The keeper
//! makes one for each replica and tells it only what is wished; what happens it tells the keeper, which writes it down.
//! What is to be done is decided in [`RunnerCore`]; the runner carries it out with a driver and the balancer.
//!
//! It must never act on a replica that another runner has, and never end without having told what is left.

pub mod core;
mod files;
mod start;
mod steps;
mod stop;
mod trial;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_core::replica::{Exit, ReplicaEvent, ReplicaState};
use dhow_core::spec::{Policy, Storage, TimeSpan};
use dhow_driver::driver::{self, Driver, ExitKind, ReplicaStatus, UnknownExit, error_chain};
use dhow_driver::volume::Volumes;
use tokio::sync::{Semaphore, mpsc, watch as channel};
use tokio::time::Instant;

use self::core::{AssignedChange, LeftBehind, RunnerCore, RunnerTask};
use crate::balance::{Balancer, NodePlace};
use crate::drivers::Drivers;
use crate::files::Files;
use crate::last_words::LastWords;
use crate::ledger::Tracked;
use crate::limits::MESSAGE_MAX_CHARS;
use crate::ports::Ports;
use crate::pulls::Pulls;
use crate::session::{KnownDirectory, Session};
use crate::wish::{Happening, Wish};

/// What all runners of a node share.
pub struct Context {
    pub place: NodePlace,
    /// What servers tell of services.
    pub directory: channel::Receiver<Option<Arc<KnownDirectory>>>,
    pub drivers: Drivers,
    pub balancer: Arc<dyn Balancer>,
    pub session: Arc<dyn Session>,
    pub ports: Ports,
    pub pulls: Pulls,
    pub last_words: LastWords,
    pub happenings: mpsc::Sender<Happening>,
    /// Bounds the starts and stops under way.
    pub work: Semaphore,
    pub volumes_dir: PathBuf,
    pub files: Files,
    pub policy: Arc<Policy>,
}

impl Context {
    /// Has the balancer know what servers have told last.
    pub async fn take_directory(&self) {
        let told = self.directory.borrow().clone();
        self.balancer.told(self.place, told.as_ref()).await;
    }

    /// Keeps the balancer up to date; ends with the session.
    pub async fn follow_directory(&self) {
        let mut told = self.directory.clone();
        loop {
            told.borrow_and_update();
            self.take_directory().await;
            if told.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// The task of one replica: what it decides, and the driver that carries it out.
pub struct Runner {
    context: Arc<Context>,
    wish: channel::Receiver<Wish>,
    core: RunnerCore,
    /// The one that has it, or that will.
    driver: Arc<dyn Driver>,
    /// Since when failures are counted. A daemon that restarts begins to count time anew, and keeps their number.
    failing_since: Option<Instant>,
}

/// What a runner begins with.
pub struct Beginning {
    pub name: ReplicaName,
    pub wish: channel::Receiver<Wish>,
    /// What is known of the replica from before.
    pub tracked: Tracked,
    /// The driver that has it already, where one does, and what it says.
    pub found: Option<(Arc<dyn Driver>, ReplicaStatus)>,
}

impl Runner {
    /// Runs until the replica is gone, or the task is aborted: then what runs goes on without it.
    pub async fn run(context: Arc<Context>, beginning: Beginning) {
        let Beginning {
            name,
            wish,
            tracked,
            found,
        } = beginning;
        context.ports.restore(&tracked.ports);
        let driver = match (&found, &tracked.spec) {
            (Some((driver, _)), _) => Arc::clone(driver),
            (None, Some(spec)) => Arc::clone(context.drivers.of(spec)),
            (None, None) => Arc::clone(&context.drivers.process),
        };
        let mut runner = Self {
            context,
            wish,
            core: RunnerCore::new(name, tracked),
            driver,
            failing_since: None,
        };
        runner.note_failures();
        runner.resume(found.map(|(_, status)| status)).await;
        runner.live().await;
    }

    async fn live(&mut self) {
        loop {
            self.take_wish().await;
            match self.core.task() {
                RunnerTask::EndForGood => return self.end_for_good().await,
                RunnerTask::Watch => self.watch_run().await,
                RunnerTask::FinishStop => self.finish_stop().await,
                RunnerTask::Start(spec) => self.start_once(&spec).await,
                RunnerTask::StartAfter(delay, spec) => {
                    if self.is_waited_out(delay).await {
                        self.start_once(&spec).await;
                    }
                }
                RunnerTask::Rest => self.wish_changed().await,
            }
        }
    }

    /// Takes what is wished now, and does what a change of it asks for.
    async fn take_wish(&mut self) -> AssignedChange {
        let wish = self.wish.borrow_and_update().clone();
        let change = self.core.take_wish(wish);
        if change.is_tracked {
            self.track().await;
        }
        if change.has_other_endpoints && self.core.machine().state == ReplicaState::Running {
            self.open_endpoints().await;
            if self.core.machine().healthy {
                self.admit().await;
            }
        }
        // Only now: what counts from here on is listened on without a gap.
        if change.gives_up_trial {
            self.unclaim().await;
        }
        change
    }

    fn name(&self) -> &ReplicaName {
        self.core.name()
    }

    /// Waits until the wish is another one. A keeper that is gone wishes nothing any more.
    async fn wish_changed(&mut self) {
        if self.wish.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it was waited to the end.
    async fn is_waited_out(&mut self, delay: TimeSpan) -> bool {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(delay.as_millis())) => true,
            () = self.wish_changed() => false,
        }
    }

    /// Makes the machine agree with what the host has, after a daemon before this one.
    async fn resume(&mut self, found: Option<ReplicaStatus>) {
        let found = match found {
            Some(ReplicaStatus::Starting) => settled(&*self.driver, self.name()).await,
            other => other,
        };
        let left = match found {
            Some(ReplicaStatus::Running(running)) => LeftBehind::Runs { pid: running.pid },
            Some(ReplicaStatus::Ended(exit)) if never_ran(&exit) => LeftBehind::Nothing,
            Some(ReplicaStatus::Ended(exit)) => {
                let (exit, oom) = known_exit(&exit);
                LeftBehind::Ended { exit, oom }
            }
            // Between the driver's records.
            Some(ReplicaStatus::Starting) | None => LeftBehind::Nothing,
        };
        let event = self.core.resume(left);
        self.happen_all(event).await;
    }

    /// Has it written down what the replica is made from and goes by.
    async fn track(&self) {
        if let Some(happening) = self.core.track() {
            self.tell(happening).await;
        }
    }

    async fn happen_all(&mut self, events: impl IntoIterator<Item = ReplicaEvent>) {
        for event in events {
            self.happen(event).await;
        }
    }

    /// Moves the machine, and tells the keeper.
    async fn happen(&mut self, event: ReplicaEvent) {
        if matches!(event, ReplicaEvent::Ended { .. }) {
            self.let_volumes_go().await;
        }
        match self.core.happen(event) {
            Ok(happening) => {
                self.note_failures();
                self.tell(happening).await;
            }
            // A bug: nothing is told that cannot have happened.
            Err(illegal) => {
                tracing::error!(replica = %self.name(), %illegal, "a replica's event was dropped");
            }
        }
    }

    fn note_failures(&mut self) {
        self.failing_since = match self.core.machine().failures {
            0 => None,
            _ => Some(self.failing_since.unwrap_or_else(Instant::now)),
        };
    }

    /// Its volumes say since when nobody uses them.
    async fn let_volumes_go(&self) {
        let Some(spec) = self.core.spec().filter(|spec| spec.has_named_storage()).cloned() else {
            return;
        };
        let volumes = Volumes::new(self.context.volumes_dir.clone());
        let deployment = self.name().deployment.to_string();
        let noted = tokio::task::spawn_blocking(move || {
            let names: Vec<&str> = spec.storage.iter().filter_map(Storage::volume).collect();
            volumes.used_until_now(&deployment, &names)
        });
        if let Ok(Err(error)) = noted.await {
            tracing::debug!(replica = %self.name(), error = %error_chain(&error), "the end is not noted of its volumes");
        }
    }

    async fn tell(&self, happening: Happening) {
        // The keeper is gone only when the daemon ends.
        let _ = self.context.happenings.send(happening).await;
    }
}

/// What a replica does once no start of it is under way any more; none where there is nothing of it.
async fn settled(driver: &dyn Driver, name: &ReplicaName) -> Option<ReplicaStatus> {
    const PAUSE: Duration = Duration::from_millis(20);
    loop {
        match driver.inspect(name).await {
            Ok(ReplicaStatus::Starting) => tokio::time::sleep(PAUSE).await,
            Ok(status) => return Some(status),
            Err(_) => return None,
        }
    }
}

/// A start that came to nothing, and left a record.
fn never_ran(exit: &driver::Exit) -> bool {
    exit.kind == ExitKind::Unknown(UnknownExit::StartInterrupted)
}

/// An end as the machine knows it, and whether the kernel brought it about for want of memory.
fn known_exit(exit: &driver::Exit) -> (Exit, bool) {
    let kind = match exit.kind {
        ExitKind::Code(code) => Exit::Code(code),
        ExitKind::Signal(signal) => Exit::Signal(signal),
        ExitKind::Unknown(_) => Exit::Unknown,
    };
    (kind, exit.oom)
}

fn ended(exit: &driver::Exit) -> ReplicaEvent {
    let (exit, oom) = known_exit(exit);
    ReplicaEvent::Ended { exit, oom }
}

/// A message for an event: one line, bounded.
fn message(text: &str) -> Arc<str> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut chars = line.chars();
    let mut short: String = chars.by_ref().take(MESSAGE_MAX_CHARS).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short.into()
}
