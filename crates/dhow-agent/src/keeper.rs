//! The one task that knows everything of the node: it makes and ends runners as the assignment says, writes down
//! what they tell, and reports it to the control plane until that has it for good.
//!
//! What is to be done is decided in [`KeeperCore`]; the keeper carries it out, one action after the other, with tasks, files and
//! the session. Runners and the session only send; nothing but the keeper writes the ledger.

mod calls;
mod clearing;
pub mod core;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_driver::driver::{ExitKind, ReplicaStatus, UnknownExit};
use dhow_wire::door::PresentReplica;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::core::{CoreAction, CoreInput, CoreOptions, FoundReplica, KeeperCore, RunnerBeginning};
use crate::agent::{AgentError, Returning};
use crate::drivers::Found;
use crate::highest::{Highest, HighestFile};
use crate::ledger::{Account, Ledger, Record};
use crate::limits::HAPPENINGS_MAX;
use crate::runner::{Beginning, Context, Runner};
use crate::session::{Orders, Pace};
use crate::wish::{Happening, Wish};
use calls::Calls;

/// A caller of the agent wants to know which replicas are here.
pub type Ask = oneshot::Sender<Vec<PresentReplica>>;

/// What the keeper listens to.
pub struct Incoming {
    pub happenings: mpsc::Receiver<Happening>,
    pub asks: mpsc::Receiver<Ask>,
}

/// What the node knows from before.
pub struct Memory {
    pub ledger: Ledger,
    pub account: Account,
    pub highest: HighestFile,
}

struct RunnerHandle {
    wish: watch::Sender<Wish>,
    task: JoinHandle<()>,
}

/// What the keeper tells the agent of itself: the replicas that are here, and whether it has nothing left to do.
pub struct KeeperStatus {
    pub names: watch::Sender<Arc<BTreeSet<ReplicaName>>>,
    pub settled: watch::Sender<bool>,
}

/// The agent's main task, with the ledger, the runners and the calls that are under way. An agent runs one.
pub struct Keeper {
    context: Arc<Context>,
    orders: Arc<dyn Orders>,
    core: KeeperCore,
    /// When the core's time began.
    began: Instant,
    pace: watch::Receiver<Pace>,
    /// Lent to a blocking task while it is written.
    ledger: Option<Ledger>,
    /// Likewise.
    highest: Option<HighestFile>,
    runners: BTreeMap<ReplicaName, RunnerHandle>,
    /// What the host has and no runner has taken yet.
    found: BTreeMap<ReplicaName, Found>,
    calls: Calls,
    told: KeeperStatus,
}

impl Keeper {
    pub fn new(
        context: Arc<Context>,
        orders: Arc<dyn Orders>,
        memory: Memory,
        returning: Returning,
        told: KeeperStatus,
    ) -> Self {
        orders.acted_on(memory.highest.highest());
        let mut pace = context.session.pace();
        let known_pace = *pace.borrow_and_update();
        let options = CoreOptions {
            node: context.place.node,
            returning,
            account: memory.account,
            highest: memory.highest.highest().clone(),
            pace: known_pace,
            report_gap_ms: to_ms(context.session.report_gap()),
        };
        Self {
            core: KeeperCore::new(options, 0),
            began: Instant::now(),
            pace,
            calls: Calls::new(
                Arc::clone(&context.session),
                Arc::clone(&orders),
                context.drivers.clone(),
            ),
            orders,
            context,
            ledger: Some(memory.ledger),
            highest: Some(memory.highest),
            runners: BTreeMap::new(),
            found: BTreeMap::new(),
            told,
        }
    }

    /// Goes on with what the ledger and the host have, then serves until it is cancelled. What runs goes on then.
    pub async fn run(
        mut self,
        found: Vec<Found>,
        incoming: Incoming,
        cancel: CancellationToken,
    ) -> Result<(), AgentError> {
        let Incoming {
            mut happenings,
            mut asks,
        } = incoming;
        let outcome = match self.take_up(found).await {
            Ok(()) => self.serve(&mut happenings, &mut asks, cancel).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => self.end_runners(&mut happenings).await,
            Err(_) => self.abort_runners(),
        }
        self.calls.end();
        outcome
    }

    async fn serve(
        &mut self,
        happenings: &mut mpsc::Receiver<Happening>,
        asks: &mut mpsc::Receiver<Ask>,
        cancel: CancellationToken,
    ) -> Result<(), AgentError> {
        let mut news = Vec::new();
        loop {
            let is_settled = self.core.is_settled();
            self.told
                .settled
                .send_if_modified(|settled| std::mem::replace(settled, is_settled) != is_settled);
            let wakes_at = self.began + Duration::from_millis(self.core.wakes_at_ms());
            let input = tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(()),
                count = happenings.recv_many(&mut news, HAPPENINGS_MAX) => {
                    if count == 0 {
                        return Ok(());
                    }
                    CoreInput::Happened(std::mem::take(&mut news))
                }
                answer = self.calls.answered() => answer,
                Some(ask) = asks.recv() => {
                    // Whoever asked may have gone.
                    let _ = ask.send(self.core.present());
                    continue;
                }
                pace = changed(&mut self.pace) => CoreInput::Paced(pace),
                () = sleep_until(wakes_at) => CoreInput::Woken,
            };
            self.take(input).await?;
        }
    }

    /// Makes runners for what an earlier daemon left, and opens for others what these serve.
    async fn take_up(&mut self, found: Vec<Found>) -> Result<(), AgentError> {
        let named = found.into_iter().map(|found| (found.name.clone(), found));
        self.found = named.collect();
        let found = self.found.values().map(|found| FoundReplica {
            name: found.name.clone(),
            is_of_another_boot: is_of_another_boot(&found.status),
        });
        let found: Vec<FoundReplica> = found.collect();
        let actions = self.core.take_up(&found, self.now_ms());
        self.carry_out(actions).await?;
        self.context.take_directory().await;
        self.context.balancer.retain(self.core.names()).await;
        Ok(())
    }

    /// Tells the core what has happened, and carries out what it makes of it.
    async fn take(&mut self, input: CoreInput) -> Result<(), AgentError> {
        let actions = self.core.take(input, self.now_ms());
        self.carry_out(actions).await
    }

    async fn carry_out(&mut self, actions: Vec<CoreAction>) -> Result<(), AgentError> {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            if let Some(input) = self.perform(action).await? {
                actions.extend(self.core.take(input, self.now_ms()));
            }
        }
        if !Arc::ptr_eq(&self.told.names.borrow(), self.core.names()) {
            self.told.names.send_replace(Arc::clone(self.core.names()));
        }
        Ok(())
    }

    /// Does one thing; gives what came of it, where the core waits for that.
    async fn perform(&mut self, action: CoreAction) -> Result<Option<CoreInput>, AgentError> {
        match action {
            CoreAction::Append(records) => self.write(records).await?,
            CoreAction::PutHighest(highest) => return self.put_highest(highest).await.map(Some),
            CoreAction::ConfirmBoot { boot_id } => return self.confirm_boot(boot_id).await,
            CoreAction::Begin(beginning) => self.begin(*beginning),
            CoreAction::Wish { name, wish } => {
                if let Some(runner) = self.runners.get(&name) {
                    runner.wish.send_replace(wish);
                }
            }
            CoreAction::LetGo { name } => drop(self.runners.remove(&name)),
            CoreAction::CloseService(service) => self.context.balancer.close(&service).await,
            CoreAction::Report { pause, report } => self.calls.report(pause, report),
            CoreAction::Beat(beat) => self.calls.beat(beat),
            CoreAction::Ask { pause, last } => self.calls.ask(pause, last),
            CoreAction::Prepare(open) => self.calls.prepare(open),
        }
        Ok(None)
    }

    fn begin(&mut self, beginning: RunnerBeginning) {
        let RunnerBeginning {
            name,
            wish,
            tracked,
            is_new,
        } = beginning;
        if is_new {
            self.context.last_words.forget(&name);
        }
        let (sender, receiver) = watch::channel(wish);
        let found = self.found.remove(&name);
        let beginning = Beginning {
            name: name.clone(),
            wish: receiver,
            tracked,
            found: found.map(|found| (found.driver, found.status)),
        };
        let task = tokio::spawn(Runner::run(Arc::clone(&self.context), beginning));
        self.runners.insert(name, RunnerHandle { wish: sender, task });
    }

    /// Disks are slow now and then: the loop's thread does not wait for them.
    async fn write(&mut self, records: Vec<Record>) -> Result<(), AgentError> {
        let outcome = self.with_ledger(move |ledger| ledger.append(&records)).await?;
        outcome.map_err(AgentError::Ledger)?;
        let ledger = self.ledger.as_ref().ok_or(AgentError::LedgerLost)?;
        if ledger.is_mostly_history(self.core.account()) {
            let shortest = self.core.account().records();
            // A disk without room for a second file keeps the first one, which has everything.
            let _ = self.with_ledger(move |ledger| ledger.replace(&shortest)).await?;
        }
        Ok(())
    }

    async fn with_ledger<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Ledger) -> T + Send + 'static,
    ) -> Result<T, AgentError> {
        let mut ledger = self.ledger.take().ok_or(AgentError::LedgerLost)?;
        let done = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut ledger);
            (ledger, outcome)
        });
        let (ledger, outcome) = done.await.map_err(|_| AgentError::LedgerLost)?;
        self.ledger = Some(ledger);
        Ok(outcome)
    }

    async fn put_highest(&mut self, highest: Highest) -> Result<CoreInput, AgentError> {
        let mut file = self.highest.take().ok_or(AgentError::LedgerLost)?;
        let written = tokio::task::spawn_blocking(move || {
            let outcome = file.put(highest);
            (file, outcome)
        });
        let (file, outcome) = written.await.map_err(|_| AgentError::LedgerLost)?;
        match &outcome {
            Ok(()) => self.orders.acted_on(file.highest()),
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::error!(error, "an order waits until it can be noted that it is acted on");
            }
        }
        self.highest = Some(file);
        let is_on_disk = outcome.is_ok();
        Ok(CoreInput::HighestPut { is_on_disk })
    }

    async fn confirm_boot(&mut self, boot_id: String) -> Result<Option<CoreInput>, AgentError> {
        let mut confirmed = self.core.account().clone();
        confirmed.confirm_boot(boot_id.clone());
        let written = self
            .with_ledger(move |ledger| ledger.replace(&confirmed.records()))
            .await?;
        match written {
            Ok(()) => Ok(Some(CoreInput::BootConfirmed { boot_id })),
            Err(error) => {
                // The next daemon asks once more, which is safe.
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "that a server has confirmed this node is not on disk");
                Ok(None)
            }
        }
    }

    fn now_ms(&self) -> u64 {
        to_ms(self.began.elapsed())
    }
}

fn to_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

async fn changed(pace: &mut watch::Receiver<Pace>) -> Pace {
    match pace.changed().await {
        Ok(()) => *pace.borrow_and_update(),
        // Nobody will ever say anything else.
        Err(_) => std::future::pending().await,
    }
}

fn is_of_another_boot(status: &ReplicaStatus) -> bool {
    match status {
        ReplicaStatus::Ended(exit) => exit.kind == ExitKind::Unknown(UnknownExit::HostRestarted),
        ReplicaStatus::Starting | ReplicaStatus::Running(_) => false,
    }
}
