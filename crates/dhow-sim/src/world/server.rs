//! A server of a world as a holder: the real table of its sessions, over connections and a log that are made up.

mod carrying;

use std::collections::BTreeMap;

use dhow_agent::Highest;
use dhow_core::assignment::assignment_since;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::lease::{
    Freshness, HeldSessions, HolderBeatAnswer, HolderSight, LEADER_ANSWER_MAX_MS, Outbox, OutboxKind,
    SessionId,
};
use dhow_core::state::State;

use carrying::{Given, Held, OnItsWay, Opening};

use super::leader::Leader;
use super::log::SharedLog;
use super::message::{
    Connection, HeldAnswer, HeldAnswers, HeldWord, Message, NodeWord, PeerWord, ServerWord,
};

/// What one question of a node counts as: all are as short here.
const WORD_BYTES: usize = 100;
/// A server asks its nodes whether they are there, and breaks off those that do not answer, each at its own time.
const PING_EVERY_MS: u64 = 2_000;
const MISSED_MS: u64 = 5_000;
const MISSED_SPREAD_MS: u64 = 2_000;

struct Session {
    id: SessionId,
    connection: Connection,
    heard_ms: u64,
    pinged_ms: u64,
    ttl_secs: u32,
    last: Option<Revision>,
}

/// A server: a holder, and the leader while the log says so.
pub(super) struct Server {
    pub id: NodeId,
    pub is_up: bool,
    pub paused_until_ms: u64,
    boot: u64,
    /// How far it has applied the log, and how much later than the leader.
    pub applied: usize,
    pub lag_ms: u64,
    held: HeldSessions,
    sessions: BTreeMap<NodeId, Session>,
    openings: Outbox<Opening>,
    opening: BTreeMap<u64, OnItsWay<Opening, Given>>,
    /// Connections over which a session is asked for, and whether they have ended meanwhile.
    asking: BTreeMap<Connection, bool>,
    words: Outbox<Held>,
    forwarded: BTreeMap<u64, OnItsWay<Held, HeldAnswers>>,
    pub leader: Leader,
}

/// What a server sees and does at one moment.
pub(super) struct Sight<'a> {
    pub now_ms: u64,
    pub log: &'a mut SharedLog,
    /// The leader that this server reaches.
    pub reaches: Option<NodeId>,
    /// Whether this server leads, and has its quorum.
    pub leads: bool,
    pub out: &'a mut Vec<Message>,
}

impl Server {
    pub fn new(id: NodeId, boot: u64, leader: Leader) -> Self {
        Self {
            id,
            is_up: true,
            paused_until_ms: 0,
            boot,
            applied: 0,
            lag_ms: 20,
            held: HeldSessions::new(boot),
            sessions: BTreeMap::new(),
            openings: Outbox::new(OutboxKind::Sessions),
            opening: BTreeMap::new(),
            asking: BTreeMap::new(),
            words: Outbox::new(OutboxKind::Reports),
            forwarded: BTreeMap::new(),
            leader,
        }
    }

    /// Its process starts anew.
    pub fn restart(&mut self, leader: Leader) {
        let applied = self.applied;
        *self = Self::new(self.id, self.boot + 1_000, leader);
        self.applied = applied;
    }

    pub fn runs(&self, now_ms: u64) -> bool {
        self.is_up && now_ms >= self.paused_until_ms
    }

    /// The nodes that have sessions here, with their connections.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, Connection)> + '_ {
        self.sessions
            .iter()
            .map(|(node, session)| (*node, session.connection))
    }

    pub fn uses(&self, connection: Connection) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|session| session.connection == connection) || self.asking.contains_key(&connection)
    }

    pub fn tick(&mut self, sight: &mut Sight<'_>) {
        self.apply(sight);
        if sight.leads {
            self.leader.tick(sight);
            self.applied = sight.log.last();
        }
        self.beat(sight);
        self.end_where_cut_off(sight);
        self.miss(sight);
        self.open_for_nodes(sight);
        self.forward(sight);
        self.tell_assignments(sight);
    }

    fn apply(&mut self, sight: &Sight<'_>) {
        let reached = match (sight.leads, sight.reaches) {
            (true, _) => sight.log.last(),
            (false, Some(_)) => sight.log.last_by(sight.now_ms.saturating_sub(self.lag_ms)),
            (false, None) => 0,
        };
        self.applied = self.applied.max(reached);
    }

    fn state<'a>(&self, sight: &'a Sight<'_>) -> &'a State {
        sight.log.at(self.applied)
    }

    fn is_fresh(&mut self, now_ms: u64) -> bool {
        self.held.freshness(now_ms, self.applied as u64) == Freshness::Fresh
    }

    fn beat(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        if now_ms < self.held.beat_due_ms() {
            return;
        }
        let others = self.sessions.iter().filter(|(node, _)| **node != self.id);
        let holder_sight = HolderSight {
            now_ms,
            leader: sight.reaches,
            applied_index: self.applied as u64,
            heard_ms: others.map(|(_, session)| session.heard_ms).max(),
        };
        let Some((beat, _)) = self.held.begin_beat(&holder_sight) else {
            // The one that is on its way is given up.
            return self.beaten(None, sight);
        };
        if sight.leads {
            let answer = self.leader.beat(self.id, &beat, self.applied, now_ms);
            return self.beaten(Some(&answer), sight);
        }
        match sight.reaches {
            Some(to) => sight.out.push(Message::Between {
                from: self.id,
                to,
                word: PeerWord::Beat(beat),
            }),
            None => self.beaten(None, sight),
        }
    }

    fn beaten(&mut self, answer: Option<&HolderBeatAnswer>, sight: &mut Sight<'_>) {
        for (node, id) in self.held.beat_over(answer, sight.now_ms) {
            self.end(node, id, sight);
        }
    }

    /// Ends a session by its own wish.
    fn end(&mut self, node: NodeId, id: SessionId, sight: &mut Sight<'_>) {
        let ended = self.sessions.get(&node).filter(|session| session.id == id);
        let Some((connection, heard_ms)) = ended.map(|session| (session.connection, session.heard_ms)) else {
            return;
        };
        self.sessions.remove(&node);
        self.held.ended(node, id, heard_ms);
        self.say(node, connection, ServerWord::Closed, sight);
    }

    fn end_where_cut_off(&mut self, sight: &mut Sight<'_>) {
        for (node, id) in self.held.cut_off(sight.now_ms, self.applied as u64) {
            self.end(node, id, sight);
        }
    }

    /// Asks its nodes whether they are there, and misses those that do not answer.
    fn miss(&mut self, sight: &mut Sight<'_>) {
        let (now_ms, id) = (sight.now_ms, self.id);
        let mut missed = Vec::new();
        for (node, session) in &mut self.sessions {
            let silent_ms = now_ms - session.heard_ms;
            if silent_ms > MISSED_MS + node.0.wrapping_mul(397) % MISSED_SPREAD_MS {
                missed.push(*node);
            } else if silent_ms >= PING_EVERY_MS && now_ms - session.pinged_ms >= PING_EVERY_MS {
                session.pinged_ms = now_ms;
                sight.out.push(Message::ToNode {
                    from: id,
                    to: *node,
                    connection: session.connection,
                    word: ServerWord::Ping,
                });
            }
        }
        for node in missed {
            self.broke(node, sight);
        }
    }

    /// A session broke, and not by this server's wish.
    fn broke(&mut self, node: NodeId, sight: &mut Sight<'_>) {
        let Some(session) = self.sessions.remove(&node) else {
            return;
        };
        self.held.broke(node, session.id, session.heard_ms, sight.now_ms);
        if sight.leads {
            let broke = (node, session.id);
            self.leader
                .session_broke(self.id, broke, session.heard_ms, sight.now_ms);
        }
        self.say(node, session.connection, ServerWord::Closed, sight);
    }

    fn say(&self, to: NodeId, connection: Connection, word: ServerWord, sight: &mut Sight<'_>) {
        sight.out.push(Message::ToNode {
            from: self.id,
            to,
            connection,
            word,
        });
    }

    fn serve(
        &mut self,
        node: NodeId,
        (id, ttl_secs): (SessionId, u32),
        (connection, last): (Connection, Option<Revision>),
        sight: &mut Sight<'_>,
    ) {
        let now_ms = sight.now_ms;
        self.held.opened(node, id, now_ms);
        self.sessions.insert(
            node,
            Session {
                id,
                connection,
                heard_ms: now_ms,
                pinged_ms: now_ms,
                ttl_secs,
                last,
            },
        );
        let term = self.state(sight).term.0;
        self.say(node, connection, ServerWord::Opened { ttl_secs, term }, sight);
    }

    fn answer(
        &self,
        node: NodeId,
        connection: Connection,
        answer: Option<HeldAnswer>,
        sight: &mut Sight<'_>,
    ) {
        let session = self.sessions.get(&node);
        let ttl_secs = session.map_or(self.held.ttl_secs(), |session| session.ttl_secs);
        let word = match answer {
            Some(HeldAnswer::Reported(answer)) => ServerWord::Reported(Some((answer, ttl_secs))),
            Some(HeldAnswer::Beaten(answer)) => ServerWord::Beaten(Some((answer, ttl_secs))),
            None => ServerWord::Closed,
        };
        self.say(node, connection, word, sight);
    }

    /// The node is to try again.
    fn refuse(&self, node: NodeId, connection: Connection, word: &HeldWord, sight: &mut Sight<'_>) {
        let word = match word {
            HeldWord::Report(_) => ServerWord::Reported(None),
            HeldWord::Beat(_) => ServerWord::Beaten(None),
        };
        self.say(node, connection, word, sight);
    }

    fn tell_assignments(&mut self, sight: &mut Sight<'_>) {
        let from = self.id;
        let state = sight.log.at(self.applied);
        for (node, session) in &mut self.sessions {
            if let Some(order) = assignment_since(state, *node, session.last) {
                session.last = Some(order.revision);
                sight.out.push(Message::ToNode {
                    from,
                    to: *node,
                    connection: session.connection,
                    word: ServerWord::Assignment(order),
                });
            }
        }
    }

    /// Takes what a node says.
    pub fn hear_node(&mut self, node: NodeId, connection: Connection, word: NodeWord, sight: &mut Sight<'_>) {
        if let NodeWord::Open { last, highest } = word {
            return self.open(node, connection, last, &highest, sight);
        }
        let now_ms = sight.now_ms;
        let own = self.sessions.get_mut(&node);
        let Some(session) = own.filter(|session| session.connection == connection) else {
            if matches!(word, NodeWord::Close) {
                if let Some(has_gone) = self.asking.get_mut(&connection) {
                    *has_gone = true;
                }
            } else {
                self.say(node, connection, ServerWord::Closed, sight);
            }
            return;
        };
        session.heard_ms = now_ms;
        match word {
            NodeWord::Pong | NodeWord::Open { .. } => {}
            NodeWord::Close => self.broke(node, sight),
            NodeWord::Report(report) => self.take(node, connection, HeldWord::Report(report), sight),
            NodeWord::Beat(beat) => self.take(node, connection, HeldWord::Beat(beat), sight),
        }
    }

    fn open(
        &mut self,
        node: NodeId,
        connection: Connection,
        last: Option<Revision>,
        highest: &Highest,
        sight: &mut Sight<'_>,
    ) {
        let now_ms = sight.now_ms;
        if highest.term > self.state(sight).term.0 {
            return self.say(node, connection, ServerWord::Closed, sight);
        }
        if sight.leads {
            let state = self.state(sight);
            return match self.leader.open(self.id, self.boot, node, (state, now_ms)) {
                Some(given) => self.serve(node, given, (connection, last), sight),
                None => self.say(node, connection, ServerWord::Closed, sight),
            };
        }
        if !self.is_fresh(now_ms) {
            return self.say(node, connection, ServerWord::Closed, sight);
        }
        let opening = Opening {
            node,
            connection,
            last,
        };
        let times_ms = (now_ms, now_ms + LEADER_ANSWER_MAX_MS);
        self.asking.insert(connection, false);
        if self
            .openings
            .enter((node, WORD_BYTES), opening, times_ms)
            .is_err()
        {
            self.refuse_session(opening, sight);
        }
    }

    /// Takes a report or a heartbeat: as the leader, or for it.
    fn take(&mut self, node: NodeId, connection: Connection, word: HeldWord, sight: &mut Sight<'_>) {
        self.held.heard(node, sight.now_ms);
        if sight.leads {
            self.leader.renew(node, sight.now_ms);
            let answer = self.leader.answer(node, word, sight);
            self.applied = sight.log.last();
            return self.answer(node, connection, answer, sight);
        }
        let times_ms = (sight.now_ms, sight.now_ms + LEADER_ANSWER_MAX_MS);
        let held = (node, connection, word.clone());
        let is_taken =
            self.is_fresh(sight.now_ms) && self.words.enter((node, WORD_BYTES), held, times_ms).is_ok();
        if !is_taken {
            self.refuse(node, connection, &word, sight);
        }
    }

    /// Takes what another server says.
    pub fn hear_peer(&mut self, from: NodeId, word: PeerWord, sight: &mut Sight<'_>) {
        match word {
            asked @ (PeerWord::Beat(_) | PeerWord::Open { .. } | PeerWord::Forward { .. }) => {
                // A server that does not lead answers nobody.
                if sight.leads
                    && let Some(word) = self.answer_peer(from, asked, sight)
                {
                    let (to, from) = (from, self.id);
                    sight.out.push(Message::Between { from, to, word });
                }
            }
            PeerWord::Beaten(answer) => self.beaten(Some(&answer), sight),
            PeerWord::Opened {
                boot,
                parcel,
                read_index,
                given,
            } => {
                // Of an answer that nobody waits for any more a holder hears nothing.
                let asked = self.opening.get_mut(&parcel).filter(|_| boot == self.boot);
                if let Some(message) = asked {
                    message.answer = Some((read_index, given));
                }
            }
            PeerWord::Answers {
                boot,
                parcel,
                index,
                answers,
            } => {
                let asked = self.forwarded.get_mut(&parcel).filter(|_| boot == self.boot);
                if let Some(message) = asked {
                    message.answer = Some((index, answers));
                }
            }
        }
    }

    /// What the leader answers to another server; none to what is an answer itself.
    fn answer_peer(&mut self, from: NodeId, asked: PeerWord, sight: &mut Sight<'_>) -> Option<PeerWord> {
        let now_ms = sight.now_ms;
        match asked {
            PeerWord::Beat(beat) => {
                let answer = self.leader.beat(from, &beat, self.applied, now_ms);
                Some(PeerWord::Beaten(answer))
            }
            PeerWord::Open { boot, parcel, asked } => {
                let state = sight.log.at(self.applied);
                let given = asked.into_iter().filter_map(|(node, connection)| {
                    let (id, ttl_secs) = self.leader.open(from, boot, node, (state, now_ms))?;
                    Some((node, connection, id, ttl_secs))
                });
                let given = given.collect();
                let read_index = self.applied;
                Some(PeerWord::Opened {
                    boot,
                    parcel,
                    read_index,
                    given,
                })
            }
            PeerWord::Forward { boot, parcel, words } => {
                let mut answers = Vec::new();
                for (node, connection, word) in words {
                    answers.push((node, connection, self.leader.answer(node, word, sight)));
                }
                self.applied = sight.log.last();
                Some(PeerWord::Answers {
                    boot,
                    parcel,
                    index: self.applied,
                    answers,
                })
            }
            PeerWord::Beaten(_) | PeerWord::Opened { .. } | PeerWord::Answers { .. } => None,
        }
    }
}
