//! What the keeper decides, apart from how it is done: it takes what has happened and the time, and gives what is to be
//! done, in order. The keeper carries that out with tasks, files and a session; the simulator does with made-up ones, so
//! that the agent's protocol exists once.
//!
//! No task, no file, no clock and no chance: the same inputs at the same times give the same actions. Whoever carries them
//! out does one after the other, and hands in what came of it before anything else.

mod action;
mod confirmation;
mod heartbeat_times;
mod input;
mod poll;
mod prepared_rollouts;
mod reports;
mod retry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::assignment::{Assignment, replicas};
use dhow_core::ids::{NodeId, ReplicaName, ServiceKey};
use dhow_core::mirror::digest_of;
use dhow_core::replica::ReplicaEvent;
use dhow_wire::door::PresentReplica;

use crate::agent::Returning;
use crate::highest::{Highest, Verdict};
use crate::ledger::{Account, Record, Tracked};
use crate::session::{OpenRollout, Pace};
use crate::wish::{Assigned, Happening, Wish};
use confirmation::Confirmation;
use heartbeat_times::HeartbeatTimes;
use poll::Poll;
use prepared_rollouts::PreparedRollouts;
use reports::Reports;

pub use action::{CoreAction, RunnerBeginning};
pub use input::{CoreInput, FoundReplica};

/// What a keeper's core begins with.
pub struct CoreOptions {
    pub node: NodeId,
    pub returning: Returning,
    /// What the node knows from before.
    pub account: Account,
    pub highest: Highest,
    pub pace: Pace,
    /// The least time between two reports of changes.
    pub report_gap_ms: u64,
}

/// The decisions of one agent's keeper, and all that it knows.
pub struct KeeperCore {
    account: Account,
    highest: Highest,
    /// An order that is acted on once its place in history is on disk.
    order: Option<Assignment>,
    /// What is wished of each runner that there is.
    runners: BTreeMap<ReplicaName, Wish>,
    /// The names of the runners, for those who follow them.
    names: Arc<BTreeSet<ReplicaName>>,
    assigned: BTreeMap<ReplicaName, Assigned>,
    reports: Reports,
    poll: Poll,
    heartbeats: HeartbeatTimes,
    rollouts: PreparedRollouts,
    confirmation: Confirmation,
    /// What starts once a server has confirmed it.
    waiting: BTreeSet<ReplicaName>,
    /// Whether it has heard its assignment since it began.
    is_assigned: bool,
    /// Whether nothing is begun any more.
    is_ending: bool,
    actions: Vec<CoreAction>,
}

impl KeeperCore {
    pub fn new(options: CoreOptions, now_ms: u64) -> Self {
        Self {
            account: options.account,
            highest: options.highest,
            order: None,
            runners: BTreeMap::new(),
            names: Arc::default(),
            assigned: BTreeMap::new(),
            reports: Reports::new(options.report_gap_ms),
            poll: Poll::default(),
            heartbeats: HeartbeatTimes::new(options.node, options.pace, now_ms),
            rollouts: PreparedRollouts::default(),
            confirmation: Confirmation::new(options.returning),
            waiting: BTreeSet::new(),
            is_assigned: false,
            is_ending: false,
            actions: Vec::new(),
        }
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The newest order that the node has acted on.
    pub fn highest(&self) -> &Highest {
        &self.highest
    }

    /// The replicas that are here; the same list until one comes or goes.
    pub fn names(&self) -> &Arc<BTreeSet<ReplicaName>> {
        &self.names
    }

    /// Whether nothing is left to do: it knows its assignment, has no replica, and the control plane has for good all that
    /// happened.
    pub fn is_settled(&self) -> bool {
        let has_nothing = self.is_assigned && self.runners.is_empty();
        has_nothing && self.account.seq() == self.account.durable_seq()
    }

    /// When it has to be woken at the latest.
    pub fn wakes_at_ms(&self) -> u64 {
        let heartbeat_ms = self.heartbeats.due_ms();
        let gathered_ms = self.reports.gathers_until_ms();
        gathered_ms.map_or(heartbeat_ms, |gathered_ms| gathered_ms.min(heartbeat_ms))
    }

    /// Goes on with what an earlier daemon left, by the ledger and on the host. The first thing that a core is asked.
    pub fn take_up(&mut self, found: &[FoundReplica], now_ms: u64) -> Vec<CoreAction> {
        let is_of_another_boot = found.iter().any(|found| found.is_of_another_boot);
        self.confirmation
            .begin(self.account.confirmed_boot(), is_of_another_boot);
        for (name, tracked) in self.account.replicas().clone() {
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
            self.begin(name, wish, tracked, false);
        }
        for found in found {
            if !self.runners.contains_key(&found.name) {
                tracing::info!(replica = %found.name, "found on this host without a word in the ledger");
                self.begin(found.name.clone(), Wish::Undecided, Tracked::default(), false);
            }
        }
        if !self.waiting.is_empty() {
            tracing::warn!(
                replicas = self.waiting.len(),
                "this host was started again: what may run elsewhere by now waits until a server has confirmed it"
            );
        }
        self.list_names();
        self.go_on(now_ms);
        std::mem::take(&mut self.actions)
    }

    /// Takes what has happened; gives what is to be done.
    pub fn take(&mut self, input: CoreInput, now_ms: u64) -> Vec<CoreAction> {
        match input {
            CoreInput::Happened(happenings) => self.take_happenings(happenings),
            CoreInput::Reported(answer) => {
                let (record, open) = self.reports.take_report(answer, &self.account);
                self.prepare(open);
                self.append(Vec::from_iter(record));
                if self.reports.has_told_all() {
                    self.tell_passed_again();
                }
            }
            CoreInput::Beaten(answer) => {
                // One that is not answered is followed by the next.
                let answer = answer.unwrap_or_default();
                self.reports.take_beat(&answer, &self.account);
                self.prepare(answer.open);
            }
            CoreInput::Told(told) => {
                if let Some(order) = self.poll.take(told) {
                    self.judge(order);
                }
            }
            CoreInput::HighestPut { is_on_disk } => self.highest_put(is_on_disk),
            CoreInput::BootConfirmed { boot_id } => self.account.confirm_boot(boot_id),
            CoreInput::Prepared(prepared) => self.rollouts.learn(prepared),
            CoreInput::Paced(pace) => self.heartbeats.follow(pace, now_ms),
            CoreInput::Woken => {}
        }
        self.go_on(now_ms);
        std::mem::take(&mut self.actions)
    }

    /// Nothing is begun from now on, also in the place of what goes: gives the runners that are to be let go of, whose
    /// replicas run on. The others only have to remove what is over, and are waited for.
    pub fn end(&mut self) -> Vec<ReplicaName> {
        self.is_ending = true;
        self.assigned.clear();
        let account = &self.account;
        let is_over = |name: &ReplicaName, wish: &Wish| {
            let tracked = account.replicas().get(name);
            let has_ended = tracked.is_some_and(|tracked| tracked.machine.state.is_ended());
            has_ended && matches!(wish, Wish::Stop)
        };
        let running = self.runners.extract_if(.., |name, wish| !is_over(name, wish));
        running.map(|(name, _)| name).collect()
    }

    /// What is here now.
    pub fn present(&self) -> Vec<PresentReplica> {
        let present = self.account.replicas().iter().map(|(name, tracked)| {
            let spec = tracked.spec.as_ref();
            let image = spec.and_then(|spec| spec.image.as_ref());
            PresentReplica {
                name: name.clone(),
                machine: tracked.machine.clone(),
                image: image.map(|image| image.name.clone()),
                volumes: spec.map(|spec| {
                    let volumes = spec.storage.iter().filter_map(dhow_core::spec::Storage::volume);
                    volumes.map(str::to_owned).collect()
                }),
                waits: self.waiting.contains(name) && !tracked.machine.state.is_ended(),
            }
        });
        present.collect()
    }

    /// Begins what can be begun: a report, a heartbeat, the next question what to run.
    fn go_on(&mut self, now_ms: u64) {
        if self.is_ending {
            return;
        }
        if self.heartbeats.is_due(now_ms) {
            let digest = self.digest();
            let beat = self.reports.beat(digest, self.rollouts.known());
            self.actions.extend(beat.map(CoreAction::Beat));
        }
        let report = self.reports.go_on(&self.account, &self.rollouts, now_ms);
        if let Some((pause, report)) = report {
            self.actions.push(CoreAction::Report { pause, report });
        }
        let may_ask = self.reports.is_known() && self.order.is_none();
        if let Some((pause, last)) = self.poll.go_on(may_ask) {
            self.actions.push(CoreAction::Ask { pause, last });
        }
    }

    fn prepare(&mut self, open: Vec<OpenRollout>) {
        let open = self.rollouts.prepare(open);
        self.actions.extend(open.map(CoreAction::Prepare));
    }

    /// Writes down what happened.
    fn take_happenings(&mut self, happenings: Vec<Happening>) {
        let mut gone = Vec::new();
        let mut seq = self.account.seq();
        let records = happenings.into_iter().map(|happening| match happening {
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
        let records = records.collect();
        self.append(records);
        for name in gone {
            self.take_gone(&name);
        }
    }

    /// Has records written, and takes them in.
    fn append(&mut self, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        for record in &records {
            self.account.take(record);
        }
        self.actions.push(CoreAction::Append(records));
    }

    /// An account of all replicas does not have what each has passed, and may have gone in place of the word of it.
    fn tell_passed_again(&mut self) {
        let account = &self.account;
        let passed = account.replicas().iter().filter_map(|(name, tracked)| {
            let tried = tracked.next.as_ref().map(|next| next.id);
            let settings = tracked.passed.filter(|passed| Some(*passed) == tried)?;
            Some((name.clone(), settings, tracked.machine.clone()))
        });
        let numbered = passed.zip(account.seq().saturating_add(1)..);
        let records = numbered.map(|((name, settings, machine), seq)| Record::Event {
            seq,
            name,
            event: ReplicaEvent::SettingsPassed { settings },
            machine: Some(machine),
        });
        let records = records.collect();
        self.append(records);
    }

    fn take_gone(&mut self, name: &ReplicaName) {
        self.runners.remove(name);
        self.actions.push(CoreAction::LetGo { name: name.clone() });
        if let Some(assigned) = self.assigned.get(name).cloned() {
            // It was asked for again while it was ending.
            self.begin_new(name.clone(), assigned);
        }
        let key = name.service_key();
        if !self.runners.keys().any(|known| known.service_key() == key) {
            self.actions.push(CoreAction::CloseService(key));
        }
        self.list_names();
    }

    fn begin(&mut self, name: ReplicaName, wish: Wish, tracked: Tracked, is_new: bool) {
        self.runners.insert(name.clone(), wish.clone());
        self.actions.push(CoreAction::Begin(Box::new(RunnerBeginning {
            name,
            wish,
            tracked,
            is_new,
        })));
    }

    fn begin_new(&mut self, name: ReplicaName, assigned: Assigned) {
        let tracked = Tracked {
            spec: Some(Arc::clone(&assigned.spec)),
            next: assigned.next.clone(),
            ..Tracked::default()
        };
        self.begin(name, Wish::Run(assigned), tracked, true);
    }

    /// Acts on an assignment, unless the keeper has acted on a newer one. Before it acts, the order is on disk.
    fn judge(&mut self, order: Assignment) {
        match self.highest.judge(&order) {
            Verdict::Act(None) => self.act_on(order),
            Verdict::Act(Some(news)) => {
                self.actions.push(CoreAction::PutHighest(news));
                self.order = Some(order);
            }
            Verdict::Older => {
                let (known, term) = (&self.highest, order.term.unwrap_or_default());
                tracing::error!(
                    %term, revision = %order.revision, known_term = known.term, known_revision = known.revision,
                    "an order is older than what this node has acted on, and is not carried out: the server that gave \
                     it missed its own replacement, or was begun from an older copy. What runs goes on"
                );
                self.poll.refused();
            }
        }
    }

    fn highest_put(&mut self, is_on_disk: bool) {
        let Some(order) = self.order.take() else { return };
        match self.highest.judge(&order) {
            Verdict::Act(news) if is_on_disk => {
                self.highest = news.unwrap_or_else(|| self.highest.clone());
                self.act_on(order);
            }
            Verdict::Act(_) | Verdict::Older => self.poll.refused(),
        }
    }

    fn act_on(&mut self, order: Assignment) {
        self.poll.taken(order.revision);
        self.is_assigned = true;
        self.take_assignment(order);
        self.confirm();
    }

    /// A server has said what this node is to run: from now on a restart of the daemon asks nobody.
    fn confirm(&mut self) {
        self.waiting.clear();
        let boot_id = self.confirmation.confirm();
        let news = boot_id.filter(|boot_id| self.account.confirmed_boot() != Some(boot_id));
        let news = news.map(|boot_id| CoreAction::ConfirmBoot { boot_id });
        self.actions.extend(news);
    }

    fn take_assignment(&mut self, order: Assignment) {
        for (service, roles) in &order.services {
            let wanted = replicas(service, roles).map(|(name, alike)| {
                let (spec, next) = (Arc::clone(&alike.spec), alike.next.clone());
                (name, Assigned { spec, next })
            });
            self.set(service, wanted.collect());
        }
        if order.whole {
            let others: BTreeSet<ServiceKey> = self
                .runners
                .keys()
                .map(ReplicaName::service_key)
                .filter(|service| !order.services.contains_key(service))
                .collect();
            for service in others {
                self.set(&service, BTreeMap::new());
            }
        }
        self.list_names();
    }

    /// Makes the runners of one service those that are wanted. One that is to run something else under its name ends
    /// first, and is made anew then: two halves of a divided cluster gave one number to two generations.
    fn set(&mut self, service: &ServiceKey, wanted: BTreeMap<ReplicaName, Assigned>) {
        let assigned = &self.assigned;
        let goes_on = |name: &ReplicaName| {
            let (known, wanted) = (assigned.get(name), wanted.get(name));
            wanted.is_some_and(|wanted| known.is_none_or(|known| !known.is_replaced_by(wanted)))
        };
        for (name, wish) in &mut self.runners {
            if name.service_key() == *service && !goes_on(name) && !matches!(wish, Wish::Stop) {
                *wish = Wish::Stop;
                let (name, wish) = (name.clone(), Wish::Stop);
                self.actions.push(CoreAction::Wish { name, wish });
            }
        }
        self.assigned.retain(|name, _| name.service_key() != *service);
        for (name, assigned) in wanted {
            self.assigned.insert(name.clone(), assigned.clone());
            match self.runners.get_mut(&name) {
                Some(wish) => {
                    if take_wish(wish, &assigned) {
                        let wish = wish.clone();
                        self.actions.push(CoreAction::Wish { name, wish });
                    }
                }
                None => self.begin_new(name, assigned),
            }
        }
    }

    fn list_names(&mut self) {
        if !self.names.iter().eq(self.runners.keys()) {
            self.names = Arc::new(self.runners.keys().cloned().collect());
        }
    }

    /// What the node runs, for its mirror to be compared with. The mirror no longer has a replica that was to end and
    /// has ended.
    fn digest(&self) -> Option<String> {
        if self.account.seq() != self.account.durable_seq() {
            return None;
        }
        let known = self.account.replicas().iter();
        let told = known
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

#[cfg(test)]
mod tests;
