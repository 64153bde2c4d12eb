//! What nodes ask the leader for through their holder, until it is on its way and answered: gathered into messages, bounded,
//! and given up in time. A node that asks for much takes neither the memory nor the turn of the others.
//!
//! The gateway's holder has one for sessions and one for reports, and the simulator's servers have the same.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::ids::NodeId;

/// How long what a holder asks the leader for is gathered, so that one round among the servers serves them all.
pub const GATHER_MS: u64 = 20;

/// How long a holder waits for the leader, and for its own state to follow, before its node is told to try again: below
/// the five seconds that a node waits for its session.
pub const LEADER_ANSWER_MAX_MS: u64 = 4_000;

/// Sessions or reports in one message to the leader, and their bytes, unless one alone is longer.
pub const TOGETHER_MAX: usize = 256;
pub const TOGETHER_BYTES_MAX: usize = 512 * 1024;

/// Messages of each kind to the leader that are on their way at a time.
pub const MESSAGES_AT_ONCE: usize = 2;

/// Reports that wait for their message. More are told to try again.
pub const REPORTS_WAITING_MAX: usize = 1_024;

/// Sessions that wait for theirs: half of what the largest cluster has on one of three servers, all of which may come within
/// the second in which nobody leads. At some 500 bytes each, 4 MiB.
pub const SESSIONS_WAITING_MAX: usize = 8_192;

/// Reports of one node that a holder passes on at a time: a node sends one and a heartbeat, and may send each again.
const REPORTS_OF_NODE_MAX: usize = 4;

/// The bytes of all that a holder passes on at a time: eight of the largest reports. More are told to try again.
pub const PASSED_ON_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What an outbox is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxKind {
    /// Nodes that want a session. They come many at a time, so that a message waits a moment for others.
    Sessions,
    /// Reports and heartbeats, which gather while earlier ones are on their way.
    Reports,
}

/// Why something cannot be passed on now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFull {
    /// So much of this node is on its way already.
    OfNode,
    OfAll,
}

#[derive(Debug)]
struct Waiting<T> {
    node: NodeId,
    size_bytes: usize,
    goes_at_ms: u64,
    until_ms: u64,
    asked: T,
}

/// What goes to the leader in one message.
#[derive(Debug)]
pub struct Parcel<T> {
    pub id: u64,
    /// The answer is of use until then.
    pub until_ms: u64,
    /// Empty where all who waited are late.
    pub asked: Vec<T>,
    /// Whose time was over before there was room in a message: they are told to try again.
    pub late: Vec<T>,
}

/// What of nodes waits for the leader, and what is on its way. The next message is made by [`Outbox::next`].
#[derive(Debug)]
pub struct Outbox<T> {
    kind: OutboxKind,
    waiting: VecDeque<Waiting<T>>,
    last_parcel: u64,
    /// Whose it is, and how long, of each message that is on its way.
    on_its_way: BTreeMap<u64, Vec<(NodeId, usize)>>,
    size_bytes: usize,
    of_nodes: BTreeMap<NodeId, usize>,
}

impl<T> Outbox<T> {
    pub fn new(kind: OutboxKind) -> Self {
        Self {
            kind,
            waiting: VecDeque::new(),
            last_parcel: 0,
            on_its_way: BTreeMap::new(),
            size_bytes: 0,
            of_nodes: BTreeMap::new(),
        }
    }

    /// A node asks for something, which is to go from `goes_at_ms` on, and whose answer it waits for until `until_ms`.
    pub fn enter(
        &mut self,
        (node, size_bytes): (NodeId, usize),
        asked: T,
        (goes_at_ms, until_ms): (u64, u64),
    ) -> Result<(), OutboxFull> {
        let of_node = self.of_nodes.get(&node).copied().unwrap_or(0);
        if self.kind == OutboxKind::Reports && of_node >= REPORTS_OF_NODE_MAX {
            return Err(OutboxFull::OfNode);
        }
        let is_long = self.size_bytes.saturating_add(size_bytes) > PASSED_ON_BYTES_MAX;
        if is_long || self.waiting.len() >= self.waiting_max() {
            return Err(OutboxFull::OfAll);
        }
        self.size_bytes += size_bytes;
        *self.of_nodes.entry(node).or_default() += 1;
        self.waiting.push_back(Waiting {
            node,
            size_bytes,
            goes_at_ms,
            until_ms,
            asked,
        });
        Ok(())
    }

    fn waiting_max(&self) -> usize {
        match self.kind {
            OutboxKind::Sessions => SESSIONS_WAITING_MAX,
            OutboxKind::Reports => REPORTS_WAITING_MAX,
        }
    }

    /// When there is a message to make; none before something enters or is done.
    pub fn wakes_at_ms(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        match self.on_its_way.len() < MESSAGES_AT_ONCE {
            true => Some(self.is_gathered_at_ms(first)),
            false => None,
        }
    }

    fn is_gathered_at_ms(&self, first: &Waiting<T>) -> u64 {
        match self.kind {
            OutboxKind::Sessions => first.goes_at_ms.saturating_add(GATHER_MS),
            OutboxKind::Reports => first.goes_at_ms,
        }
    }

    /// The next message, where there is one to make. Who has gone meanwhile is left out. It is on its way until
    /// [`Outbox::done`].
    pub fn next(&mut self, now_ms: u64, has_gone: impl Fn(&T) -> bool) -> Option<Parcel<T>> {
        self.wakes_at_ms().filter(|at_ms| *at_ms <= now_ms)?;
        let (mut asked, mut late, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut size_bytes, mut first_until_ms, mut last_until_ms) = (0_usize, u64::MAX, 0);
        while asked.len() < TOGETHER_MAX {
            let has_room = |next: &mut Waiting<T>| {
                asked.is_empty() || size_bytes.saturating_add(next.size_bytes) <= TOGETHER_BYTES_MAX
            };
            let Some(next) = self.waiting.pop_front_if(has_room) else {
                break;
            };
            let until_ms = self.answered_by_ms(next.until_ms);
            if has_gone(&next.asked) {
                self.forget(next.node, next.size_bytes);
            } else if until_ms <= now_ms {
                self.forget(next.node, next.size_bytes);
                late.push(next.asked);
            } else {
                size_bytes = size_bytes.saturating_add(next.size_bytes);
                first_until_ms = first_until_ms.min(until_ms);
                last_until_ms = last_until_ms.max(until_ms);
                places.push((next.node, next.size_bytes));
                asked.push(next.asked);
            }
        }
        self.last_parcel += 1;
        if !asked.is_empty() {
            self.on_its_way.insert(self.last_parcel, places);
        }
        Some(Parcel {
            id: self.last_parcel,
            until_ms: match self.kind {
                OutboxKind::Sessions => first_until_ms,
                OutboxKind::Reports => last_until_ms,
            },
            asked,
            late,
        })
    }

    /// Who asked for a session is still there when the time for the answer is over: that a node went is no fault of a slow
    /// leader.
    fn answered_by_ms(&self, until_ms: u64) -> u64 {
        match self.kind {
            OutboxKind::Sessions => until_ms.saturating_sub(GATHER_MS),
            OutboxKind::Reports => until_ms,
        }
    }

    /// A message is answered or given up. Until then what is in it counts, also where its node has gone.
    pub fn done(&mut self, parcel: u64) {
        for (node, size_bytes) in self.on_its_way.remove(&parcel).into_iter().flatten() {
            self.forget(node, size_bytes);
        }
    }

    fn forget(&mut self, node: NodeId, size_bytes: usize) {
        self.size_bytes -= size_bytes;
        let left = self.of_nodes.get_mut(&node).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            self.of_nodes.remove(&node);
        }
    }
}
