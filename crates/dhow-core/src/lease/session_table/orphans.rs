//! Nodes without a session, and for how long each is waited for. Where thousands have to come back at once, servers take
//! them as fast as they can: those who wait for their turn are waited for while others of them come back.

use std::collections::{BTreeSet, VecDeque};

use super::super::holder_beat::SessionId;
use crate::ids::NodeId;

/// Over this time it is counted how many come back. One that was sent away has tried again by its end: it pauses for 20 s
/// at most, of which the grace that follows covers ten, and has five to be served.
const RETURNS_MS: u64 = 15_000;

/// Fewer than this many in that time are no crowd, and nobody waits for a turn.
const CROWD_MIN: usize = 100;

/// With fewer than one for so many that are missed, the rest is not about to come.
const MISSED_FOR_EACH: usize = 50;

/// How much longer than usual one is waited for at most: below the time that every node has after an election.
const LONGER_MAX_MS: u64 = 240_000;

/// How long one is waited for before it is asked again whether others come back.
const AGAIN_MS: u64 = 2_000;

/// A node whose session went with its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Orphan {
    /// From then on it is evidence that it has no session.
    pub due_ms: u64,
    pub node: NodeId,
    /// None for a node that the last leader knew and this one has not heard of.
    pub session: Option<SessionId>,
    /// To when that may be put off.
    until_ms: u64,
}

/// The nodes that are waited for, in the order of their times, and how many of them have come back lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans {
    waited_for: BTreeSet<Orphan>,
    /// Those that the last leader knew and that have not come to this one.
    unheard: BTreeSet<NodeId>,
    /// How many came back, by the second, within the last [`RETURNS_MS`].
    returns: VecDeque<(u64, usize)>,
}

/// What became of those whose time was over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// They are missed.
    pub missed: Vec<Orphan>,
    /// They have until then.
    pub put_off: Vec<(NodeId, u64)>,
}

impl Orphans {
    pub fn add(&mut self, node: NodeId, session: Option<SessionId>, due_ms: u64) {
        if session.is_none() {
            self.unheard.insert(node);
        }
        self.waited_for.insert(Orphan {
            due_ms,
            node,
            session,
            until_ms: due_ms.saturating_add(LONGER_MAX_MS),
        });
    }

    /// Whether the last leader knew a node that has had no session since.
    pub fn is_unheard(&self, node: NodeId) -> bool {
        self.unheard.contains(&node)
    }

    /// One that was without a session has one again.
    pub fn came_back(&mut self, node: NodeId, now_ms: u64) {
        self.unheard.remove(&node);
        let second = now_ms / 1_000;
        match self.returns.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            Some(_) | None => self.returns.push_back((second, 1)),
        }
        self.forget_returns(now_ms);
    }

    fn forget_returns(&mut self, now_ms: u64) {
        let is_old = |(second, _): &mut (u64, usize)| *second * 1_000 + RETURNS_MS < now_ms;
        while self.returns.pop_front_if(is_old).is_some() {}
    }

    /// Those whose time is over by now and who are still without a session.
    pub fn due(&mut self, now_ms: u64, is_orphan: impl Fn(&Orphan) -> bool) -> Due {
        let mut due = Due::default();
        while let Some(orphan) = self.waited_for.first().copied() {
            if orphan.due_ms > now_ms {
                break;
            }
            self.waited_for.remove(&orphan);
            if is_orphan(&orphan) {
                due.missed.push(orphan);
            }
        }
        self.forget_returns(now_ms);
        let returns: usize = self.returns.iter().map(|(_, count)| count).sum();
        if returns < CROWD_MIN || returns.saturating_mul(MISSED_FOR_EACH) < due.missed.len() {
            return due;
        }
        let due_ms = now_ms.saturating_add(AGAIN_MS);
        let put_off = due.missed.extract_if(.., |orphan| now_ms < orphan.until_ms);
        for orphan in put_off {
            due.put_off.push((orphan.node, due_ms));
            self.waited_for.insert(Orphan { due_ms, ..orphan });
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans(count: u64) -> Orphans {
        let mut orphans = Orphans::default();
        (0..count).for_each(|node| orphans.add(NodeId(node), None, 45_000));
        orphans
    }

    fn come_back(orphans: &mut Orphans, count: usize, now_ms: u64) {
        (0..count).for_each(|node| orphans.came_back(NodeId(10_000 + node as u64), now_ms));
    }

    #[test]
    fn few_that_come_back_put_nothing_off() {
        let mut orphans = orphans(10);
        come_back(&mut orphans, CROWD_MIN - 1, 44_000);
        assert_eq!(orphans.due(44_999, |_| true), Due::default());
        assert_eq!(orphans.due(45_000, |orphan| orphan.node.0 < 3).missed.len(), 3);
        assert_eq!(
            orphans.due(100_000, |_| true),
            Due::default(),
            "each is told once"
        );
    }

    #[test]
    fn the_rest_of_a_crowd_is_waited_for_while_it_comes_and_no_longer() {
        let mut orphans = orphans(500);
        for second in 20..60 {
            come_back(&mut orphans, 50, second * 1_000);
        }
        let mut missed_ms = None;
        for now_ms in (45_000..120_000).step_by(500) {
            let due = orphans.due(now_ms, |_| true);
            assert!(due.missed.is_empty() || due.put_off.is_empty());
            if !due.missed.is_empty() {
                assert_eq!(due.missed.len(), 500);
                missed_ms = Some(now_ms);
            }
        }
        let missed_ms = missed_ms.unwrap();
        assert!(
            (72_000..=59_000 + RETURNS_MS + AGAIN_MS).contains(&missed_ms),
            "{missed_ms}"
        );
    }

    #[test]
    fn a_trickle_says_nothing_of_thousands_and_no_crowd_puts_it_off_for_ever() {
        let mut many = orphans(CROWD_MIN as u64 * MISSED_FOR_EACH as u64 + 1);
        come_back(&mut many, CROWD_MIN, 44_000);
        assert!(many.due(45_000, |_| true).put_off.is_empty());
        let mut few = orphans(1);
        let mut missed_ms = None;
        for now_ms in (45_000..400_000).step_by(500) {
            come_back(&mut few, CROWD_MIN, now_ms);
            if !few.due(now_ms, |_| true).missed.is_empty() {
                missed_ms = Some(now_ms);
            }
        }
        let until_ms = 45_000 + LONGER_MAX_MS;
        assert!((until_ms..=until_ms + AGAIN_MS).contains(&missed_ms.unwrap()));
    }
}
