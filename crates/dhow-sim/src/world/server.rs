//! A server of a world as a holder: the real table of its sessions, over connections and a log that are made up.

use std::collections::BTreeMap;

use dhow_agent::Highest;
use dhow_core::assignment::assignment_since;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::lease::{Freshness, HeldSessions, HolderBeat, HolderBeatAnswer, SessionId};
use dhow_core::state::State;

use super::leader::Leader;
use super::log::SharedLog;
use super::message::{
    Connection, HeldAnswer, HeldAnswers, HeldWord, Message, NodeWord, PeerWord, ServerWord,
};

const BEAT_EVERY_MS: u64 = 500;
const BEAT_ANSWER_MAX_MS: u64 = 1_500;
/// How long a holder waits for the leader on behalf of a node.
const LEADER_ANSWER_MAX_MS: u64 = 4_000;
const FORWARD_MAX: usize = 256;
const FORWARDS_AT_ONCE: usize = 2;
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

/// A node that has asked for a session.
struct Opening {
    connection: Connection,
    last: Option<Revision>,
    until_ms: u64,
    is_sent: bool,
    /// Its node went before it was told.
    is_gone: bool,
    /// What the leader has given, and the state that is to be reached first.
    given: Option<(usize, SessionId, u32)>,
}

struct Batch {
    until_ms: u64,
    words: Vec<(NodeId, Connection, HeldWord)>,
    /// What the leader has answered, and the state that is to be reached first.
    answers: Option<(usize, HeldAnswers)>,
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
    openings: BTreeMap<NodeId, Opening>,
    waiting: Vec<(NodeId, Connection, HeldWord)>,
    batches: BTreeMap<u64, Batch>,
    last_batch: u64,
    beat_ms: u64,
    known_leader: Option<NodeId>,
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
            openings: BTreeMap::new(),
            waiting: Vec::new(),
            batches: BTreeMap::new(),
            last_batch: 0,
            beat_ms: 0,
            known_leader: None,
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
        let sessions = self.sessions.values().map(|session| session.connection);
        let openings = self.openings.values().map(|opening| opening.connection);
        sessions.chain(openings).any(|used| used == connection)
    }

    pub fn tick(&mut self, sight: &mut Sight<'_>) {
        self.apply(sight);
        if self.known_leader != sight.reaches {
            self.known_leader = sight.reaches;
            self.held.leader_changed();
        }
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
        if now_ms < self.beat_ms {
            return;
        }
        let others = self.sessions.iter().filter(|(node, _)| **node != self.id);
        let heard_ms = others.map(|(_, session)| session.heard_ms).max();
        let is_fresh = self.is_fresh(now_ms);
        let beat = HolderBeat {
            applied_index: Some(self.applied as u64),
            is_fresh,
            hears_age_ms: heard_ms.map(|heard_ms| now_ms - heard_ms),
            ..self.held.next_beat(now_ms)
        };
        if sight.leads {
            self.beat_ms = now_ms + BEAT_EVERY_MS;
            let answer = self.leader.beat(self.id, &beat, self.applied, now_ms);
            return self.beaten(&answer, sight);
        }
        // One is on its way at a time, until it is answered or of no use.
        self.beat_ms = now_ms + BEAT_ANSWER_MAX_MS;
        if let Some(to) = sight.reaches {
            let word = PeerWord::Beat(beat);
            sight.out.push(Message::Between {
                from: self.id,
                to,
                word,
            });
        }
    }

    fn beaten(&mut self, answer: &HolderBeatAnswer, sight: &mut Sight<'_>) {
        self.beat_ms = self.beat_ms.min(sight.now_ms + BEAT_EVERY_MS);
        for (node, id) in self.held.answered(answer, sight.now_ms) {
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
        self.held.broke(node, session.id, session.heard_ms);
        if sight.leads {
            let broke = (node, session.id);
            self.leader
                .session_broke(self.id, broke, session.heard_ms, sight.now_ms);
        }
        self.beat_ms = self.beat_ms.min(sight.now_ms + 20);
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

    /// Asks the leader for the sessions that nodes want, and serves those that it may.
    fn open_for_nodes(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        let unsent = self.openings.iter_mut().filter(|(_, opening)| !opening.is_sent);
        let asked = unsent.map(|(node, opening)| {
            opening.is_sent = true;
            (*node, opening.connection)
        });
        let asked: Vec<(NodeId, Connection)> = asked.collect();
        if let Some(to) = sight.reaches.filter(|_| !asked.is_empty()) {
            let word = PeerWord::Open {
                boot: self.boot,
                asked,
            };
            let from = self.id;
            sight.out.push(Message::Between { from, to, word });
        }
        let applied = self.applied;
        let is_done = |opening: &Opening| {
            opening.until_ms <= now_ms || opening.given.is_some_and(|(index, ..)| index <= applied)
        };
        let done: Vec<(NodeId, Opening)> = self
            .openings
            .extract_if(.., |_, opening| is_done(opening))
            .collect();
        for (node, opening) in done {
            match opening.given {
                Some((_, id, _)) if opening.is_gone => self.held.broke_unserved(node, id, now_ms),
                Some((index, id, ttl_secs)) if index <= applied => {
                    self.serve(node, (id, ttl_secs), (opening.connection, opening.last), sight);
                }
                Some((_, id, _)) => {
                    self.held.ended_unserved(node, id, now_ms);
                    self.say(node, opening.connection, ServerWord::Closed, sight);
                }
                None => self.say(node, opening.connection, ServerWord::Closed, sight),
            }
        }
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

    /// Hands reports on, a few messages at a time, and answers nodes once the state here has what was written.
    fn forward(&mut self, sight: &mut Sight<'_>) {
        let now_ms = sight.now_ms;
        if !self.waiting.is_empty() && self.batches.len() < FORWARDS_AT_ONCE {
            let rest = self.waiting.split_off(self.waiting.len().min(FORWARD_MAX));
            let words = std::mem::replace(&mut self.waiting, rest);
            self.last_batch += 1;
            let batch = self.last_batch;
            if let Some(to) = sight.reaches {
                let (from, words) = (self.id, words.clone());
                let word = PeerWord::Forward { batch, words };
                sight.out.push(Message::Between { from, to, word });
            }
            let until_ms = now_ms + LEADER_ANSWER_MAX_MS;
            let answers = None;
            self.batches.insert(
                batch,
                Batch {
                    until_ms,
                    words,
                    answers,
                },
            );
        }
        let applied = self.applied;
        let is_reached = |batch: &Batch| batch.answers.as_ref().is_some_and(|(index, _)| *index <= applied);
        let done: Vec<Batch> = self
            .batches
            .extract_if(.., |_, batch| batch.until_ms <= now_ms || is_reached(batch))
            .map(|(_, batch)| batch)
            .collect();
        for batch in done {
            match batch.answers.filter(|(index, _)| *index <= applied) {
                Some((_, answers)) => {
                    for (node, connection, answer) in answers {
                        self.answer(node, connection, answer, sight);
                    }
                }
                None => {
                    for (node, connection, word) in batch.words {
                        self.refuse(node, connection, &word, sight);
                    }
                }
            }
        }
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
                for opening in self.openings.values_mut() {
                    opening.is_gone |= opening.connection == connection;
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
        self.openings.insert(
            node,
            Opening {
                connection,
                last,
                until_ms: now_ms + LEADER_ANSWER_MAX_MS,
                is_sent: false,
                is_gone: false,
                given: None,
            },
        );
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
        match self.is_fresh(sight.now_ms) {
            true => self.waiting.push((node, connection, word)),
            false => self.refuse(node, connection, &word, sight),
        }
    }

    /// Takes what another server says.
    pub fn hear_peer(&mut self, from: NodeId, word: PeerWord, sight: &mut Sight<'_>) {
        let (now_ms, own) = (sight.now_ms, self.id);
        let mut reply = |word: PeerWord| {
            sight.out.push(Message::Between {
                from: own,
                to: from,
                word,
            });
        };
        match word {
            PeerWord::Beat(beat) if sight.leads => {
                reply(PeerWord::Beaten(self.leader.beat(
                    from,
                    &beat,
                    self.applied,
                    now_ms,
                )));
            }
            PeerWord::Open { boot, asked } if sight.leads => {
                let state = sight.log.at(self.applied);
                let given = asked.into_iter().filter_map(|(node, connection)| {
                    let (id, ttl_secs) = self.leader.open(from, boot, node, (state, now_ms))?;
                    Some((node, connection, id, ttl_secs))
                });
                let given = given.collect();
                let read_index = self.applied;
                reply(PeerWord::Opened {
                    boot,
                    read_index,
                    given,
                });
            }
            PeerWord::Forward { batch, words } if sight.leads => {
                let mut answers = Vec::new();
                for (node, connection, word) in words {
                    answers.push((node, connection, self.leader.answer(node, word, sight)));
                }
                self.applied = sight.log.last();
                let word = PeerWord::Answers {
                    batch,
                    index: self.applied,
                    answers,
                };
                sight.out.push(Message::Between {
                    from: own,
                    to: from,
                    word,
                });
            }
            // A server that does not lead answers nobody.
            PeerWord::Beat(_) | PeerWord::Open { .. } | PeerWord::Forward { .. } => {}
            PeerWord::Beaten(answer) => self.beaten(&answer, sight),
            PeerWord::Opened {
                boot,
                read_index,
                given,
            } => self.given(boot, read_index, given, now_ms),
            PeerWord::Answers {
                batch,
                index,
                answers,
            } => {
                if let Some(batch) = self.batches.get_mut(&batch) {
                    batch.answers = Some((index, answers));
                }
            }
        }
    }

    /// The leader has given sessions. One whose node went meanwhile broke.
    fn given(
        &mut self,
        boot: u64,
        read_index: usize,
        given: Vec<(NodeId, Connection, SessionId, u32)>,
        now_ms: u64,
    ) {
        for (node, connection, id, ttl_secs) in given.into_iter().filter(|_| boot == self.boot) {
            // Of an answer that nobody waits for any more a holder hears nothing.
            let asked = self.openings.get_mut(&node);
            let Some(opening) = asked.filter(|opening| opening.connection == connection) else {
                continue;
            };
            match opening.is_gone {
                true => self.held.broke_unserved(node, id, now_ms),
                false => opening.given = Some((read_index, id, ttl_secs)),
            }
        }
    }
}
