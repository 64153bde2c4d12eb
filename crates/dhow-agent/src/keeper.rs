//! The one task that knows everything of the node: it makes and ends runners as the assignment says, writes down
//! what they tell, and reports it to the control plane until that has it for good.
//!
//! Runners and the session only send; nothing but the keeper writes the ledger.

mod clearing;
mod confirmation;
mod heartbeat_timer;
mod reporting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::assignment::{Assignment, replicas};
use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::mirror::digest_of;
use dhow_core::replica::ReplicaEvent;
use dhow_wire::door::PresentReplica;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, Returning};
use crate::drivers::Found;
use crate::highest::{HighestFile, Verdict};
use crate::ledger::{Ledger, Record};
use crate::limits::HAPPENINGS_MAX;
use crate::rollouts::Rollouts;
use crate::runner::{Assigned, Beginning, Context, Happening, Runner, Wish};
use crate::session::Orders;
use confirmation::Confirmation;
use heartbeat_timer::HeartbeatTimer;
use reporting::{Poll, Reporting};

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

/// The agent's main task, with the ledger, the runners and the reports that are on their way. An agent runs one.
pub struct Keeper {
    context: Arc<Context>,
    orders: Arc<dyn Orders>,
    /// Lent to a blocking task while it is written.
    ledger: Option<Ledger>,
    /// Likewise.
    highest: Option<HighestFile>,
    runners: BTreeMap<ReplicaName, RunnerHandle>,
    assigned: BTreeMap<ReplicaName, Assigned>,
    reporting: Reporting,
    poll: Poll,
    rollouts: Rollouts,
    told: KeeperStatus,
    confirmation: Confirmation,
    /// What starts once a server has confirmed it.
    waiting: BTreeSet<ReplicaName>,
    /// Whether it has heard its assignment since it began.
    is_assigned: bool,
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
        Self {
            confirmation: Confirmation::new(returning),
            reporting: Reporting::new(Arc::clone(&context.session)),
            poll: Poll::new(Arc::clone(&orders)),
            orders,
            rollouts: Rollouts::new(context.drivers.clone()),
            context,
            ledger: Some(memory.ledger),
            highest: Some(memory.highest),
            runners: BTreeMap::new(),
            assigned: BTreeMap::new(),
            told,
            waiting: BTreeSet::new(),
            is_assigned: false,
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
        self.take_up(found);
        self.context.take_directory().await;
        let kept: BTreeSet<ReplicaName> = self.runners.keys().cloned().collect();
        self.context.balancer.retain(&kept).await;
        let mut beat = HeartbeatTimer::new(self.context.place.node, self.context.session.pace());
        let mut news = Vec::new();
        let outcome = loop {
            let Some(ledger) = self.ledger.as_ref() else {
                break Err(AgentError::LedgerLost);
            };
            let has_nothing = self.is_assigned && self.runners.is_empty();
            let is_settled = has_nothing && ledger.seq() == ledger.durable_seq();
            self.told
                .settled
                .send_if_modified(|settled| std::mem::replace(settled, is_settled) != is_settled);
            self.reporting.go_on(ledger, self.rollouts.known());
            self.poll.go_on(self.reporting.is_known());
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Ok(()),
                count = happenings.recv_many(&mut news, HAPPENINGS_MAX) => {
                    if count == 0 {
                        break Ok(());
                    }
                    if let Err(error) = self.take_happenings(std::mem::take(&mut news)).await {
                        break Err(error);
                    }
                }
                answer = self.reporting.answered() => {
                    let (record, open) = self.reporting.take(answer, ledger);
                    self.rollouts.prepare(open);
                    if let Err(error) = self.note_answer(record).await {
                        break Err(error);
                    }
                }
                update = self.poll.answered() => {
                    if let Some(update) = self.poll.take(update)
                        && let Err(error) = self.take_update(update).await
                    {
                        break Err(error);
                    }
                }
                Some(ask) = asks.recv() => {
                    // Whoever asked may have gone.
                    let _ = ask.send(self.present());
                }
                () = beat.due() => {
                    let digest = self.digest();
                    self.reporting.beat(digest, self.rollouts.known());
                }
            }
        };
        match outcome {
            Ok(()) => self.end_runners(&mut happenings).await,
            Err(_) => self.abort_runners(),
        }
        self.rollouts.end();
        outcome
    }

    /// Writes down what an answer to a report says, and tells again what an account of everything leaves out.
    async fn note_answer(&mut self, record: Option<Record>) -> Result<(), AgentError> {
        if let Some(record) = record {
            self.write(vec![record]).await?;
        }
        if self.reporting.has_told_all() {
            self.tell_passed_again().await?;
        }
        Ok(())
    }

    /// Makes runners for what an earlier daemon left.
    fn take_up(&mut self, found: Vec<Found>) {
        let mut found: BTreeMap<ReplicaName, Found> = found
            .into_iter()
            .map(|found| (found.name.clone(), found))
            .collect();
        let known = self.ledger.iter().flat_map(|ledger| ledger.replicas().clone());
        let known: Vec<_> = known.collect();
        let confirmed = self.ledger.as_ref().and_then(Ledger::confirmed_boot);
        self.confirmation.begin(confirmed, found.values());
        for (name, tracked) in known {
            let assigned = tracked.spec.as_ref().map(|spec| Assigned {
                spec: Arc::clone(spec),
                next: tracked.next.clone(),
            });
            if let Some(assigned) = &assigned {
                self.assigned.insert(name.clone(), assigned.clone());
            }
            let wish = match assigned {
                Some(assigned) if self.confirmation.is_needed_for(&assigned.spec) => {
                    if !tracked.machine.state.is_ended() {
                        self.waiting.insert(name.clone());
                    }
                    Wish::Confirmed(assigned)
                }
                Some(assigned) => Wish::Run(assigned),
                None => Wish::Undecided,
            };
            let found = found.remove(&name).map(|found| (found.driver, found.status));
            self.begin(name, wish, |name, wish| Beginning {
                name,
                wish,
                spec: tracked.spec,
                ports: tracked.ports,
                machine: tracked.machine,
                next: tracked.next,
                passed: tracked.passed,
                found,
            });
        }
        for (name, found) in found {
            tracing::info!(replica = %name, "found on this host without a word in the ledger");
            self.begin(name, Wish::Undecided, |name, wish| Beginning {
                name,
                wish,
                spec: None,
                ports: Vec::new(),
                machine: Default::default(),
                next: None,
                passed: None,
                found: Some((found.driver, found.status)),
            });
        }
        if !self.waiting.is_empty() {
            tracing::warn!(
                replicas = self.waiting.len(),
                "this host was started again: what may run elsewhere by now waits until a server has confirmed it"
            );
        }
        self.publish_names();
    }

    /// A server has said what this node is to run: from now on a restart of the daemon asks nobody.
    async fn confirm(&mut self) -> Result<(), AgentError> {
        self.waiting.clear();
        let Some(boot_id) = self.confirmation.confirm() else {
            return Ok(());
        };
        let mut ledger = self.ledger.take().ok_or(AgentError::LedgerLost)?;
        if ledger.confirmed_boot() == Some(&boot_id) {
            self.ledger = Some(ledger);
            return Ok(());
        }
        let written = tokio::task::spawn_blocking(move || {
            let outcome = ledger.confirm_boot(&boot_id);
            (ledger, outcome)
        });
        let (ledger, outcome) = written.await.map_err(|_| AgentError::LedgerLost)?;
        self.ledger = Some(ledger);
        if let Err(error) = outcome {
            // The next daemon asks once more, which is safe.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "that a server has confirmed this node is not on disk");
        }
        Ok(())
    }

    fn begin(
        &mut self,
        name: ReplicaName,
        wish: Wish,
        beginning: impl FnOnce(ReplicaName, watch::Receiver<Wish>) -> Beginning,
    ) {
        let (sender, receiver) = watch::channel(wish);
        let beginning = beginning(name.clone(), receiver);
        let task = tokio::spawn(Runner::run(Arc::clone(&self.context), beginning));
        self.runners.insert(name, RunnerHandle { wish: sender, task });
    }

    fn begin_new(&mut self, name: ReplicaName, assigned: Assigned) {
        self.context.last_words.forget(&name);
        self.begin(name, Wish::Run(assigned.clone()), |name, wish| Beginning {
            name,
            wish,
            spec: Some(assigned.spec),
            ports: Vec::new(),
            machine: Default::default(),
            next: assigned.next,
            passed: None,
            found: None,
        });
    }

    /// Writes down what happened.
    async fn take_happenings(&mut self, happenings: Vec<Happening>) -> Result<(), AgentError> {
        let mut records = Vec::with_capacity(happenings.len());
        let mut gone = Vec::new();
        let mut seq = self.ledger.as_ref().map_or(0, Ledger::seq);
        for happening in happenings {
            records.push(match happening {
                Happening::Event { name, event, machine } => {
                    seq = seq.saturating_add(1);
                    Record::Event {
                        seq,
                        name,
                        event,
                        machine: Some(machine),
                    }
                }
                Happening::Track {
                    name,
                    spec,
                    ports,
                    next,
                    passed,
                } => Record::Track {
                    name,
                    spec: Some(spec),
                    ports,
                    machine: None,
                    next,
                    passed,
                },
                Happening::Gone { name } => {
                    gone.push(name.clone());
                    Record::Forget { name }
                }
            });
        }
        self.write(records).await?;
        for name in gone {
            self.take_gone(&name).await;
        }
        Ok(())
    }

    /// An account of all replicas does not have what each has passed, and may have gone in place of the word of it.
    async fn tell_passed_again(&mut self) -> Result<(), AgentError> {
        let Some(ledger) = &self.ledger else {
            return Ok(());
        };
        let passed = ledger.replicas().iter().filter_map(|(name, tracked)| {
            let tried = tracked.next.as_ref().map(|next| next.id);
            let settings = tracked.passed.filter(|passed| Some(*passed) == tried)?;
            Some((name.clone(), settings, tracked.machine.clone()))
        });
        let numbered = passed.zip(ledger.seq().saturating_add(1)..);
        let records: Vec<Record> = numbered
            .map(|((name, settings, machine), seq)| Record::Event {
                seq,
                name,
                event: ReplicaEvent::SettingsPassed { settings },
                machine: Some(machine),
            })
            .collect();
        if records.is_empty() {
            return Ok(());
        }
        self.write(records).await
    }

    async fn take_gone(&mut self, name: &ReplicaName) {
        self.runners.remove(name);
        if let Some(assigned) = self.assigned.get(name).cloned() {
            // It was asked for again while it was ending.
            self.begin_new(name.clone(), assigned);
        }
        let key = name.service_key();
        if !self.runners.keys().any(|known| known.service_key() == key) {
            self.context.balancer.close(&key).await;
        }
        self.publish_names();
    }

    /// Disks are slow now and then: the loop's thread does not wait for them.
    async fn write(&mut self, records: Vec<Record>) -> Result<(), AgentError> {
        let mut ledger = self.ledger.take().ok_or(AgentError::LedgerLost)?;
        let written = tokio::task::spawn_blocking(move || {
            let outcome = ledger.append(records);
            (ledger, outcome)
        });
        let (ledger, outcome) = written.await.map_err(|_| AgentError::LedgerLost)?;
        self.ledger = Some(ledger);
        outcome.map_err(AgentError::Ledger)
    }

    /// Acts on an assignment, unless the keeper has acted on a newer one. Before it acts, the order is on disk.
    async fn take_update(&mut self, update: Assignment) -> Result<(), AgentError> {
        let mut file = self.highest.take().ok_or(AgentError::LedgerLost)?;
        let news = match file.highest().judge(&update) {
            Verdict::Act(news) => news,
            Verdict::Older => {
                let (known, term) = (file.highest(), update.term.unwrap_or_default());
                tracing::error!(
                    %term, revision = %update.revision, known_term = known.term, known_revision = known.revision,
                    "an order is older than what this node has acted on, and is not carried out: the server that gave \
                     it missed its own replacement, or was begun from an older copy. What runs goes on"
                );
                self.poll.refused();
                self.highest = Some(file);
                return Ok(());
            }
        };
        if let Some(news) = news {
            let written = tokio::task::spawn_blocking(move || {
                let outcome = file.put(news);
                (file, outcome)
            });
            let (written, outcome) = written.await.map_err(|_| AgentError::LedgerLost)?;
            file = written;
            if let Err(error) = outcome {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "an order waits until it can be noted that it is acted on");
                self.poll.refused();
                self.highest = Some(file);
                return Ok(());
            }
            self.orders.acted_on(file.highest());
        }
        self.highest = Some(file);
        self.poll.taken(update.revision);
        self.is_assigned = true;
        self.take_assignment(update).await;
        self.confirm().await
    }

    async fn take_assignment(&mut self, update: Assignment) {
        for (service, roles) in &update.services {
            let wanted = replicas(service, roles).map(|(name, alike)| {
                let (spec, next) = (Arc::clone(&alike.spec), alike.next.clone());
                (name, Assigned { spec, next })
            });
            self.set(service, wanted.collect());
        }
        if update.whole {
            let others: BTreeSet<ServiceKey> = self
                .runners
                .keys()
                .map(ReplicaName::service_key)
                .filter(|service| !update.services.contains_key(service))
                .collect();
            for service in others {
                self.set(&service, BTreeMap::new());
            }
        }
        self.publish_names();
    }

    /// Makes the runners of one service those that are wanted. One that is to run something else under its name ends
    /// first, and is made anew then: two halves of a divided cluster gave one number to two generations.
    fn set(&mut self, service: &ServiceKey, wanted: BTreeMap<ReplicaName, Assigned>) {
        let goes_on = |name: &ReplicaName| {
            let (known, wanted) = (self.assigned.get(name), wanted.get(name));
            wanted.is_some_and(|wanted| known.is_none_or(|known| !known.is_replaced_by(wanted)))
        };
        for (name, runner) in &self.runners {
            if name.service_key() == *service && !goes_on(name) {
                runner.wish.send_if_modified(|wish| {
                    let news = !matches!(wish, Wish::Stop);
                    *wish = Wish::Stop;
                    news
                });
            }
        }
        self.assigned.retain(|name, _| name.service_key() != *service);
        for (name, assigned) in wanted {
            self.assigned.insert(name.clone(), assigned.clone());
            match self.runners.get(&name) {
                Some(runner) => {
                    runner.wish.send_if_modified(|wish| take_wish(wish, &assigned));
                }
                None => self.begin_new(name, assigned),
            }
        }
    }

    fn publish_names(&self) {
        let names: BTreeSet<ReplicaName> = self.runners.keys().cloned().collect();
        if **self.told.names.borrow() != names {
            self.told.names.send_replace(Arc::new(names));
        }
    }

    /// What is here now.
    fn present(&self) -> Vec<PresentReplica> {
        let known = self.ledger.iter().flat_map(Ledger::replicas);
        let present = known.map(|(name, tracked)| {
            let spec = tracked.spec.as_ref();
            let image = spec.and_then(|spec| spec.image.as_ref());
            PresentReplica {
                name: name.clone(),
                machine: tracked.machine.clone(),
                image: image.map(|image| image.name.clone()),
                waits: self.waiting.contains(name) && !tracked.machine.state.is_ended(),
            }
        });
        present.collect()
    }

    /// What the node runs, for its mirror to be compared with. The mirror no longer has a replica that was to end and
    /// has ended.
    fn digest(&self) -> Option<String> {
        let ledger = self.ledger.as_ref()?;
        if ledger.seq() != ledger.durable_seq() {
            return None;
        }
        let told = ledger
            .replicas()
            .iter()
            .filter(|(name, tracked)| self.assigned.contains_key(name) || !tracked.machine.state.is_ended());
        Some(digest_of(
            told.map(|(name, tracked)| (name.clone(), &tracked.machine)),
        ))
    }
}

/// Whether the wish has become another one. One that is ending is not called back.
fn take_wish(wish: &mut Wish, assigned: &Assigned) -> bool {
    match wish {
        Wish::Stop => false,
        Wish::Run(known) if *known == *assigned => false,
        Wish::Run(_) | Wish::Confirmed(_) | Wish::Undecided => {
            *wish = Wish::Run(assigned.clone());
            true
        }
    }
}
