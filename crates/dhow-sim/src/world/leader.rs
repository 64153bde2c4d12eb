//! A server of a world as the leader: the real table of leases and sessions, the real planner and the real answers to
//! reports.

use dhow_agent::{Heartbeat, HeartbeatAnswer, Report};
use dhow_core::command::{Command, NodeCommand, Outcome};
use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::{AdaptiveTtlConfig, HolderBeat, HolderBeatAnswer, SessionId, SessionTable};
use dhow_core::mirror::{self, ReportAnswer, ReportBody, known_answer, report_command};
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::state::State;
use dhow_core::time::ClusterTime;

use super::message::{HeldAnswer, HeldWord};
use super::server::Sight;

const TURN_MS: u64 = 500;
/// Plans that may follow each other at one moment.
const PLANS_MAX: usize = 50;

/// What a leader keeps beside the log.
pub(super) struct Leader {
    table: SessionTable,
    cache: PlanCache,
    due_ms: u64,
    planned: usize,
    plans_at_ms: Option<u64>,
    /// Nodes that it has given up, for the world to judge.
    pub given_up: Vec<NodeId>,
}

impl Leader {
    pub fn new(own: NodeId) -> Self {
        Self {
            table: SessionTable::new(AdaptiveTtlConfig::default(), Some(own)),
            cache: PlanCache::default(),
            due_ms: 0,
            planned: 0,
            plans_at_ms: None,
            given_up: Vec::new(),
        }
    }

    /// Its server leads from now on.
    pub fn begin_term(&mut self, term: Term, state: &State, now_ms: u64) {
        let ready = state.nodes.values().filter(|node| node.is_ready());
        self.table.begin_term(term, now_ms, ready.map(|node| node.id));
        self.cache = PlanCache::default();
        (self.due_ms, self.planned, self.plans_at_ms) = (now_ms + TURN_MS, 0, None);
    }

    pub fn tick(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        if self.due_ms <= now_ms {
            self.turn(sight);
        }
        let is_due = self.plans_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if is_due || self.planned != sight.log.last() {
            self.plan(sight);
        }
    }

    fn turn(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        let due_ms = std::mem::replace(&mut self.due_ms, now_ms + TURN_MS);
        let state = std::sync::Arc::clone(sight.log.state());
        let has_sessions = |node| state.node(node).is_some_and(|node| node.session.incarnation != 0);
        let ticked = self.table.advance(now_ms, due_ms, has_sessions);
        for node in ticked.expired {
            if state.node(node).is_some_and(|node| node.is_ready()) {
                self.given_up.push(node);
                let lost = Command::Node(NodeCommand::Lost { node });
                let _ = sight.log.write(lost, now_ms);
            }
        }
    }

    fn plan(&mut self, sight: &mut Sight<'_>) {
        let now = ClusterTime(sight.now_ms);
        for _ in 0..PLANS_MAX {
            let plan = plan_next(sight.log.state(), &mut self.cache, now);
            (self.planned, self.plans_at_ms) = (sight.log.last(), plan.wake.map(|at| at.0));
            if plan.commands.is_empty() {
                return;
            }
            for command in plan.commands {
                let _ = sight.log.write(Command::Plan(command), sight.now_ms);
            }
        }
        panic!("the planner does not come to rest at {now}");
    }

    pub fn renew(&mut self, node: NodeId, now_ms: u64) {
        self.table.renew(node, now_ms);
    }

    pub fn session_broke(
        &mut self,
        holder: NodeId,
        broke: (NodeId, SessionId),
        last_sign_ms: u64,
        now_ms: u64,
    ) {
        let _ = self.table.session_broke(holder, broke, last_sign_ms, now_ms);
    }

    pub fn beat(&mut self, from: NodeId, beat: &HolderBeat, applied: usize, now_ms: u64) -> HolderBeatAnswer {
        let (answer, _) = self.table.beat(from, beat, now_ms);
        HolderBeatAnswer {
            read_index: applied as u64,
            ..answer
        }
    }

    /// Gives a node a session with a holder; none where nobody knows it.
    pub fn open(
        &mut self,
        holder: NodeId,
        boot: u64,
        node: NodeId,
        (state, now_ms): (&State, u64),
    ) -> Option<(SessionId, u32)> {
        state.node(node)?;
        Some(self.table.open(holder, boot, node, now_ms))
    }

    pub fn answer(&mut self, node: NodeId, word: HeldWord, sight: &mut Sight<'_>) -> Option<HeldAnswer> {
        match word {
            HeldWord::Report(report) => self.report(node, report, sight).map(HeldAnswer::Reported),
            HeldWord::Beat(beat) => heartbeat(node, &beat, sight.log.state()).map(HeldAnswer::Beaten),
        }
    }

    fn report(&mut self, node: NodeId, report: Report, sight: &mut Sight<'_>) -> Option<ReportAnswer> {
        let Report {
            incarnation, body, ..
        } = report;
        let now_ms = sight.now_ms;
        let is_inventory = matches!(body, ReportBody::Inventory { .. });
        sight.log.state().node(node)?;
        let answer = match known_answer(sight.log.state(), node, incarnation, &body) {
            Some(answer) => answer,
            None => {
                let command = report_command(sight.log.state(), node, incarnation, body);
                match sight.log.write(Command::Agent(command), now_ms).1 {
                    Ok(Outcome::Reported {
                        durable_seq,
                        diverged,
                    }) => ReportAnswer::taken(durable_seq, !diverged.is_empty()),
                    Ok(_) => return None,
                    Err(refused) => return ReportAnswer::of_refusal(&refused),
                }
            }
        };
        let is_lost = !sight.log.state().node(node)?.is_ready();
        if is_lost && is_inventory {
            let back = Command::Node(NodeCommand::Back { node });
            let _ = sight.log.write(back, now_ms);
        }
        Some(match answer {
            ReportAnswer::Durable {
                seq,
                inventory_wanted,
                open,
            } => ReportAnswer::Durable {
                seq,
                inventory_wanted: inventory_wanted || (is_lost && !is_inventory),
                open,
            },
            ReportAnswer::ReplayFrom { .. } | ReportAnswer::InventoryWanted => answer,
        })
    }
}

fn heartbeat(node: NodeId, beat: &Heartbeat, state: &State) -> Option<HeartbeatAnswer> {
    let known = state.node(node)?;
    let differs = beat.digest != mirror::digest(state, node);
    Some(HeartbeatAnswer {
        inventory_wanted: !known.is_ready(),
        replay_from: differs.then_some(known.session.seq),
        open: Vec::new(),
    })
}
