//! A holder's own sessions: what of them the leader has still to hear, and whether the holder is fresh enough to serve.
//!
//! One beat is on its way at a time. It says everything since the last one that was answered, so that one that is lost
//! costs nothing but time. How fresh the holder is counts from when it sent the last beat that was answered and whose
//! state it has: never from when an answer came, which may have been long on its way.

mod beats;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::holder_beat::{Echo, FreshServer, HolderBeat, HolderBeatAnswer, LastSign, SessionId};
use super::server_choice::best_server;
use crate::ids::{NodeId, Term};
use beats::BeatRhythm;
pub use beats::HolderSight;

/// Up to this age a holder serves all.
const FRESH_MS: u64 = 2_000;
/// Up to this age it keeps its sessions, and takes no new ones.
const KEPT_MS: u64 = 6_000;
/// Over this time it then ends them, so that their nodes do not come to another server all at once.
const SPREAD_MS: u64 = 4_000;
/// Answers whose state the holder has not reached yet: eight seconds of them.
const UNREACHED_MAX: usize = 16;

/// Nodes are sent to a server that has been fresh for so long: one that comes and goes is not filled again each time.
pub const MOVE_AFTER_MS: u64 = 60_000;
/// Nodes that a holder sends elsewhere at a time, and how often: ten thousand of five servers are where they belong within
/// a minute, and a server opens a few hundred sessions a second at most.
const MOVES_MAX: usize = 50;
const MOVES_EVERY_MS: u64 = 1_000;
/// A node that did not go is told again after this long: it may not reach the other server, or be of a version that knows no
/// such word.
const MOVE_AGAIN_MS: u64 = 300_000;

/// A session whose node belongs to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub node: NodeId,
    pub session: SessionId,
    pub to: NodeId,
}

/// How fresh a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It serves all.
    Fresh,
    /// It keeps its sessions, answers reports as busy, and takes no new sessions.
    Stale,
    /// It ends its sessions.
    CutOff,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: SessionId,
    heard_ms: u64,
    /// The server to which its node was last told to go, and when.
    told_to_move: Option<(NodeId, u64)>,
}

impl Held {
    fn new(id: SessionId, heard_ms: u64) -> Self {
        Self {
            id,
            heard_ms,
            told_to_move: None,
        }
    }
}

#[derive(Clone, Debug)]
struct OnItsWay {
    seq: u64,
    sent_ms: u64,
    is_full: bool,
    /// What the beat tells the leader: who was heard and when, whose session broke, whose ended.
    heard: Vec<(NodeId, u64)>,
    broke: Vec<(NodeId, SessionId)>,
    ended: Vec<(NodeId, SessionId)>,
}

/// The sessions that one holder has, what of them it has not told the leader yet, and which leader answered it last.
/// The gateway's holder keeps one and makes its beats from it. Times are the holder's own monotonic ones.
#[derive(Clone, Debug)]
pub struct HeldSessions {
    boot: u64,
    seq: u64,
    sessions: BTreeMap<NodeId, Held>,
    /// Nodes that were heard since the leader was told.
    untold: BTreeSet<NodeId>,
    broke: BTreeMap<NodeId, Held>,
    ended: BTreeMap<NodeId, Held>,
    on_its_way: Option<OnItsWay>,
    /// The leader that answered last, its stamp, and when that was heard.
    leader: Option<(Term, u64, u64)>,
    is_full_wanted: bool,
    ttl_secs: u32,
    /// When beats were sent whose answers name a state that is not reached yet, and that state.
    unreached: VecDeque<(u64, u64)>,
    /// When the last beat was sent that was answered and whose state is reached.
    fresh_ms: Option<u64>,
    /// When nodes were last sent to other servers.
    moved_ms: Option<u64>,
    rhythm: BeatRhythm,
    /// The server that led when the last beat was made.
    led_by: Option<NodeId>,
}

impl HeldSessions {
    pub fn new(boot: u64) -> Self {
        Self {
            boot,
            seq: 0,
            sessions: BTreeMap::new(),
            untold: BTreeSet::new(),
            broke: BTreeMap::new(),
            ended: BTreeMap::new(),
            on_its_way: None,
            leader: None,
            is_full_wanted: true,
            ttl_secs: 0,
            unreached: VecDeque::new(),
            fresh_ms: None,
            moved_ms: None,
            rhythm: BeatRhythm::default(),
            led_by: None,
        }
    }

    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Whether a node has a session here.
    pub fn has(&self, node: NodeId) -> bool {
        self.sessions.contains_key(&node)
    }

    /// The time to live that nodes are granted, as the leader said last.
    pub fn ttl_secs(&self) -> u32 {
        self.ttl_secs
    }

    /// The leader has given this node a session here.
    pub fn opened(&mut self, node: NodeId, id: SessionId, now_ms: u64) {
        self.sessions.insert(node, Held::new(id, now_ms));
        self.untold.insert(node);
        self.broke.remove(&node);
        self.ended.remove(&node);
        self.rhythm.news(now_ms);
    }

    /// A node was heard. Nothing where it has no session here.
    pub fn heard(&mut self, node: NodeId, now_ms: u64) {
        if let Some(held) = self.sessions.get_mut(&node) {
            held.heard_ms = held.heard_ms.max(now_ms);
            self.untold.insert(node);
        }
    }

    /// This server has ended a session; the last sign of life in it was at `last_sign_ms`. That says nothing of its node.
    pub fn ended(&mut self, node: NodeId, id: SessionId, last_sign_ms: u64) {
        if let Some(held) = self.take(node, id, last_sign_ms) {
            self.ended.insert(node, held);
        }
    }

    /// A session broke; the last sign of life in it was at `last_sign_ms`.
    pub fn broke(&mut self, node: NodeId, id: SessionId, last_sign_ms: u64, now_ms: u64) {
        if let Some(held) = self.take(node, id, last_sign_ms) {
            self.broke.insert(node, held);
            self.rhythm.news(now_ms);
        }
    }

    /// The leader has given this node a session here, and the node went before it was told: the session broke.
    pub fn broke_unserved(&mut self, node: NodeId, id: SessionId, now_ms: u64) {
        if self.is_newest(node, id) {
            self.broke.insert(node, Held::new(id, now_ms));
            self.rhythm.news(now_ms);
        }
    }

    /// The leader has given this node a session that this server could not serve. That says nothing of its node.
    pub fn ended_unserved(&mut self, node: NodeId, id: SessionId, now_ms: u64) {
        if self.is_newest(node, id) {
            self.ended.insert(node, Held::new(id, now_ms));
        }
    }

    /// Whether the node has had no newer session here.
    fn is_newest(&self, node: NodeId, id: SessionId) -> bool {
        let all = [&self.sessions, &self.broke, &self.ended];
        all.iter().all(|of| of.get(&node).is_none_or(|held| held.id < id))
    }

    fn take(&mut self, node: NodeId, id: SessionId, last_sign_ms: u64) -> Option<Held> {
        self.sessions.get(&node).filter(|held| held.id == id)?;
        self.untold.remove(&node);
        let held = self.sessions.remove(&node)?;
        Some(Held {
            heard_ms: held.heard_ms.max(last_sign_ms),
            ..held
        })
    }

    /// What the leader has to hear now. Takes the place of a beat that was not answered.
    pub(super) fn next_beat(&mut self, now_ms: u64) -> HolderBeat {
        self.seq += 1;
        let is_full = self.is_full_wanted;
        let sign = |node: NodeId, held: &Held| LastSign {
            node,
            session: held.id,
            age_ms: now_ms.saturating_sub(held.heard_ms),
        };
        let heard: Vec<LastSign> = match is_full {
            true => self
                .sessions
                .iter()
                .map(|(node, held)| sign(*node, held))
                .collect(),
            false => self
                .untold
                .iter()
                .filter_map(|node| Some(sign(*node, self.sessions.get(node)?)))
                .collect(),
        };
        let signs = |of: &BTreeMap<NodeId, Held>| of.iter().map(|(node, held)| sign(*node, held)).collect();
        let (broke, ended): (Vec<LastSign>, Vec<LastSign>) = (signs(&self.broke), signs(&self.ended));
        let ids = |of: &[LastSign]| of.iter().map(|sign| (sign.node, sign.session)).collect();
        self.on_its_way = Some(OnItsWay {
            seq: self.seq,
            sent_ms: now_ms,
            is_full,
            heard: heard
                .iter()
                .map(|sign| (sign.node, now_ms.saturating_sub(sign.age_ms)))
                .collect(),
            broke: ids(&broke),
            ended: ids(&ended),
        });
        HolderBeat {
            boot: self.boot,
            seq: self.seq,
            echo: self.leader.map(|(_, stamp_ms, at_ms)| Echo {
                stamp_ms,
                since_ms: now_ms.saturating_sub(at_ms),
            }),
            is_full,
            heard,
            broke,
            ended,
            applied_index: None,
            is_fresh: false,
            hears_age_ms: None,
        }
    }

    /// Another server leads: it knows nothing of what the last one was told, and its stamps are of another clock.
    pub(super) fn leader_changed(&mut self) {
        self.leader = None;
        self.is_full_wanted = true;
        self.on_its_way = None;
        self.unreached.clear();
    }

    /// The leader has answered a beat. Gives the sessions of this server that are to end.
    pub(super) fn answered(&mut self, answer: &HolderBeatAnswer, now_ms: u64) -> Vec<(NodeId, SessionId)> {
        let Some(told) = self.on_its_way.take_if(|told| told.seq == answer.seq) else {
            return Vec::new();
        };
        // Its stamps are of its own clock: those of another leader say nothing to it.
        let is_same = self.leader.is_none_or(|(term, ..)| term == answer.term);
        self.leader = Some((answer.term, answer.stamp_ms, now_ms));
        self.is_full_wanted = answer.is_full_wanted || (!is_same && !told.is_full);
        self.ttl_secs = answer.ttl_secs;
        for (node, heard_ms) in told.heard {
            let is_newest = |held: &Held| held.heard_ms <= heard_ms;
            if self.sessions.get(&node).is_none_or(is_newest) {
                self.untold.remove(&node);
            }
        }
        forget(&mut self.broke, &told.broke);
        forget(&mut self.ended, &told.ended);
        if self.unreached.len() == UNREACHED_MAX {
            self.unreached.pop_front();
        }
        self.unreached.push_back((told.sent_ms, answer.read_index));
        let is_held =
            |(node, id): &&(NodeId, SessionId)| self.sessions.get(node).is_some_and(|held| held.id == *id);
        answer.end.iter().filter(is_held).copied().collect()
    }

    /// The sessions whose nodes are to go to another server now, where these are the ones that take sessions: those whose
    /// best server is another one, once that has been there for `after_ms`.
    pub fn moves(&mut self, own: NodeId, servers: &[FreshServer], after_ms: u64, now_ms: u64) -> Vec<Move> {
        let is_early = |moved_ms: u64| now_ms.saturating_sub(moved_ms) < MOVES_EVERY_MS;
        let is_own = |fresh: &FreshServer| fresh.server == own;
        let is_alone = servers.iter().all(is_own);
        if self.moved_ms.is_some_and(is_early) || is_alone || !servers.iter().any(is_own) {
            return Vec::new();
        }
        self.moved_ms = Some(now_ms);
        let fresh_for_ms = |to: NodeId| {
            let mut known = servers.iter();
            known
                .find(|fresh| fresh.server == to)
                .map(|fresh| fresh.fresh_for_ms)
        };
        // One that was told and did not go is told again at once where the server was gone in between.
        let is_told = |held: &Held, to: NodeId, for_ms: u64| {
            held.told_to_move.is_some_and(|(told, at_ms)| {
                let since_ms = now_ms.saturating_sub(at_ms);
                told == to && since_ms <= for_ms && since_ms < MOVE_AGAIN_MS
            })
        };
        let mut moves = Vec::new();
        for (node, held) in &mut self.sessions {
            let best = best_server(*node, servers.iter().map(|fresh| fresh.server));
            let Some(to) = best.filter(|best| *best != own) else {
                continue;
            };
            let lasting_ms = fresh_for_ms(to).filter(|for_ms| *for_ms >= after_ms);
            if lasting_ms.is_none_or(|for_ms| is_told(held, to, for_ms)) {
                continue;
            }
            held.told_to_move = Some((to, now_ms));
            moves.push(Move {
                node: *node,
                session: held.id,
                to,
            });
            if moves.len() == MOVES_MAX {
                break;
            }
        }
        moves
    }

    /// How fresh this holder is, of whose log so much is in its state.
    pub fn freshness(&mut self, now_ms: u64, applied_index: u64) -> Freshness {
        match self.age_ms(now_ms, applied_index) {
            Some(age_ms) if age_ms <= FRESH_MS => Freshness::Fresh,
            Some(age_ms) if age_ms <= KEPT_MS => Freshness::Stale,
            Some(_) | None => Freshness::CutOff,
        }
    }

    /// The sessions that are to end because this holder is cut off: more and more of them, until all are.
    pub fn cut_off(&mut self, now_ms: u64, applied_index: u64) -> Vec<(NodeId, SessionId)> {
        let over_ms = match self.age_ms(now_ms, applied_index) {
            Some(age_ms) if age_ms <= KEPT_MS => return Vec::new(),
            Some(age_ms) => age_ms - KEPT_MS,
            None => SPREAD_MS,
        };
        let is_over = |node: &NodeId| node.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) % SPREAD_MS <= over_ms;
        let sessions = self.sessions.iter().filter(|(node, _)| is_over(node));
        sessions.map(|(node, held)| (*node, held.id)).collect()
    }

    fn age_ms(&mut self, now_ms: u64, applied_index: u64) -> Option<u64> {
        while let Some((sent_ms, _)) = self.unreached.pop_front_if(|(_, index)| *index <= applied_index) {
            self.fresh_ms = Some(sent_ms);
        }
        Some(now_ms.saturating_sub(self.fresh_ms?))
    }
}

/// Forgets what the leader has heard of.
fn forget(of: &mut BTreeMap<NodeId, Held>, told: &[(NodeId, SessionId)]) {
    for (node, id) in told {
        if of.get(node).is_some_and(|held| held.id == *id) {
            of.remove(node);
        }
    }
}
