//! A node of a world: the real decisions of an agent's keeper and of its search for a server, over made-up workloads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dhow_agent::ledger::Account;
use dhow_agent::limits::{CALL_TIMEOUT, OPEN_TIMEOUT, SERVER_SILENT_MAX};
use dhow_agent::session::grpc::{Backoff, Endpoint, FixedRoutes, Seeker};
use dhow_agent::{
    CoreAction, CoreInput, CoreOptions, Happening, Heartbeat, Highest, KeeperCore, Pace, Report, Returning,
    SessionError,
};
use dhow_core::assignment::Assignment;
use dhow_core::ids::{NodeId, ReplicaKey, ReplicaName, Revision, RoleId, ServiceId, Slot};
use dhow_core::time::ClusterTime;

use super::chance::Chance;
use super::message::{Connection, Message, NodeWord, ServerWord};
use crate::lab::Behaviour;
use crate::lab::runner::ScriptedRunner;

/// Where the node is with its session.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// The next attempt begins then.
    Waits { at_ms: u64 },
    Asks {
        connection: Connection,
        server: NodeId,
        until_ms: u64,
    },
    Open {
        connection: Connection,
        server: NodeId,
        heard_ms: u64,
    },
}

/// A call of the keeper, which waits for a session and then for its answer.
struct Call<T> {
    what: T,
    from_ms: u64,
    until_ms: u64,
    sent: Option<Connection>,
}

/// A node, alive or dead.
pub(super) struct Node {
    pub id: NodeId,
    /// When it died.
    pub died_ms: Option<u64>,
    core: KeeperCore,
    seeker: Seeker,
    link: Link,
    sessions: u64,
    runners: BTreeMap<ReplicaName, ScriptedRunner>,
    report: Option<Call<Report>>,
    beat: Option<Call<Heartbeat>>,
    ask: Option<(u64, Option<Revision>)>,
    /// The last revision that the keeper was given, and what waits for it.
    given: Option<Revision>,
    pending: Option<Assignment>,
    /// Acknowledged reports since this was last looked at: the world asks its log whether they are there.
    pub acknowledged: Vec<u64>,
}

/// What a node does at one moment.
pub(super) struct Turn<'a> {
    pub now_ms: u64,
    pub chance: &'a mut Chance,
    pub out: &'a mut Vec<Message>,
    /// The number of the next connection.
    pub connections: &'a mut Connection,
}

fn ms(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn endpoint(server: NodeId) -> Endpoint {
    Endpoint {
        node: Some(server),
        address: server.0.to_string(),
    }
}

impl Node {
    pub fn new(id: NodeId, servers: &[NodeId], now_ms: u64) -> Self {
        let options = CoreOptions {
            node: id,
            returning: Returning::Alone,
            account: Account::default().of_life(id.0),
            highest: Highest::default(),
            pace: Pace::default(),
            report_gap_ms: 1_000,
        };
        let routes = FixedRoutes(servers.iter().copied().map(endpoint).collect());
        let mut node = Self {
            id,
            died_ms: None,
            core: KeeperCore::new(options, now_ms),
            seeker: Seeker::new(Arc::new(routes), Backoff::of_workers(), id.0),
            link: Link::Waits { at_ms: now_ms },
            sessions: 0,
            runners: BTreeMap::new(),
            report: None,
            beat: None,
            ask: None,
            given: None,
            pending: None,
            acknowledged: Vec::new(),
        };
        let actions = node.core.take_up(&[], now_ms);
        node.carry_out(actions, now_ms);
        node
    }

    pub fn is_alive(&self) -> bool {
        self.died_ms.is_none()
    }

    /// The machine is gone, with all that it ran.
    pub fn die(&mut self, now_ms: u64) {
        self.died_ms = Some(now_ms);
        self.runners.clear();
        self.link = Link::Waits { at_ms: u64::MAX };
    }

    /// The server that it has a session with.
    pub fn server(&self) -> Option<NodeId> {
        match self.link {
            Link::Open { server, .. } => Some(server),
            Link::Waits { .. } | Link::Asks { .. } => None,
        }
    }

    pub fn connection(&self) -> Option<Connection> {
        match self.link {
            Link::Open { connection, .. } | Link::Asks { connection, .. } => Some(connection),
            Link::Waits { .. } => None,
        }
    }

    /// The order that it has acted on last.
    pub fn highest(&self) -> (u64, u64) {
        (self.core.highest().term, self.core.highest().revision)
    }

    /// What runs here.
    pub fn running(&self) -> BTreeSet<&ReplicaName> {
        let running = self.runners.iter().filter(|(_, runner)| runner.runs());
        running.map(|(name, _)| name).collect()
    }

    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now_ms;
        self.run_workloads(now_ms);
        if self.core.wakes_at_ms() <= now_ms {
            self.tell(CoreInput::Woken, now_ms);
        }
        self.follow_link(turn);
        self.take_pending(turn);
        self.call(turn);
    }

    fn run_workloads(&mut self, now_ms: u64) {
        let mut happenings = Vec::new();
        for runner in self.runners.values_mut() {
            runner.happen(ClusterTime(now_ms), &mut happenings);
        }
        for happening in &happenings {
            if let Happening::Gone { name } = happening {
                self.runners.remove(name);
            }
        }
        if !happenings.is_empty() {
            self.tell(CoreInput::Happened(happenings), now_ms);
        }
    }

    fn follow_link(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now_ms;
        match self.link {
            Link::Waits { at_ms } if at_ms <= now_ms => self.connect(turn),
            Link::Asks { server, until_ms, .. } if until_ms <= now_ms => {
                self.seeker.failed(&endpoint(server));
                self.leave(turn);
            }
            Link::Open { server, heard_ms, .. } if now_ms - heard_ms > ms(SERVER_SILENT_MAX) => {
                self.seeker.succeeded(&endpoint(server));
                self.leave(turn);
            }
            Link::Waits { .. } | Link::Asks { .. } | Link::Open { .. } => {}
        }
    }

    fn connect(&mut self, turn: &mut Turn<'_>) {
        let Some(server) = self.seeker.pick().and_then(|endpoint| endpoint.node) else {
            return self.wait(turn);
        };
        *turn.connections += 1;
        let connection = *turn.connections;
        self.link = Link::Asks {
            connection,
            server,
            until_ms: turn.now_ms + ms(OPEN_TIMEOUT),
        };
        let word = NodeWord::Open {
            last: self.given,
            highest: self.core.highest().clone(),
        };
        self.say(server, connection, word, turn);
    }

    fn wait(&mut self, turn: &mut Turn<'_>) {
        let pause = self.seeker.begin(turn.chance.unit());
        self.link = Link::Waits {
            at_ms: turn.now_ms + ms(pause),
        };
    }

    /// Gives its connection up, and looks for another server. Calls that were sent over it bring nothing.
    fn leave(&mut self, turn: &mut Turn<'_>) {
        if let Link::Asks {
            connection, server, ..
        }
        | Link::Open {
            connection, server, ..
        } = self.link
        {
            self.say(server, connection, NodeWord::Close, turn);
        }
        self.wait(turn);
        let failed = || SessionError::Unavailable("the session is over".into());
        if self.report.take_if(|call| call.sent.is_some()).is_some() {
            self.tell(CoreInput::Reported(Err(failed())), turn.now_ms);
        }
        if self.beat.take_if(|call| call.sent.is_some()).is_some() {
            self.tell(CoreInput::Beaten(Err(failed())), turn.now_ms);
        }
    }

    fn say(&self, to: NodeId, connection: Connection, word: NodeWord, turn: &mut Turn<'_>) {
        turn.out.push(Message::ToServer {
            from: self.id,
            to,
            connection,
            word,
        });
    }

    /// Hands the keeper what has come, where it asks for that.
    fn take_pending(&mut self, turn: &mut Turn<'_>) {
        let Some((_, last)) = self.ask.filter(|(from_ms, _)| *from_ms <= turn.now_ms) else {
            return;
        };
        if self.given != last {
            // The keeper did not act on what it was given: the next session begins from what it has.
            (self.given, self.pending) = (last, None);
            if self.server().is_some() {
                self.leave(turn);
            }
            return;
        }
        if let Some(order) = self.pending.take() {
            self.given = Some(order.revision);
            self.ask = None;
            self.tell(CoreInput::Told(Ok(order)), turn.now_ms);
        }
    }

    /// Sends calls that wait for a session, and gives up those that wait for too long.
    fn call(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now_ms;
        if let Link::Open {
            connection, server, ..
        } = self.link
        {
            let is_due = |from_ms: u64, sent: Option<Connection>| from_ms <= now_ms && sent.is_none();
            if let Some(call) = self
                .report
                .as_mut()
                .filter(|call| is_due(call.from_ms, call.sent))
            {
                call.sent = Some(connection);
                let word = NodeWord::Report(call.what.clone());
                self.say(server, connection, word, turn);
            }
            if let Some(call) = self.beat.as_mut().filter(|call| is_due(call.from_ms, call.sent)) {
                call.sent = Some(connection);
                let word = NodeWord::Beat(call.what.clone());
                self.say(server, connection, word, turn);
            }
        }
        let report_sent = self.report.as_ref().filter(|call| call.until_ms <= now_ms);
        let beat_sent = self.beat.as_ref().filter(|call| call.until_ms <= now_ms);
        let (is_late, is_beat_late) = (report_sent.is_some(), beat_sent.is_some());
        let was_sent = report_sent.is_some_and(|call| call.sent.is_some())
            || beat_sent.is_some_and(|call| call.sent.is_some());
        if was_sent && let Some(server) = self.server() {
            // One that does not answer in time is left.
            self.seeker.succeeded(&endpoint(server));
            return self.leave(turn);
        }
        let late = || SessionError::Unavailable("no server".into());
        if is_late && self.report.take().is_some() {
            self.tell(CoreInput::Reported(Err(late())), now_ms);
        }
        if is_beat_late && self.beat.take().is_some() {
            self.tell(CoreInput::Beaten(Err(late())), now_ms);
        }
    }

    /// Takes what its server says.
    pub fn hear(&mut self, from: NodeId, over: Connection, word: ServerWord, turn: &mut Turn<'_>) {
        if self.connection() != Some(over) {
            return;
        }
        let now_ms = turn.now_ms;
        if let Link::Open { heard_ms, .. } = &mut self.link {
            *heard_ms = now_ms;
        }
        match word {
            ServerWord::Opened { ttl_secs, term } => self.opened(from, (ttl_secs, term), turn),
            ServerWord::Assignment(order) => match &mut self.pending {
                Some(pending) => pending.follow(order),
                None => self.pending = Some(order),
            },
            ServerWord::Reported(answer) => {
                if self.report.take_if(|call| call.sent == Some(over)).is_some() {
                    self.reported(answer, now_ms);
                }
            }
            ServerWord::Beaten(answer) => {
                if self.beat.take_if(|call| call.sent == Some(over)).is_some() {
                    self.paced(answer.as_ref().map(|(_, ttl_secs)| *ttl_secs), now_ms);
                    let answer = answer.map(|(answer, _)| answer);
                    let busy = SessionError::Unavailable("busy".into());
                    self.tell(CoreInput::Beaten(answer.ok_or(busy)), now_ms);
                }
            }
            ServerWord::Ping => self.say(from, over, NodeWord::Pong, turn),
            ServerWord::Closed => {
                match self.link {
                    Link::Open { .. } => self.seeker.succeeded(&endpoint(from)),
                    Link::Asks { .. } | Link::Waits { .. } => self.seeker.failed(&endpoint(from)),
                }
                self.leave(turn);
            }
        }
    }

    fn opened(&mut self, server: NodeId, (ttl_secs, term): (u32, u64), turn: &mut Turn<'_>) {
        let Link::Asks { connection, .. } = self.link else {
            return;
        };
        if term < self.highest().0 {
            // It is below what this node has acted on.
            self.seeker.failed(&endpoint(server));
            return self.leave(turn);
        }
        self.sessions += 1;
        self.pending = None;
        self.link = Link::Open {
            connection,
            server,
            heard_ms: turn.now_ms,
        };
        let session = self.sessions;
        self.tell(
            CoreInput::Paced(Pace {
                ttl_secs,
                session,
                ..Pace::default()
            }),
            turn.now_ms,
        );
    }

    fn reported(&mut self, answer: Option<(dhow_agent::ReportAnswer, u32)>, now_ms: u64) {
        self.paced(answer.as_ref().map(|(_, ttl_secs)| *ttl_secs), now_ms);
        if let Some((dhow_agent::ReportAnswer::Durable { seq, .. }, _)) = &answer {
            self.acknowledged.push(*seq);
        }
        let answer = answer.map(|(answer, _)| answer);
        let busy = SessionError::Unavailable("busy".into());
        self.tell(CoreInput::Reported(answer.ok_or(busy)), now_ms);
    }

    fn paced(&mut self, ttl_secs: Option<u32>, now_ms: u64) {
        if let Some(ttl_secs) = ttl_secs {
            let session = self.sessions;
            self.tell(
                CoreInput::Paced(Pace {
                    ttl_secs,
                    session,
                    ..Pace::default()
                }),
                now_ms,
            );
        }
    }

    fn tell(&mut self, input: CoreInput, now_ms: u64) {
        let actions = self.core.take(input, now_ms);
        self.carry_out(actions, now_ms);
    }

    fn carry_out(&mut self, actions: Vec<CoreAction>, now_ms: u64) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            if let Some(input) = self.perform(action, now_ms) {
                actions.extend(self.core.take(input, now_ms));
            }
        }
    }

    fn perform(&mut self, action: CoreAction, now_ms: u64) -> Option<CoreInput> {
        match action {
            CoreAction::PutHighest(news) => {
                let (news, known) = ((news.term, news.revision), self.highest());
                assert!(
                    news >= known,
                    "node {} goes from {known:?} back to {news:?}",
                    self.id
                );
                return Some(CoreInput::HighestPut { is_on_disk: true });
            }
            CoreAction::ConfirmBoot { boot_id } => return Some(CoreInput::BootConfirmed { boot_id }),
            CoreAction::Prepare(open) => {
                let ids = open.into_iter().map(|rollout| rollout.id);
                return Some(CoreInput::Prepared(ids.collect()));
            }
            CoreAction::Begin(beginning) => {
                let name = beginning.name.clone();
                let key = ReplicaKey {
                    service: ServiceId(0),
                    slot: Slot {
                        role: RoleId(0),
                        index: name.index,
                    },
                    generation: name.generation,
                };
                let now = ClusterTime(now_ms);
                let runner = ScriptedRunner::begin(*beginning, key, Behaviour::default(), now);
                self.runners.insert(name, runner);
            }
            CoreAction::Wish { name, wish } => {
                if let Some(runner) = self.runners.get_mut(&name) {
                    runner.take_wish(wish, ClusterTime(now_ms));
                }
            }
            CoreAction::Report { pause, report } => self.report = Some(call(report, pause, now_ms)),
            CoreAction::Beat(beat) => self.beat = Some(call(beat, std::time::Duration::ZERO, now_ms)),
            CoreAction::Ask { pause, last } => self.ask = Some((now_ms + ms(pause), last)),
            CoreAction::Append(_) | CoreAction::LetGo { .. } | CoreAction::CloseService(_) => {}
        }
        None
    }
}

fn call<T>(what: T, pause: std::time::Duration, now_ms: u64) -> Call<T> {
    let from_ms = now_ms + ms(pause);
    Call {
        what,
        from_ms,
        until_ms: from_ms + ms(CALL_TIMEOUT),
        sent: None,
    }
}
