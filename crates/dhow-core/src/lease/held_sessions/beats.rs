//! When a holder tells the leader of its sessions: in a steady rhythm, and soon after one has opened or broken. One beat is
//! on its way at a time.

use super::super::holder_beat::{HolderBeat, HolderBeatAnswer, SessionId};
use super::{Freshness, HeldSessions};
use crate::ids::NodeId;
use crate::lease::outbox::GATHER_MS;

/// How often a holder tells the leader whom it has heard.
const BEAT_EVERY_MS: u64 = 500;

/// How long it waits for the answer before it tells it again.
const BEAT_ANSWER_MAX_MS: u64 = 1_500;

/// When the next beat is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BeatRhythm {
    due_ms: u64,
    /// A beat is on its way, whose answer is of use until then.
    awaited_until_ms: Option<u64>,
    /// Sessions have opened or broken since it went, the first of them then.
    news_ms: Option<u64>,
}

impl BeatRhythm {
    /// A session opened or broke: the leader hears of it soon, together with what else happens now.
    pub fn news(&mut self, now_ms: u64) {
        match self.awaited_until_ms {
            Some(_) => self.news_ms = self.news_ms.or(Some(now_ms)),
            None => self.due_ms = self.due_ms.min(now_ms.saturating_add(GATHER_MS)),
        }
    }

    fn over(&mut self, now_ms: u64) {
        let pause_ms = match self.news_ms.take() {
            Some(_) => GATHER_MS,
            None => BEAT_EVERY_MS,
        };
        self.awaited_until_ms = None;
        self.due_ms = now_ms.saturating_add(pause_ms);
    }
}

/// What a holder knows beside its sessions when it makes a beat.
#[derive(Clone, Copy, Debug)]
pub struct HolderSight {
    pub now_ms: u64,
    /// The server that leads, as far as this one knows.
    pub leader: Option<NodeId>,
    /// How much of the log is in its state.
    pub applied_index: u64,
    /// When anything last came from any node but its own.
    pub heard_ms: Option<u64>,
}

impl HeldSessions {
    /// When there is a beat to make, or one to give up that is on its way.
    pub fn beat_due_ms(&self) -> u64 {
        self.rhythm.awaited_until_ms.unwrap_or(self.rhythm.due_ms)
    }

    /// Makes a beat where one is due, and says until when its answer is of use. Whoever calls says then that it is over.
    pub fn begin_beat(&mut self, sight: &HolderSight) -> Option<(HolderBeat, u64)> {
        let HolderSight {
            now_ms,
            leader,
            applied_index,
            heard_ms,
        } = *sight;
        if self.rhythm.awaited_until_ms.is_some() || now_ms < self.rhythm.due_ms {
            return None;
        }
        if self.led_by != leader {
            self.led_by = leader;
            self.leader_changed();
        }
        let is_fresh = self.freshness(now_ms, applied_index) == Freshness::Fresh;
        let beat = HolderBeat {
            applied_index: Some(applied_index),
            is_fresh,
            hears_age_ms: heard_ms.map(|heard_ms| now_ms.saturating_sub(heard_ms)),
            ..self.next_beat(now_ms)
        };
        let until_ms = now_ms.saturating_add(BEAT_ANSWER_MAX_MS);
        self.rhythm.awaited_until_ms = Some(until_ms);
        Some((beat, until_ms))
    }

    /// The beat that was on its way is over: answered, refused or given up. Gives the sessions of this server that are to
    /// end, because their nodes have newer ones. An answer to an earlier beat changes nothing.
    pub fn beat_over(&mut self, answer: Option<&HolderBeatAnswer>, now_ms: u64) -> Vec<(NodeId, SessionId)> {
        if answer.is_some_and(|answer| answer.seq != self.seq) {
            return Vec::new();
        }
        if self.rhythm.awaited_until_ms.is_some() {
            self.rhythm.over(now_ms);
        }
        answer.map_or_else(Vec::new, |answer| self.answered(answer, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Term;

    const SESSION: SessionId = SessionId {
        term: Term(1),
        number: 1,
    };

    fn sight(now_ms: u64) -> HolderSight {
        HolderSight {
            now_ms,
            leader: Some(NodeId(1)),
            applied_index: 5,
            heard_ms: None,
        }
    }

    #[test]
    fn beats_come_in_a_rhythm_one_at_a_time_and_soon_after_news() {
        let mut held = HeldSessions::new(7);
        let (first, until_ms) = held.begin_beat(&sight(0)).unwrap();
        assert_eq!(
            (until_ms, held.beat_due_ms()),
            (BEAT_ANSWER_MAX_MS, BEAT_ANSWER_MAX_MS)
        );
        assert!(held.begin_beat(&sight(1_000)).is_none());
        let answer = HolderBeatAnswer {
            seq: first.seq,
            ..HolderBeatAnswer::default()
        };
        held.beat_over(Some(&answer), 40);
        assert_eq!(held.beat_due_ms(), 40 + BEAT_EVERY_MS);

        held.opened(NodeId(9), SESSION, 100);
        held.opened(NodeId(8), SESSION, 110);
        assert_eq!(held.beat_due_ms(), 100 + GATHER_MS);
        let (second, _) = held.begin_beat(&sight(120)).unwrap();
        assert_eq!(second.heard.len(), 2);
        // What breaks while a beat is on its way is told after it.
        held.broke(NodeId(9), SESSION, 121, 125);
        held.beat_over(Some(&answer), 130);
        assert!(
            held.begin_beat(&sight(200)).is_none(),
            "an earlier answer ends no later beat"
        );
        held.beat_over(None, 1_620);
        assert_eq!(held.beat_due_ms(), 1_620 + GATHER_MS);
        let (third, _) = held.begin_beat(&sight(1_640)).unwrap();
        assert_eq!(third.broke.len(), 1);
    }

    #[test]
    fn another_leader_is_told_of_every_session() {
        let mut held = HeldSessions::new(7);
        held.opened(NodeId(9), SESSION, 0);
        let (first, _) = held.begin_beat(&sight(GATHER_MS)).unwrap();
        let answer = HolderBeatAnswer {
            seq: first.seq,
            ..HolderBeatAnswer::default()
        };
        held.beat_over(Some(&answer), 30);
        let (second, _) = held.begin_beat(&sight(600)).unwrap();
        assert!(!second.is_full);
        held.beat_over(None, 700);
        let elsewhere = HolderSight {
            leader: Some(NodeId(2)),
            ..sight(1_300)
        };
        assert!(held.begin_beat(&elsewhere).unwrap().0.is_full);
    }
}
