//! A cluster in memory: one state, one planner, an agent per node, and a clock that jumps to whatever
//! happens next. Everything that is applied is also kept as a log, so that it can be replayed.

mod agent;
mod behaviour;
pub(crate) mod runner;
mod trace;

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_agent::Report;
use dhow_core::command::{
    AgentCommand, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Outcome, Refused, RequestId,
};
use dhow_core::ids::{DeploymentName, NodeId, Term};
use dhow_core::mirror::{ReportAnswer, known_answer, report_command};
use dhow_core::plan::{CanaryBook, Plan, PlanCache, plan_next};
use dhow_core::scaler::{LoadBook, ScalerWatch};
use dhow_core::spec::{DeploymentSpec, TimeSpan};
use dhow_core::state::{Drain, NodeInfo, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_server::plane::runtime::EventRecorder;

pub use agent::Agent;
use agent::Sight;
pub use behaviour::{Behaviour, Behaviours};
use trace::{Asides, is_first_word};
pub use trace::{Happened, TraceLine};

/// Rounds in which plans and agents may answer each other at one moment before the lab calls it a livelock.
const ROUNDS_MAX: u32 = 200;
/// How often the leader's scaler looks.
const SCALER_EVERY: TimeSpan = TimeSpan::from_secs(1);

/// A simulated cluster. Scenarios and laws drive it.
pub struct Lab {
    pub state: State,
    pub log: Vec<Entry>,
    pub now: ClusterTime,
    pub term: Term,
    pub leader: NodeId,
    pub agents: BTreeMap<NodeId, Agent>,
    pub behaviours: Behaviours,
    /// Whose request the next command is, where a retry must not do it twice.
    pub request: Option<RequestId>,
    /// What happened, in words, since it was last taken.
    pub trace: Vec<TraceLine>,
    /// The last plan, for its report.
    pub plan: Plan,
    /// Every plan is also made without a cache, and must be the same.
    pub compare_with_cold: bool,
    /// What balancers have counted of canaries.
    pub figures: CanaryBook,
    /// What nodes tell of the load of adaptive services: those that are here are looked at once a second.
    pub loads: LoadBook,
    scaler: ScalerWatch,
    /// When it was last looked at them.
    scaled: ClusterTime,
    cache: PlanCache,
    recorder: EventRecorder,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    pub fn new() -> Self {
        let mut lab = Self {
            state: State::default(),
            log: Vec::new(),
            now: ClusterTime(0),
            term: Term(1),
            leader: NodeId(1),
            agents: BTreeMap::new(),
            behaviours: Behaviours::default(),
            request: None,
            trace: Vec::new(),
            plan: Plan::default(),
            compare_with_cold: false,
            figures: CanaryBook::new(),
            loads: LoadBook::new(),
            scaler: ScalerWatch::default(),
            scaled: ClusterTime(0),
            cache: PlanCache::default(),
            recorder: EventRecorder::default(),
        };
        let boot = ClusterCommand::Bootstrap {
            cluster_id: "lab".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        let _ = lab.apply(Command::Cluster(boot));
        let _ = lab.apply(Command::Cluster(ClusterCommand::TermBegan {
            leader: lab.leader,
            wall_unix_ms: None,
        }));
        lab
    }

    /// Writes a command into the log and applies it.
    pub fn apply(&mut self, command: Command) -> Result<Outcome, Refused> {
        self.apply_in_term(command, self.term)
    }

    /// As a leader of some term would: a deposed one's plans are refused.
    pub fn apply_in_term(&mut self, command: Command, term: Term) -> Result<Outcome, Refused> {
        let entry = Entry {
            time: self.now,
            term,
            request: self.request.take(),
            command,
        };
        let is_first_word = is_first_word(&self.state, &entry);
        let mut asides = Asides::of(&entry);
        // No wall clock: what is told has the cluster's time alone.
        let outcome = self.recorder.apply(&mut self.state, &entry, None, &mut asides);
        let events = self.recorder.records.drain(..).map(Happened::Event);
        let told = events.chain(asides.lines.into_iter().map(Happened::Aside));
        let at = entry.time;
        self.trace
            .extend(told.filter(|_| !is_first_word).map(|what| TraceLine { at, what }));
        // Nobody waits for an assignment here: agents look at the state.
        self.recorder.woken.clear();
        self.log.push(entry);
        outcome
    }

    pub fn add_node(&mut self, id: NodeId, info: NodeInfo) -> Result<Outcome, Refused> {
        let outcome = self.apply(Command::Node(NodeCommand::Register {
            node: id,
            info: Arc::new(info),
        }))?;
        self.agents.entry(id).or_insert_with(|| Agent::new(id));
        Ok(outcome)
    }

    pub fn deploy(&mut self, spec: DeploymentSpec) -> Result<Outcome, Refused> {
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "user".into(),
            wall_unix_secs: 0,
            force: false,
        }))
    }

    pub fn remove(&mut self, deployment: DeploymentName) -> Result<Outcome, Refused> {
        self.apply(Command::Deployment(DeploymentCommand::Remove { deployment }))
    }

    pub fn drain(&mut self, node: NodeId, drain: Drain) -> Result<Outcome, Refused> {
        self.apply(Command::Node(NodeCommand::SetDrain { node, drain }))
    }

    /// The link to a node is cut: it goes on by itself, and the leader gives it up.
    pub fn cut(&mut self, node: NodeId) -> Result<Outcome, Refused> {
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.cut();
        }
        self.apply(Command::Node(NodeCommand::Lost { node }))
    }

    /// The machine is gone, with everything on it.
    pub fn power_off(&mut self, node: NodeId) -> Result<Outcome, Refused> {
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.power_off();
        }
        self.apply(Command::Node(NodeCommand::Lost { node }))
    }

    /// The node is reached again.
    pub fn back(&mut self, node: NodeId) -> Result<Outcome, Refused> {
        let outcome = self.apply(Command::Node(NodeCommand::Back { node }))?;
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.link();
        }
        Ok(outcome)
    }

    /// The node is reached again and goes on where its reports were cut off: what it has to say comes late.
    pub fn back_with_ledger(&mut self, node: NodeId) -> Result<Outcome, Refused> {
        let outcome = self.apply(Command::Node(NodeCommand::Back { node }))?;
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.resume();
        }
        Ok(outcome)
    }

    /// The agent's own memory is gone, what it runs is not: it begins a new incarnation.
    pub fn lose_ledger(&mut self, node: NodeId) {
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.lose_ledger();
        }
    }

    /// Another server leads: a higher term, and a planner that knows nothing.
    pub fn change_leader(&mut self, leader: NodeId) {
        self.term = self.term.next();
        self.leader = leader;
        self.cache = PlanCache::default();
        self.scaler = ScalerWatch::default();
        let _ = self.apply(Command::Cluster(ClusterCommand::TermBegan {
            leader,
            wall_unix_ms: None,
        }));
    }

    /// Lets time pass: everything due happens, in order.
    pub fn run(&mut self, span: TimeSpan) {
        let end = self.now.after(span);
        loop {
            self.scale();
            self.settle();
            let next = self
                .agents
                .values()
                .filter_map(|agent| agent.next_due(self.now))
                .chain(self.plan.wake)
                .chain(self.scaler_due())
                .min();
            match next {
                Some(at) if at <= end => {
                    assert!(
                        at > self.now,
                        "something is due at {at} and was not done by {}",
                        self.now
                    );
                    self.now = at;
                }
                Some(_) | None => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// When the scaler looks next; never where there is nothing to look at.
    fn scaler_due(&self) -> Option<ClusterTime> {
        let next = self.scaled.after(SCALER_EVERY);
        (!self.loads.is_empty()).then(|| next.max(ClusterTime(self.now.0.saturating_add(1))))
    }

    /// Has the scaler look at the loads, once a second.
    fn scale(&mut self) {
        if self.loads.is_empty() || self.now.since(self.scaled) < SCALER_EVERY {
            return;
        }
        self.scaled = self.now;
        for command in self.scaler.look(&self.state, &self.loads, self.now) {
            let _ = self.apply(Command::Plan(command));
        }
    }

    /// Plans and lets agents act until neither has anything to do at this moment.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let acted = self.act_agents();
            let planned = self.plan_once();
            if !acted && !planned {
                return;
            }
        }
        panic!(
            "plans and agents never come to rest at {}; last plan: {:?}",
            self.now, self.plan.commands
        );
    }

    /// One plan, applied. Whether it had anything to do.
    pub fn plan_once(&mut self) -> bool {
        self.cache.hear(self.figures.clone());
        self.plan = plan_next(&self.state, &mut self.cache, self.now);
        if self.compare_with_cold {
            let mut nothing = PlanCache::default();
            nothing.hear(self.figures.clone());
            let cold = plan_next(&self.state, &mut nothing, self.now);
            assert_eq!(
                self.plan.commands, cold.commands,
                "a warm cache plans what a cold one does"
            );
            // A plan that acts has another after it, so it has not the last word.
            if cold.commands.is_empty() {
                assert_eq!(
                    self.plan.report, cold.report,
                    "a warm cache reports what a cold one does"
                );
            }
            // Looking once too often costs nothing; looking too late would.
            let in_time = cold
                .wake
                .is_none_or(|cold| self.plan.wake.is_some_and(|warm| warm <= cold));
            assert!(
                in_time,
                "a warm cache wakes no later than a cold one: {:?}",
                (self.plan.wake, cold.wake)
            );
        }
        let commands = self.plan.commands.clone();
        for command in &commands {
            let _ = self.apply(Command::Plan(command.clone()));
        }
        !commands.is_empty()
    }

    fn act_agents(&mut self) -> bool {
        let mut acted = false;
        let ids: Vec<NodeId> = self.agents.keys().copied().collect();
        for id in ids {
            let Some(mut agent) = self.agents.remove(&id) else {
                continue;
            };
            acted |= agent.act(self.sight());
            while let Some(report) = agent.next_report(self.now).cloned() {
                acted = true;
                let answer = self.take_report(id, report);
                agent.answered(answer, self.sight());
            }
            self.agents.insert(id, agent);
        }
        acted
    }

    fn sight(&self) -> Sight<'_> {
        Sight {
            state: &self.state,
            behaviours: &self.behaviours,
            now: self.now,
        }
    }

    /// Answers a report as a leader does; none where it does not know the node.
    fn take_report(&mut self, node: NodeId, report: Report) -> Option<ReportAnswer> {
        let Report {
            incarnation, body, ..
        } = report;
        self.state.node(node)?;
        if let Some(answer) = known_answer(&self.state, node, incarnation, &body) {
            return Some(answer);
        }
        let command = report_command(&self.state, node, incarnation, body);
        match self.apply(Command::Agent(command)) {
            Ok(Outcome::Reported {
                durable_seq,
                diverged,
            }) => Some(ReportAnswer::taken(durable_seq, !diverged.is_empty())),
            Ok(_) => None,
            Err(refused) => ReportAnswer::of_refusal(&refused),
        }
    }

    /// The log applied to an empty state.
    pub fn replay(&self) -> State {
        let mut state = State::default();
        for entry in &self.log {
            let _ = step(&mut state, entry, &mut ());
        }
        state
    }
}

/// What an agent sends, for those that script one themselves.
pub fn report(node: NodeId, incarnation: u64, first_seq: u64) -> AgentCommand {
    AgentCommand::Report {
        node,
        incarnation,
        first_seq,
        events: Vec::new(),
    }
}
