//! The leader's view of all sessions: who holds each node's newest one, and what that says of its lease.
//!
//! Holders report over a network that loses, repeats and reorders: the table keeps the latest sign of each session and
//! ignores older ids, so that none of that changes anything. The death or silence of a holder is never evidence against
//! its nodes before they have had the time to come back elsewhere.

mod crowd;
mod holder;
mod orphans;

use std::collections::{BTreeMap, BTreeSet};

use super::adaptive_ttl::AdaptiveTtlConfig;
use super::alarm::LeaseAlarm;
use super::holder_beat::{FreshServer, HolderBeat, HolderBeatAnswer, LastSign, SessionId};
use super::table::LeaseTable;
use crate::ids::{NodeId, Term};
use crowd::Crowd;
use holder::{Break, Holder, SILENCE_MS};
use orphans::Orphans;

/// How long after the last word of its holder a node may be without a session before that is evidence. A holder that
/// is cut off ends its sessions after 6 s, spread over 4 s, and a node finds another server within the longest pause
/// of 20 s: 30 s. A node leaves a holder that hangs after 25 s, and is elsewhere 15 s later: 40 s. So nobody who lives is
/// given up, and what died with its holder is noticed within a minute.
pub const ORPHAN_MS: u64 = 45_000;

/// A holder that has not been heard for this long is silent: it beats twice a second, and has 1.5 s to be answered.
const SILENT_MS: u64 = 3_000;

/// Below this many sessions half of them may well be one machine.
const HOLDER_SESSIONS_MIN: usize = 20;

/// A holder that has heard none of its nodes for this long is deaf: what it says of their silence is its own. It asks each
/// of its first hundred nodes every two to three seconds, and one that it does not hear is broken off after five to seven.
/// So one that hears is never deaf, and one that is deaf is known to be before the first break is older than a grace of ten
/// seconds.
const DEAF_MS: u64 = 5_000;

/// The silence of one node says nothing of its holder.
const DEAF_NODES_MIN: usize = 2;

/// What the passing of time brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsTicked {
    /// The nodes whose lease has run out, ascending. They have left the table.
    pub expired: Vec<NodeId>,
    /// For the log and the metrics.
    pub alarms: Vec<LeaseAlarm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    id: SessionId,
    /// None once its holder was silent for too long, or has broken it.
    holder: Option<NodeId>,
}

/// All sessions, and the leases that they renew.
#[derive(Clone, Debug)]
pub struct SessionTable {
    leases: LeaseTable,
    /// The leader's own node: alive by definition, and without a lease.
    own: Option<NodeId>,
    grace_ms: u64,
    term: Term,
    given: u64,
    sessions: BTreeMap<NodeId, Session>,
    holders: BTreeMap<NodeId, Holder>,
    orphans: Orphans,
    crowd: Crowd,
}

impl SessionTable {
    pub fn new(config: AdaptiveTtlConfig, own: Option<NodeId>) -> Self {
        Self {
            leases: LeaseTable::new(config),
            own,
            grace_ms: u64::from(config.grace_secs) * 1_000,
            term: Term::default(),
            given: 0,
            sessions: BTreeMap::new(),
            holders: BTreeMap::new(),
            orphans: Orphans::default(),
            crowd: Crowd::default(),
        }
    }

    /// This server leads from now on, and these nodes count as alive.
    pub fn begin_term(&mut self, term: Term, now_ms: u64, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        self.leases.after_election(now_ms, nodes.iter().copied());
        let due_ms = now_ms.saturating_add(ORPHAN_MS);
        self.orphans = Orphans::default();
        self.crowd = Crowd::default();
        for node in nodes {
            self.orphans.add(node, None, due_ms);
        }
        self.term = term;
        self.given = 0;
        self.sessions.clear();
        self.holders.clear();
    }

    pub fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    /// The node was heard by this server without a session: its lease lives on from now. Gives the time to live.
    pub fn renew(&mut self, node: NodeId, now_ms: u64) -> u32 {
        let ttl_secs = self.leases.next_ttl_secs();
        if self.own != Some(node) {
            self.leases.renew(node, now_ms, ttl_secs);
        }
        ttl_secs
    }

    /// A holder opens a session with a node, which ends an older one elsewhere. Gives its id and the time to live.
    pub fn open(&mut self, holder: NodeId, boot: u64, node: NodeId, now_ms: u64) -> (SessionId, u32) {
        self.meet(holder, boot, now_ms);
        if self.is_without_session(node) {
            self.orphans.came_back(node, now_ms);
        }
        self.given += 1;
        let id = SessionId {
            term: self.term,
            number: self.given,
        };
        let ttl_secs = self.renew(node, now_ms);
        self.hold(node, id, holder);
        (id, ttl_secs)
    }

    /// Whether a node that this leader or the last one knew has lost its session, as far as is known.
    fn is_without_session(&self, node: NodeId) -> bool {
        let Some(known) = self.sessions.get(&node) else {
            return self.orphans.is_unheard(node);
        };
        let holder = known.holder.and_then(|holder| self.holders.get(&holder));
        holder.is_none_or(|holder| holder.is_silent)
    }

    /// What a holder tells. A beat that comes late is answered and changes nothing.
    pub fn beat(
        &mut self,
        from: NodeId,
        beat: &HolderBeat,
        now_ms: u64,
    ) -> (HolderBeatAnswer, Option<LeaseAlarm>) {
        let mut answer = HolderBeatAnswer {
            term: self.term,
            seq: beat.seq,
            stamp_ms: now_ms,
            ttl_secs: self.leases.next_ttl_secs(),
            ..HolderBeatAnswer::default()
        };
        let holder = self.meet(from, beat.boot, now_ms);
        if beat.seq <= holder.seq {
            return (answer, None);
        }
        if now_ms.saturating_sub(holder.beat_ms) >= SILENT_MS {
            holder.steady_since_ms = now_ms;
            holder.fresh_since_ms = None;
        }
        holder.fresh_since_ms = beat.is_fresh.then(|| holder.fresh_since_ms.unwrap_or(now_ms));
        holder.applied_index = beat.applied_index.max(holder.applied_index);
        (holder.seq, holder.beat_ms, holder.is_silent) = (beat.seq, now_ms, false);
        holder.is_whole |= beat.is_full;
        answer.is_full_wanted = !holder.is_whole;
        let sent_ms = beat.echo.map(|echo| echo.stamp_ms.saturating_add(echo.since_ms));
        let sent_ms = sent_ms.map(|sent_ms| sent_ms.min(now_ms));
        let at_ms = |sign: &LastSign| sent_ms.map(|sent_ms| sent_ms.saturating_sub(sign.age_ms));
        // What a holder says before it has heard this leader was sent by now: the sign is no later than this.
        let by_ms = |sign: &LastSign| at_ms(sign).unwrap_or(now_ms.saturating_sub(sign.age_ms));
        if let Some(hears_ms) = beat
            .hears_age_ms
            .and_then(|age_ms| Some(sent_ms?.saturating_sub(age_ms)))
        {
            holder.hears_ms = holder.hears_ms.max(Some(hears_ms));
            holder.is_deaf &= now_ms.saturating_sub(hears_ms) >= DEAF_MS;
        }
        for sign in &beat.heard {
            if !self.heard(from, sign, at_ms(sign), now_ms) {
                answer.end.push((sign.node, sign.session));
            }
        }
        if beat.is_full {
            self.forget_unnamed(from, beat, now_ms);
        }
        for sign in &beat.ended {
            let last_sign_ms = by_ms(sign);
            if self.leave(from, sign) {
                self.orphan(sign.node, last_sign_ms, now_ms);
            }
        }
        let mut alarm = None;
        for sign in &beat.broke {
            let last_sign_ms = by_ms(sign);
            alarm = alarm.or(self.broke(from, sign, last_sign_ms, now_ms));
        }
        answer.servers = self.fresh_servers(now_ms);
        (answer, alarm)
    }

    /// The servers that have said lately that they take sessions.
    fn fresh_servers(&self, now_ms: u64) -> Vec<FreshServer> {
        let heard = self
            .holders
            .iter()
            .filter(|(_, holder)| now_ms.saturating_sub(holder.beat_ms) < SILENT_MS);
        let fresh = heard.filter_map(|(server, holder)| {
            Some(FreshServer {
                server: *server,
                fresh_for_ms: now_ms.saturating_sub(holder.fresh_since_ms?),
            })
        });
        fresh.collect()
    }

    /// A session with a holder broke; its last sign of life was at `last_sign_ms`. The same as in a beat, which says it
    /// again, and alone says it of a holder that this leader has not heard yet.
    pub fn session_broke(
        &mut self,
        holder: NodeId,
        (node, session): (NodeId, SessionId),
        last_sign_ms: u64,
        now_ms: u64,
    ) -> Option<LeaseAlarm> {
        if !self.holders.contains_key(&holder) {
            return None;
        }
        let sign = LastSign {
            node,
            session,
            age_ms: 0,
        };
        self.broke(holder, &sign, last_sign_ms, now_ms)
    }

    /// The holder as this process of it; with an earlier process its sessions went.
    fn meet(&mut self, from: NodeId, boot: u64, now_ms: u64) -> &mut Holder {
        let is_other = self.holders.get(&from).is_some_and(|holder| holder.boot != boot);
        if is_other && let Some(before) = self.holders.remove(&from) {
            for node in before.nodes {
                self.orphan(node, before.beat_ms, now_ms);
            }
        }
        self.holders
            .entry(from)
            .or_insert_with(|| Holder::new(boot, now_ms))
    }

    /// A node was heard in a session; whether that is the node's newest one.
    fn heard(&mut self, from: NodeId, sign: &LastSign, at_ms: Option<u64>, now_ms: u64) -> bool {
        let known = self.sessions.get(&sign.node).copied();
        if known.is_some_and(|known| known.id > sign.session) {
            return false;
        }
        let is_held = known.is_some_and(|known| known.id == sign.session && known.holder == Some(from));
        if !is_held {
            self.hold(sign.node, sign.session, from);
        }
        if let Some(at_ms) = at_ms.filter(|_| self.own != Some(sign.node)) {
            let ttl_secs = self.leases.next_ttl_secs();
            self.leases.renew_at(sign.node, at_ms, now_ms, ttl_secs);
        }
        true
    }

    /// A session broke by no wish of its holder: evidence against its node, unless too many break there or everywhere.
    fn broke(&mut self, from: NodeId, sign: &LastSign, last_sign_ms: u64, now_ms: u64) -> Option<LeaseAlarm> {
        if !self.leave(from, sign) {
            return None;
        }
        let alarm = self.judge_break(from, sign, last_sign_ms, now_ms);
        let (broken, sessions) = ((sign.node, sign.session), self.sessions.len());
        let times_ms = (now_ms, self.grace_ms);
        let Some(crowd) = self.crowd.broke(broken, last_sign_ms, times_ms, sessions) else {
            return alarm;
        };
        for (node, missed) in crowd.new {
            let known = self.sessions.get(&node);
            if known.is_some_and(|known| known.id == missed.session && known.holder.is_none()) {
                self.orphan(node, missed.last_sign_ms, now_ms);
            }
        }
        let broke = crowd.broke;
        alarm.or(crowd
            .is_news
            .then_some(LeaseAlarm::CrowdBroke { broke, sessions }))
    }

    /// What a break says by what else is known of its holder.
    fn judge_break(
        &mut self,
        from: NodeId,
        sign: &LastSign,
        last_sign_ms: u64,
        now_ms: u64,
    ) -> Option<LeaseAlarm> {
        let grace_ms = self.grace_ms;
        let holder = self.holders.get_mut(&from)?;
        if last_sign_ms < holder.steady_since_ms {
            self.orphan(sign.node, last_sign_ms, now_ms);
            return None;
        }
        // A node whose sessions break again and again is one node.
        holder.broke.retain(|broke| broke.node != sign.node);
        holder.broke.push_back(Break {
            told_ms: now_ms,
            last_sign_ms,
            node: sign.node,
            session: sign.session,
        });
        let is_old = |broke: &mut Break| broke.told_ms.saturating_add(grace_ms) < now_ms;
        while holder.broke.pop_front_if(is_old).is_some() {}
        let is_ill = holder.ill_until_ms.is_some_and(|until_ms| now_ms <= until_ms);
        let is_silence = holder.broke.back().is_some_and(Break::is_silence);
        let is_missed = holder.is_deaf && is_silence;
        let heard_nobody = |hears_ms: u64| now_ms.saturating_sub(hears_ms) >= SILENCE_MS;
        let is_doubtful = is_silence
            && holder.hears_ms.is_some_and(heard_nobody)
            && holder.others(from).len() >= DEAF_NODES_MIN;
        let (broke, sessions) = (holder.broke.len(), holder.broke.len() + holder.nodes.len());
        if broke > sessions / 2 && sessions >= HOLDER_SESSIONS_MIN {
            let is_news = !is_ill;
            holder.ill_until_ms = Some(now_ms.saturating_add(grace_ms));
            for broke in std::mem::take(&mut holder.broke) {
                let known = self.sessions.get(&broke.node);
                if known.is_some_and(|known| known.id == broke.session && known.holder.is_none()) {
                    self.orphan(broke.node, broke.last_sign_ms, now_ms);
                }
            }
            return is_news.then_some(LeaseAlarm::HolderIll {
                holder: from,
                broke,
                sessions,
            });
        }
        if is_ill || is_missed {
            self.orphan(sign.node, last_sign_ms, now_ms);
            return None;
        }
        if is_doubtful {
            // While its holder asked, it heard nobody: the node has the whole grace to come back.
            self.leases.excuse(sign.node, now_ms, now_ms);
            return self.leases.evidence_of_death(sign.node, now_ms, now_ms);
        }
        // The session broke after whatever was heard in it, however the two clocks compare.
        let renewed_ms = self.leases.renewed_ms(sign.node).unwrap_or(0);
        self.leases
            .evidence_of_death(sign.node, last_sign_ms.max(renewed_ms), now_ms)
    }

    /// A session is over at its holder; whether it was the node's newest one.
    fn leave(&mut self, from: NodeId, sign: &LastSign) -> bool {
        if self
            .sessions
            .get(&sign.node)
            .is_none_or(|known| known.id < sign.session)
        {
            // It was opened under another leader, and ended before this one heard of it.
            self.hold(sign.node, sign.session, from);
        }
        let Some(known) = self.sessions.get_mut(&sign.node) else {
            return false;
        };
        if known.id != sign.session || known.holder != Some(from) {
            return false;
        }
        known.holder = None;
        if let Some(holder) = self.holders.get_mut(&from) {
            holder.nodes.remove(&sign.node);
        }
        true
    }

    /// Sessions that this holder was known to have and does not name went without a word.
    fn forget_unnamed(&mut self, from: NodeId, beat: &HolderBeat, now_ms: u64) {
        let Some(holder) = self.holders.get_mut(&from) else {
            return;
        };
        let named = beat.heard.iter().chain(&beat.broke).chain(&beat.ended);
        let named: BTreeSet<NodeId> = named.map(|sign| sign.node).collect();
        let (kept, gone): (BTreeSet<NodeId>, BTreeSet<NodeId>) = std::mem::take(&mut holder.nodes)
            .into_iter()
            .partition(|node| named.contains(node));
        holder.nodes = kept;
        for node in gone {
            self.orphan(node, now_ms, now_ms);
        }
    }

    /// A node has no session since then, through no fault of its own that is known.
    fn orphan(&mut self, node: NodeId, since_ms: u64, now_ms: u64) {
        let due_ms = since_ms.saturating_add(ORPHAN_MS);
        if let Some(session) = self.sessions.get_mut(&node) {
            session.holder = None;
            self.leases.excuse(node, now_ms, due_ms);
            self.orphans.add(node, Some(session.id), due_ms);
        }
    }

    /// The node's newest session is this one, there.
    fn hold(&mut self, node: NodeId, id: SessionId, holder: NodeId) {
        self.crowd.came_back(node);
        let session = Session {
            id,
            holder: Some(holder),
        };
        let before = self.sessions.insert(node, session);
        if let Some(holder) = before
            .and_then(|before| before.holder)
            .and_then(|id| self.holders.get_mut(&id))
        {
            holder.nodes.remove(&node);
        }
        if let Some(holder) = self.holders.get_mut(&holder) {
            holder.nodes.insert(node);
        }
    }

    /// A server cannot be reached by the others; its last sign of life was at this time. Its beats are signs of its life
    /// as well, and what it said of its own node came with them: only a server that is silent in both ways is dead, and
    /// nobody waits for its node to come back elsewhere.
    pub fn peer_unreachable(&mut self, node: NodeId, last_sign_ms: u64, now_ms: u64) -> Option<LeaseAlarm> {
        let beat_ms = self.holders.get(&node).map(|holder| holder.beat_ms);
        if beat_ms.is_some_and(|beat_ms| now_ms.saturating_sub(beat_ms) < SILENT_MS) {
            return None;
        }
        let last_sign_ms = last_sign_ms.max(beat_ms.unwrap_or(0));
        self.leases.evidence_of_death(node, last_sign_ms, now_ms)
    }

    /// Forgets a node that was removed from the cluster.
    pub fn remove(&mut self, node: NodeId) {
        self.leases.remove(node);
        self.crowd.came_back(node);
        let session = self.sessions.remove(&node);
        if let Some(holder) = session
            .and_then(|session| session.holder)
            .and_then(|id| self.holders.get_mut(&id))
        {
            holder.nodes.remove(&node);
        }
    }

    /// Holders that are not heard: their nodes live on for as long as they may need to come back elsewhere.
    fn look_for_silent(&mut self, now_ms: u64) {
        let mut gone = Vec::new();
        let own = self.own;
        // The leader hears itself.
        let others = self.holders.iter_mut().filter(|(id, _)| own != Some(**id));
        for (id, holder) in others {
            let silent_ms = now_ms.saturating_sub(holder.beat_ms);
            if silent_ms >= SILENT_MS && !holder.is_silent {
                holder.is_silent = true;
                for node in &holder.nodes {
                    let until_ms = holder.beat_ms.saturating_add(ORPHAN_MS);
                    self.leases.excuse(*node, now_ms, until_ms);
                }
            }
            if silent_ms >= ORPHAN_MS {
                gone.push(*id);
            }
        }
        for id in gone {
            if let Some(holder) = self.holders.remove(&id) {
                for node in holder.nodes {
                    self.orphan(node, holder.beat_ms, now_ms);
                }
            }
        }
    }

    /// Holders that tell the leader that they hear nobody: their nodes live on for as long as they may need to come back
    /// elsewhere, and what was said against those that are missed already is taken back.
    fn look_for_deaf(&mut self, now_ms: u64) -> Vec<LeaseAlarm> {
        let (mut alarms, mut missed) = (Vec::new(), Vec::new());
        for (id, holder) in &mut self.holders {
            let Some(hears_ms) = holder.hears_ms.filter(|_| !holder.is_deaf) else {
                continue;
            };
            if now_ms.saturating_sub(hears_ms) < DEAF_MS {
                continue;
            }
            let others = holder.others(*id);
            if others.len() < DEAF_NODES_MIN {
                continue;
            }
            holder.is_deaf = true;
            for node in others.iter().filter(|node| holder.nodes.contains(node)) {
                self.leases
                    .excuse(*node, now_ms, hears_ms.saturating_add(ORPHAN_MS));
            }
            missed.extend(holder.broke.iter().copied().filter(Break::is_silence));
            alarms.push(LeaseAlarm::HolderDeaf {
                holder: *id,
                sessions: others.len(),
            });
        }
        for broke in missed {
            let known = self.sessions.get(&broke.node);
            if known.is_some_and(|known| known.id == broke.session && known.holder.is_none()) {
                self.orphan(broke.node, broke.last_sign_ms, now_ms);
            }
        }
        alarms
    }

    /// Time has passed. The caller's timer was due at `due_ms`. Of a node that no holder has named since the election it is
    /// asked whether it has sessions at all: workers over HTTP have none.
    pub fn advance(
        &mut self,
        now_ms: u64,
        due_ms: u64,
        has_sessions: impl Fn(NodeId) -> bool,
    ) -> SessionsTicked {
        self.look_for_silent(now_ms);
        let mut alarms = self.look_for_deaf(now_ms);
        let (sessions, leases) = (&self.sessions, &self.leases);
        let due = self.orphans.due(now_ms, |orphan| {
            let known = sessions.get(&orphan.node);
            match orphan.session {
                Some(session) => known.is_some_and(|known| known.id == session && known.holder.is_none()),
                None => known.is_none() && leases.is_unheard(orphan.node) && has_sessions(orphan.node),
            }
        });
        for (node, until_ms) in due.put_off {
            self.leases.excuse(node, now_ms, until_ms);
        }
        for orphan in due.missed {
            alarms.extend(self.leases.evidence_of_death(orphan.node, orphan.due_ms, now_ms));
        }
        let ticked = self.leases.advance(now_ms, due_ms);
        alarms.extend(ticked.alarm);
        for node in &ticked.expired {
            // Its session may live on and be heard again; nobody waits for that.
            if self
                .sessions
                .get(node)
                .is_some_and(|session| session.holder.is_none())
            {
                self.sessions.remove(node);
            }
        }
        SessionsTicked {
            expired: ticked.expired,
            alarms,
        }
    }
}

#[cfg(test)]
mod tests;
