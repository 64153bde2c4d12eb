//! Sessions that break at about the same time, wherever they were. Machines die one by one, or as the few that share a
//! rack; where a tenth of thousands of sessions break, the servers or the network have more to do than they can, and whoever
//! were given up would make it worse: its replicas start elsewhere, on nodes that are about to lose their sessions too.

use std::collections::{BTreeMap, BTreeSet};

use super::super::holder_beat::SessionId;
use crate::ids::NodeId;

/// Fewer than this many may well be machines.
const CROWD_MIN: usize = 200;

/// Fewer than one session of so many too.
const CROWD_SHARE: usize = 10;

/// A session that broke, and whose node has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub session: SessionId,
    pub last_sign_ms: u64,
    told_ms: u64,
    is_excused: bool,
}

/// The nodes whose sessions broke within the last grace and who have not come back.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    missed: BTreeMap<NodeId, Missed>,
    by_time: BTreeSet<(u64, NodeId)>,
}

/// That it is a crowd that is missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Those who are not waited for yet.
    pub new: Vec<(NodeId, Missed)>,
    /// Whether that was not known before.
    pub is_news: bool,
    pub broke: usize,
}

impl Crowd {
    pub fn came_back(&mut self, node: NodeId) {
        if let Some(missed) = self.missed.remove(&node) {
            self.by_time.remove(&(missed.told_ms, node));
        }
    }

    /// A session broke; says whether it was one of a crowd.
    pub fn broke(
        &mut self,
        (node, session): (NodeId, SessionId),
        last_sign_ms: u64,
        (now_ms, grace_ms): (u64, u64),
        sessions: usize,
    ) -> Option<Missing> {
        while let Some(&(told_ms, old)) = self.by_time.first() {
            if told_ms.saturating_add(grace_ms) >= now_ms {
                break;
            }
            self.came_back(old);
        }
        self.came_back(node);
        let missed = Missed {
            session,
            last_sign_ms,
            told_ms: now_ms,
            is_excused: false,
        };
        self.missed.insert(node, missed);
        self.by_time.insert((now_ms, node));
        let broke = self.missed.len();
        (broke >= CROWD_MIN && broke > sessions / CROWD_SHARE).then(|| self.excuse(broke))
    }

    fn excuse(&mut self, broke: usize) -> Missing {
        let is_news = self.missed.values().all(|missed| !missed.is_excused);
        let new = self.missed.iter_mut().filter(|(_, missed)| !missed.is_excused);
        let new = new.map(|(node, missed)| {
            missed.is_excused = true;
            (*node, *missed)
        });
        Missing {
            new: new.collect(),
            is_news,
            broke,
        }
    }
}
