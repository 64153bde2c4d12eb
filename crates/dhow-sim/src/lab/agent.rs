//! An agent of the lab: the decisions of a real one's keeper, over made-up workloads and a link that can be cut.
//!
//! What the keeper's core wants done happens at once: its disk never fails, and a call waits for as long as the link is cut.

use std::collections::{BTreeMap, VecDeque};

use dhow_agent::ledger::Account;
use dhow_agent::{
    CoreAction, CoreInput, CoreOptions, FoundReplica, Happening, Heartbeat, HeartbeatAnswer, Highest,
    KeeperCore, Pace, Report, ReportAnswer, Returning, RunnerBeginning,
};
use dhow_core::assignment::assignment_since;
use dhow_core::ids::{NodeId, ReplicaKey, ReplicaName, Revision};
use dhow_core::mirror;
use dhow_core::state::State;
use dhow_core::time::ClusterTime;

use super::behaviour::Behaviours;
use super::runner::{ScriptedRunner, behaviour_of};

/// How often an agent is heard at the least: the longest that servers grant, so that little happens in a lab at rest.
const PACE: Pace = Pace {
    ttl_secs: 600,
    session: 1,
    urgent: 0,
    follows_load: false,
};

/// Something that the agent wants, from this time on.
struct Timed<T> {
    at: ClusterTime,
    what: T,
}

/// A simulated node of the lab.
pub struct Agent {
    id: NodeId,
    linked: bool,
    powered: bool,
    incarnation: u64,
    highest: Highest,
    /// None before its daemon has started.
    core: Option<KeeperCore>,
    runners: BTreeMap<ReplicaName, ScriptedRunner>,
    /// What an earlier daemon has left on the host.
    found: BTreeMap<ReplicaName, ScriptedRunner>,
    report: Option<Timed<Report>>,
    ask: Option<Timed<Option<Revision>>>,
    beat: Option<Heartbeat>,
    /// The control plane had given it up: the next thing that it hears is that all it has is asked for.
    was_given_up: bool,
}

/// What agents see of the cluster at one moment.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub state: &'a State,
    pub behaviours: &'a Behaviours,
    pub now: ClusterTime,
}

impl Agent {
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            linked: true,
            powered: true,
            incarnation: 1,
            highest: Highest::default(),
            core: None,
            runners: BTreeMap::new(),
            found: BTreeMap::new(),
            report: None,
            ask: None,
            beat: None,
            was_given_up: false,
        }
    }

    pub(super) fn cut(&mut self) {
        self.linked = false;
    }

    pub(super) fn power_off(&mut self) {
        self.linked = false;
        self.powered = false;
        self.runners.clear();
        self.highest = Highest::default();
        self.end_daemon();
        self.found.clear();
    }

    pub(super) fn link(&mut self) {
        self.linked = true;
        if !self.powered {
            self.powered = true;
            self.incarnation += 1;
        }
        // What a returning node has is compared with what is believed of it.
        self.was_given_up = true;
    }

    /// Reached again, with its ledger as it was.
    pub(super) fn resume(&mut self) {
        self.linked = true;
    }

    /// Its daemon starts again without its ledger. Its workloads go on; what it knew of them is found again, not
    /// remembered.
    pub(super) fn lose_ledger(&mut self) {
        self.incarnation += 1;
        self.end_daemon();
    }

    fn end_daemon(&mut self) {
        if let Some(core) = self.core.take() {
            self.highest = core.highest().clone();
        }
        self.found.extend(std::mem::take(&mut self.runners));
        (self.report, self.ask, self.beat) = (None, None, None);
    }

    /// What runs here at the moment.
    pub fn running(&self) -> impl Iterator<Item = ReplicaKey> + '_ {
        let all = self.runners.values().chain(self.found.values());
        all.filter(|runner| runner.runs()).map(ScriptedRunner::key)
    }

    /// When something happens here next; a call whose time has come waits for the link or for news.
    pub(super) fn next_due(&self, now: ClusterTime) -> Option<ClusterTime> {
        let core = self.core.as_ref()?;
        let runners = self.runners.values().filter_map(ScriptedRunner::next_due);
        let calls = [
            self.report.as_ref().map(|report| report.at),
            self.ask.as_ref().map(|ask| ask.at),
        ];
        let calls = calls.into_iter().flatten().filter(|at| *at > now);
        let wakes = std::iter::once(ClusterTime(core.wakes_at_ms()));
        runners.chain(calls).chain(wakes).min()
    }

    /// Starts its daemon and lets what is due happen, its assignment first. Whether anything did.
    pub(super) fn act(&mut self, sight: Sight<'_>) -> bool {
        if !self.powered {
            return false;
        }
        let mut acted = self.start_daemon(sight);
        if self
            .core
            .as_ref()
            .is_some_and(|core| core.wakes_at_ms() <= sight.now.0)
        {
            self.tell(CoreInput::Woken, sight);
        }
        acted |= self.hear(sight);
        // An image may have been mended or broken since it was last started.
        for runner in self.runners.values_mut() {
            runner.behave(sight.behaviours, self.id);
        }
        let mut runners: Vec<&mut ScriptedRunner> = self.runners.values_mut().collect();
        runners.sort_by_key(|runner| runner.key());
        let mut happenings = Vec::new();
        for runner in runners {
            runner.happen(sight.now, &mut happenings);
        }
        for happening in &happenings {
            if let Happening::Gone { name } = happening {
                self.runners.remove(name);
            }
        }
        if !happenings.is_empty() {
            acted = true;
            self.tell(CoreInput::Happened(happenings), sight);
        }
        acted
    }

    /// Hears what it was told while its link was cut, a heartbeat's answer, and what it is to run.
    fn hear(&mut self, sight: Sight<'_>) -> bool {
        if !self.linked {
            return false;
        }
        if std::mem::take(&mut self.was_given_up) {
            let input = match self.report.take() {
                Some(_) => CoreInput::Reported(Ok(ReportAnswer::InventoryWanted)),
                None => {
                    self.beat = None;
                    CoreInput::Beaten(Ok(HeartbeatAnswer {
                        inventory_wanted: true,
                        ..HeartbeatAnswer::default()
                    }))
                }
            };
            self.tell(input, sight);
        }
        if self.is_report_due(sight.now) {
            // The agent tells what it has before it takes what it should have.
            return false;
        }
        if let Some(beat) = self.beat.take() {
            let answer = self.answer_to(&beat, sight.state);
            self.tell(CoreInput::Beaten(Ok(answer)), sight);
        }
        let Some(ask) = self.ask.as_ref().filter(|ask| ask.at <= sight.now) else {
            return false;
        };
        let Some(told) = assignment_since(sight.state, self.id, ask.what) else {
            return false;
        };
        self.ask = None;
        self.tell(CoreInput::Told(Ok(told)), sight);
        true
    }

    /// What a heartbeat is answered with by a leader that has no report of the node on its way.
    fn answer_to(&self, beat: &Heartbeat, state: &State) -> HeartbeatAnswer {
        let node = state.node(self.id);
        let differs = beat.digest != mirror::digest(state, self.id);
        HeartbeatAnswer {
            inventory_wanted: node.is_some_and(|node| !node.is_ready()),
            replay_from: node.filter(|_| differs).map(|node| node.session.seq),
            open: Vec::new(),
        }
    }

    fn start_daemon(&mut self, sight: Sight<'_>) -> bool {
        if self.core.is_some() {
            return false;
        }
        let found = self.found.keys().map(|name| FoundReplica {
            name: name.clone(),
            is_of_another_boot: false,
        });
        let found: Vec<FoundReplica> = found.collect();
        let options = CoreOptions {
            node: self.id,
            returning: Returning::Alone,
            account: Account::default().of_life(self.incarnation),
            highest: self.highest.clone(),
            pace: PACE,
            report_gap_ms: 0,
        };
        let core = self.core.insert(KeeperCore::new(options, sight.now.0));
        let actions = core.take_up(&found, sight.now.0);
        self.carry_out(actions, sight);
        true
    }

    fn tell(&mut self, input: CoreInput, sight: Sight<'_>) {
        if let Some(core) = &mut self.core {
            let actions = core.take(input, sight.now.0);
            self.carry_out(actions, sight);
        }
    }

    fn carry_out(&mut self, actions: Vec<CoreAction>, sight: Sight<'_>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let input = match self.perform(action, sight) {
                Some(input) => input,
                None => continue,
            };
            if let Some(core) = &mut self.core {
                actions.extend(core.take(input, sight.now.0));
            }
        }
    }

    fn perform(&mut self, action: CoreAction, sight: Sight<'_>) -> Option<CoreInput> {
        let after = |pause: std::time::Duration| {
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            ClusterTime(sight.now.0.saturating_add(pause_ms))
        };
        match action {
            CoreAction::PutHighest(_) => return Some(CoreInput::HighestPut { is_on_disk: true }),
            CoreAction::ConfirmBoot { boot_id } => return Some(CoreInput::BootConfirmed { boot_id }),
            CoreAction::Prepare(open) => {
                let ids = open.into_iter().map(|rollout| rollout.id);
                return Some(CoreInput::Prepared(ids.collect()));
            }
            CoreAction::Begin(beginning) => {
                let name = beginning.name.clone();
                let runner = match self.found.remove(&name) {
                    Some(left) => Some(left.found_again(beginning.wish, sight.now)),
                    None => self.begin(*beginning, sight),
                };
                self.runners.extend(runner.map(|runner| (name, runner)));
            }
            CoreAction::Wish { name, wish } => {
                if let Some(runner) = self.runners.get_mut(&name) {
                    runner.take_wish(wish, sight.now);
                }
            }
            CoreAction::Report { pause, report } => {
                let (at, what) = (after(pause), report);
                self.report = Some(Timed { at, what });
            }
            CoreAction::Ask { pause, last } => {
                let (at, what) = (after(pause), last);
                self.ask = Some(Timed { at, what });
            }
            CoreAction::Beat(beat) => self.beat = Some(beat),
            // Runners that have gone are not here any more, and nothing is served or kept on a disk.
            CoreAction::Append(_) | CoreAction::LetGo { .. } | CoreAction::CloseService(_) => {}
        }
        None
    }

    /// None of a replica that the cluster has forgotten meanwhile.
    fn begin(&self, beginning: RunnerBeginning, sight: Sight<'_>) -> Option<ScriptedRunner> {
        let key = sight.state.replica_key(&beginning.name)?;
        let spec = beginning.tracked.spec.clone().unwrap_or_default();
        let behaviour = behaviour_of(sight.behaviours, self.id, &spec);
        Some(ScriptedRunner::begin(beginning, key, behaviour, sight.now))
    }

    fn is_report_due(&self, now: ClusterTime) -> bool {
        self.linked && self.powered && self.report.as_ref().is_some_and(|report| report.at <= now)
    }

    /// The report that it hands in now.
    pub(super) fn next_report(&self, now: ClusterTime) -> Option<&Report> {
        let report = self.report.as_ref().filter(|_| self.is_report_due(now))?;
        Some(&report.what)
    }

    /// Its report was answered; none where nobody knows the node, which hears no more until it is reached again.
    pub(super) fn answered(&mut self, answer: Option<ReportAnswer>, sight: Sight<'_>) {
        match answer {
            Some(answer) => {
                self.report = None;
                self.tell(CoreInput::Reported(Ok(answer)), sight);
            }
            None => self.linked = false,
        }
    }
}
