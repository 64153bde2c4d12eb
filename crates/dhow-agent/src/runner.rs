//! The life of one replica on this node: a task that starts it, watches it, starts it again and ends it, as the
//! replica machine and its service's spec say. The keeper makes one for each replica and tells it only what is
//! wished; what happens it tells the keeper, which writes it down.
//!
//! It must never act on a replica that another runner has, and never end without having told what is left.

mod files;
mod start;
mod stop;
mod trial;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{Exit, Machine, ReplicaEvent, ReplicaState, RestartRule, backoff_delay, step};
use dhow_core::spec::{Policy, ServiceSpec};
use dhow_driver::driver::{self, Driver, ExitKind, PortBinding, ReplicaStatus, UnknownExit};
use tokio::sync::{Semaphore, mpsc, watch as channel};

use crate::balance::{Balancer, NodePlace};
use crate::drivers::Drivers;
use crate::files::Files;
use crate::last_words::LastWords;
use crate::limits::MESSAGE_MAX_CHARS;
use crate::ports::Ports;
use crate::pulls::Pulls;
use crate::session::{KnownDirectory, Session};
use crate::wish::{Assigned, Happening, Wish};

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

/// The task of one replica: its machine, its spec and the driver that runs it.
pub struct Runner {
    context: Arc<Context>,
    name: ReplicaName,
    wish: channel::Receiver<Wish>,
    /// What counts.
    spec: Option<Arc<ServiceSpec>>,
    /// What it tries beside, and the last settings that it has passed.
    next: Option<AssignedSettings>,
    passed: Option<SettingsId>,
    ports: Vec<PortBinding>,
    machine: Machine,
    /// The one that has it, or that will.
    driver: Arc<dyn Driver>,
}

/// What a runner begins with.
pub struct Beginning {
    pub name: ReplicaName,
    pub wish: channel::Receiver<Wish>,
    pub spec: Option<Arc<ServiceSpec>>,
    pub ports: Vec<PortBinding>,
    pub machine: Machine,
    pub next: Option<AssignedSettings>,
    pub passed: Option<SettingsId>,
    /// The driver that has it already, where one does, and what it says.
    pub found: Option<(Arc<dyn Driver>, ReplicaStatus)>,
}

impl Runner {
    /// Runs until the replica is gone, or the task is aborted: then what runs goes on without it.
    pub async fn run(context: Arc<Context>, beginning: Beginning) {
        let Beginning {
            name,
            wish,
            spec,
            ports,
            machine,
            next,
            passed,
            found,
        } = beginning;
        context.ports.restore(&ports);
        let driver = match (&found, &spec) {
            (Some((driver, _)), _) => Arc::clone(driver),
            (None, Some(spec)) => Arc::clone(context.drivers.of(spec)),
            (None, None) => Arc::clone(&context.drivers.process),
        };
        let mut runner = Self {
            context,
            name,
            wish,
            spec,
            next,
            passed,
            ports,
            machine,
            driver,
        };
        runner.resume(found.map(|(_, status)| status)).await;
        runner.live().await;
    }

    async fn live(&mut self) {
        loop {
            let wish = self.wish.borrow_and_update().clone();
            match wish {
                Wish::Stop => return self.end_for_good().await,
                Wish::Run(assigned) => self.assign(assigned).await,
                Wish::Confirmed(assigned) => {
                    self.assign(assigned).await;
                    if !matches!(self.machine.state, ReplicaState::Running | ReplicaState::Stopping) {
                        self.wish_changed().await;
                        continue;
                    }
                }
                Wish::Undecided => {}
            }
            match self.machine.state {
                ReplicaState::Running => self.watch_run().await,
                ReplicaState::Stopping => self.finish_stop().await,
                ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => {
                    self.start_once().await;
                }
                ReplicaState::Backoff => {
                    if self.wait_backoff().await {
                        self.start_once().await;
                    }
                }
                ReplicaState::Exited | ReplicaState::Failed | ReplicaState::Lost => self.wish_changed().await,
            }
        }
    }

    /// Takes over what it is to run. Ports of settings that it is to try no more are given up.
    async fn assign(&mut self, assigned: Assigned) {
        let tried = self.next.take().map(|next| next.id);
        self.spec = Some(assigned.spec);
        self.next = assigned.next;
        if tried.is_some() && tried != self.next.as_ref().map(|next| next.id) {
            self.unclaim().await;
        }
    }

    /// Waits until the wish is another one. A keeper that is gone wishes nothing any more.
    async fn wish_changed(&mut self) {
        if self.wish.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it was waited to the end.
    async fn wait_backoff(&mut self) -> bool {
        let Some(spec) = self.spec.clone() else {
            self.wish_changed().await;
            return false;
        };
        let delay = backoff_delay(&spec.restart.backoff, self.machine.failures, &self.name);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(delay.as_millis())) => true,
            () = self.wish_changed() => false,
        }
    }

    /// Makes the machine agree with what the host has, after a daemon before this one.
    async fn resume(&mut self, found: Option<ReplicaStatus>) {
        let found = match found {
            Some(ReplicaStatus::Starting) => settled(&*self.driver, &self.name).await,
            other => other,
        };
        let state = self.machine.state;
        let has_begun = matches!(
            state,
            ReplicaState::Starting | ReplicaState::Running | ReplicaState::Stopping
        );
        match found {
            Some(ReplicaStatus::Running(running)) => {
                let known = state == ReplicaState::Running && self.machine.pid == Some(running.pid);
                if !known && !state.is_ended() {
                    self.happen(ReplicaEvent::Adopted { pid: running.pid }).await;
                }
            }
            Some(ReplicaStatus::Ended(exit)) => {
                let never_ran = exit.kind == ExitKind::Unknown(UnknownExit::StartInterrupted);
                if has_begun && !(never_ran && state == ReplicaState::Starting) {
                    self.happen(ended(&exit)).await;
                }
            }
            // Between the driver's records: what was about to start is started again.
            Some(ReplicaStatus::Starting) | None => {
                if matches!(state, ReplicaState::Running | ReplicaState::Stopping) {
                    let exit = Exit::Unknown;
                    self.happen(ReplicaEvent::Ended { exit, oom: false }).await;
                }
            }
        }
    }

    /// The spec whose check decides and whose ports are served: with settings that it has passed, else what counts.
    fn deciding(&self) -> Option<Arc<ServiceSpec>> {
        match &self.next {
            Some(next) if Some(next.id) == self.passed => Some(Arc::clone(&next.spec)),
            Some(_) | None => self.spec.clone(),
        }
    }

    /// The spec whose files it sees: of settings that it tries as well as of those that it has passed.
    fn showing(&self) -> Option<Arc<ServiceSpec>> {
        let next = self.next.as_ref().map(|next| Arc::clone(&next.spec));
        next.or_else(|| self.spec.clone())
    }

    /// Has it written down what the replica is made from and goes by.
    async fn track(&self, spec: &Arc<ServiceSpec>) {
        self.tell(Happening::Track {
            name: self.name.clone(),
            spec: Arc::clone(spec),
            ports: self.ports.clone(),
            next: self.next.clone(),
            passed: self.passed,
        })
        .await;
    }

    /// Moves the machine, and tells the keeper.
    async fn happen(&mut self, event: ReplicaEvent) {
        let rule = self
            .spec
            .as_deref()
            .map_or_else(RestartRule::default, RestartRule::of);
        if let Err(illegal) = step(&mut self.machine, &event, &rule) {
            // A bug: nothing is told that cannot have happened.
            tracing::error!(replica = %self.name, %illegal, "a replica's event was dropped");
            return;
        }
        self.tell(Happening::Event {
            name: self.name.clone(),
            event,
            machine: self.machine.clone(),
        })
        .await;
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

/// An end as the machine knows it.
fn ended(exit: &driver::Exit) -> ReplicaEvent {
    let kind = match exit.kind {
        ExitKind::Code(code) => Exit::Code(code),
        ExitKind::Signal(signal) => Exit::Signal(signal),
        ExitKind::Unknown(_) => Exit::Unknown,
    };
    ReplicaEvent::Ended {
        exit: kind,
        oom: exit.oom,
    }
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
