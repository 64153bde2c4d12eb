//! Which ids of nodes are spoken for. An id names one node for good: it is given once, and a removed node's is not
//! given again. Ids up to `State::last_node_id` count as given, but for those that are kept for a server.

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use super::{NodeRole, State};
use crate::command::Refused;
use crate::ids::NodeId;
use crate::spec::TimeSpan;
use crate::time::ClusterTime;

/// What [`State::last_node_id`] alone does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeIds {
    /// Above the last id that was given in turn: wished for, or chosen by whoever configured a server.
    pub used: OrdSet<NodeId>,
    /// Kept for servers, configured or taken in, whether they have come yet or not: no worker is given one.
    pub servers: OrdSet<NodeId>,
    /// Ranges that were stepped over, by their first id, because this history may lack whom they were given to. No worker
    /// is given one; a server that is chosen one has it.
    #[serde(deserialize_with = "crate::maps::read")]
    pub skipped: OrdMap<NodeId, NodeId>,
    /// Nodes that were removed and whose certificates may still be good, with the moment from which none is: the proxies of
    /// the others do not let them in.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub removed: OrdMap<NodeId, ClusterTime>,
}

impl NodeIds {
    fn is_skipped(&self, id: NodeId) -> bool {
        self.skipped.get_prev(&id).is_some_and(|(_, last)| *last >= id)
    }

    /// Notes a removed node for as long as a certificate of its may be good, and forgets those whose time is over. Where
    /// there are too many, the one whose certificate ends first is forgotten.
    fn note_removed(&mut self, id: NodeId, role: NodeRole, now: ClusterTime) {
        crate::maps::retain(&mut self.removed, |_, until| *until > now);
        self.removed.insert(id, now.after(certificate_span(role)));
        while self.removed.len() > State::REMOVED_MAX {
            let first = self.removed.iter().min_by_key(|(id, until)| (**until, **id));
            let Some(first) = first.map(|(id, _)| *id) else {
                return;
            };
            self.removed.remove(&first);
        }
    }

    /// The id is given for sure from now on.
    fn unskip(&mut self, id: NodeId) {
        let Some((first, last)) = self.skipped.get_prev(&id).map(|(first, last)| (*first, *last)) else {
            return;
        };
        if last < id {
            return;
        }
        self.skipped.remove(&first);
        if first < id {
            self.skipped.insert(first, NodeId(id.0 - 1));
        }
        if last > id {
            self.skipped.insert(id.next(), last);
        }
    }
}

/// How long a certificate that a node has when it is removed can be good, and an hour for clocks: those of workers are made
/// for a day, those of servers and peers for a week.
fn certificate_span(role: NodeRole) -> TimeSpan {
    const HOUR_SECS: u64 = 3_600;
    TimeSpan::from_secs(match role {
        NodeRole::Worker => 25 * HOUR_SECS,
        NodeRole::Server | NodeRole::Peer => (7 * 24 + 1) * HOUR_SECS,
    })
}

impl NodeId {
    /// The highest id. JSON readers that know numbers as floating point tell all ids up to this one apart.
    pub const MAX: Self = Self(1 << 53);

    /// Whether a node can have it.
    pub fn is_in_range(self) -> bool {
        (Self(1)..=Self::MAX).contains(&self)
    }
}

impl State {
    /// From this level on ids are kept for servers, and what is not in turn is remembered.
    pub(crate) const KEEPS_NODE_IDS: u32 = 2;
    /// From this level on it is noted which internal token of a worker was shown.
    pub const COUNTS_INTERNAL_TOKENS: u32 = 2;
    /// From this level on removed nodes are noted.
    const NOTES_REMOVED: u32 = 3;
    /// Removed nodes that are noted: as many as a cluster of 10,000 workers loses in a day that replaces all of them, and
    /// more than half of them a second time.
    pub(crate) const REMOVED_MAX: usize = 16_384;
    /// Ids that are kept for servers: a cluster has seven, and replaces one now and then.
    const SERVER_IDS_MAX: usize = 1_000;

    /// Whether ids are kept for servers, and what is given out of turn is remembered.
    pub fn keeps_node_ids(&self) -> bool {
        self.feature_level >= Self::KEEPS_NODE_IDS
    }

    /// Whether some node has or had the id, or may have had it.
    fn is_node_id_used(&self, id: NodeId) -> bool {
        id <= self.last_node_id || self.node_ids.used.contains(&id) || self.nodes.contains_key(&id)
    }

    /// Whether a node of this history has or had the id.
    pub fn is_node_id_known(&self, id: NodeId) -> bool {
        self.is_node_id_used(id) && !self.node_ids.is_skipped(id)
    }

    /// Steps over all ids up to this one: they may have been given since this state was saved.
    pub fn skip_node_ids(&mut self, to: NodeId) {
        if self.keeps_node_ids() && to > self.last_node_id {
            let mut first = self.last_node_id.next();
            let used: Vec<NodeId> = self
                .node_ids
                .used
                .iter()
                .copied()
                .filter(|id| *id <= to)
                .collect();
            for id in used {
                if first < id {
                    self.node_ids.skipped.insert(first, NodeId(id.0 - 1));
                }
                first = id.next();
            }
            if first <= to {
                self.node_ids.skipped.insert(first, to);
            }
        }
        self.give_node_id(to, true);
    }

    /// A node has gone for good: it is not to be believed any more, though its certificate may still be good.
    pub(crate) fn note_removed(&mut self, id: NodeId, role: NodeRole) {
        if self.feature_level >= Self::NOTES_REMOVED {
            self.node_ids.note_removed(id, role, self.time);
        }
    }

    /// A server has gone for good, and its id with it.
    pub(crate) fn forget_server_id(&mut self, id: NodeId) {
        self.node_ids.servers.remove(&id);
        self.node_ids.unskip(id);
    }

    /// Whether a new worker may be given just this id.
    pub fn is_node_id_free(&self, id: NodeId) -> bool {
        let is_free = !self.is_node_id_used(id) && !self.node_ids.servers.contains(&id);
        id.is_in_range() && is_free && self.node_ids.used.len() < self.used_ids_max()
    }

    /// Ids out of turn that are remembered: twice as many as there may be nodes. Beyond it no wish is granted.
    fn used_ids_max(&self) -> usize {
        2 * self.nodes_max()
    }

    /// The next id in turn that nobody has.
    pub(crate) fn fresh_node_id(&self) -> Result<NodeId, Refused> {
        let mut id = self.last_node_id.next();
        while id.is_in_range() && (self.is_node_id_used(id) || self.node_ids.servers.contains(&id)) {
            id = id.next();
        }
        match id.is_in_range() {
            true => Ok(id),
            false => Err(Refused::NoNodeIds),
        }
    }

    /// Whether a node that is not there may come under this id and role.
    pub(crate) fn check_new_node(&self, id: NodeId, role: NodeRole) -> Result<(), Refused> {
        if !id.is_in_range() {
            return Err(Refused::NodeIdRange(id));
        }
        let servers = &self.node_ids.servers;
        let may_come = match role {
            NodeRole::Worker => !self.is_node_id_used(id) && !servers.contains(&id),
            // Where no id is kept yet, the fixed peers of a cluster choose theirs as they are configured.
            NodeRole::Server | NodeRole::Peer => {
                servers.contains(&id) || servers.is_empty() || !self.is_node_id_known(id)
            }
        };
        may_come.then_some(()).ok_or(Refused::NodeIdUsed(id))
    }

    /// The id is given from now on. `in_turn` where it is the next one of all.
    pub(crate) fn give_node_id(&mut self, id: NodeId, in_turn: bool) {
        // A peer whose id is configured may come back under it.
        self.node_ids.removed.remove(&id);
        match in_turn {
            true => self.last_node_id = self.last_node_id.max(id),
            false if id > self.last_node_id => {
                self.node_ids.used.insert(id);
            }
            false => {}
        }
        while self.node_ids.used.contains(&self.last_node_id.next()) {
            self.last_node_id = self.last_node_id.next();
        }
        while let Some(lowest) = self.node_ids.used.get_min().copied()
            && lowest <= self.last_node_id
        {
            self.node_ids.used.remove(&lowest);
        }
    }

    /// Keeps ids for servers. Before any is kept, what the configuration says counts, although a server that has never
    /// come cannot be told from one that was removed; after that an id that was used is not kept again.
    pub(crate) fn keep_server_ids(&mut self, ids: &[NodeId]) -> Result<(), Refused> {
        let is_first = self.node_ids.servers.is_empty();
        for id in ids {
            if !id.is_in_range() {
                return Err(Refused::NodeIdRange(*id));
            }
            match self.nodes.get(id).map(|node| node.info.role) {
                Some(NodeRole::Worker) => return Err(Refused::NodeRole(*id)),
                Some(NodeRole::Server | NodeRole::Peer) => {}
                None if is_first || self.node_ids.servers.contains(id) => {}
                None if self.is_node_id_known(*id) => return Err(Refused::NodeIdUsed(*id)),
                None => {}
            }
        }
        let mut servers = self.node_ids.servers.clone();
        servers.extend(ids.iter().copied());
        if servers.len() > Self::SERVER_IDS_MAX {
            return Err(Refused::TooManyNodes {
                max: Self::SERVER_IDS_MAX,
            });
        }
        self.node_ids.servers = servers;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(last: u64) -> State {
        State {
            feature_level: State::KEEPS_NODE_IDS,
            last_node_id: NodeId(last),
            ..State::default()
        }
    }

    #[test]
    fn ids_in_turn_step_over_those_that_are_spoken_for() {
        let mut state = state(2);
        state.keep_server_ids(&[NodeId(3), NodeId(5)]).unwrap();
        state.give_node_id(NodeId(6), false);
        let mut given = Vec::new();
        for _ in 0..4 {
            let id = state.fresh_node_id().unwrap();
            state.give_node_id(id, true);
            given.push(id.0);
        }
        assert_eq!(given, [4, 7, 8, 9]);
        assert!(
            state.node_ids.used.is_empty(),
            "what the last id says is not said twice"
        );
        assert!(state.is_node_id_used(NodeId(6)) && !state.is_node_id_used(NodeId(10)));
    }

    #[test]
    fn ids_run_out_and_are_never_repeated() {
        let mut state = state(NodeId::MAX.0 - 1);
        let last = state.fresh_node_id().unwrap();
        assert_eq!(last, NodeId::MAX);
        state.give_node_id(last, true);
        assert_eq!(state.fresh_node_id(), Err(Refused::NoNodeIds));
        state.last_node_id = NodeId(u64::MAX);
        assert_eq!(state.fresh_node_id(), Err(Refused::NoNodeIds));
    }

    #[test]
    fn a_wish_is_granted_where_it_is_free() {
        let mut state = state(3);
        state.keep_server_ids(&[NodeId(9)]).unwrap();
        state.give_node_id(NodeId(12), false);
        let granted: Vec<u64> = (0..15).filter(|id| state.is_node_id_free(NodeId(*id))).collect();
        assert_eq!(granted, [4, 5, 6, 7, 8, 10, 11, 13, 14]);
        assert!(state.is_node_id_free(NodeId::MAX));
        assert!(!state.is_node_id_free(NodeId::MAX.next()) && !state.is_node_id_free(NodeId(u64::MAX)));
    }

    #[test]
    fn what_was_stepped_over_is_for_servers_alone_and_once() {
        let mut state = state(3);
        state.keep_server_ids(&[NodeId(1)]).unwrap();
        state.give_node_id(NodeId(6), false);
        state.skip_node_ids(NodeId(100));
        assert_eq!(state.fresh_node_id(), Ok(NodeId(101)));
        assert!(!state.is_node_id_free(NodeId(50)));
        state.keep_server_ids(&[NodeId(4), NodeId(50)]).unwrap();
        assert_eq!(
            state.keep_server_ids(&[NodeId(6)]),
            Err(Refused::NodeIdUsed(NodeId(6))),
            "somebody had it before"
        );
        state.forget_server_id(NodeId(50));
        assert_eq!(
            state.keep_server_ids(&[NodeId(50)]),
            Err(Refused::NodeIdUsed(NodeId(50)))
        );
        state
            .keep_server_ids(&[NodeId(49), NodeId(51), NodeId(100), NodeId(101)])
            .unwrap();
        state.skip_node_ids(NodeId(2));
        assert_eq!(state.last_node_id, NodeId(100), "it never goes back");
    }

    #[test]
    fn removed_nodes_are_noted_while_their_certificates_may_be_good() {
        let mut state = state(3);
        state.note_removed(NodeId(1), NodeRole::Worker);
        assert!(
            state.node_ids.removed.is_empty(),
            "older servers do not note them"
        );
        state.feature_level = State::NOTES_REMOVED;
        state.note_removed(NodeId(1), NodeRole::Worker);
        state.note_removed(NodeId(2), NodeRole::Server);
        state.time = state.time.after(TimeSpan::from_secs(26 * 3_600));
        state.note_removed(NodeId(3), NodeRole::Worker);
        let noted: Vec<u64> = state.node_ids.removed.keys().map(|id| id.0).collect();
        assert_eq!(noted, [2, 3], "those of workers are good for a day");
        state.give_node_id(NodeId(2), false);
        assert!(!state.node_ids.removed.contains_key(&NodeId(2)), "it is back");
        for id in 0..State::REMOVED_MAX as u64 {
            state.time = ClusterTime(state.time.0 + 1);
            state.note_removed(NodeId(100 + id), NodeRole::Worker);
        }
        assert_eq!(state.node_ids.removed.len(), State::REMOVED_MAX);
        assert!(
            !state.node_ids.removed.contains_key(&NodeId(3)),
            "the first to end is forgotten first"
        );
    }

    #[test]
    fn the_first_servers_are_those_of_the_configuration() {
        let mut state = state(3);
        state.keep_server_ids(&[NodeId(1), NodeId(2), NodeId(3)]).unwrap();
        state.node_ids.servers.remove(&NodeId(2));
        assert_eq!(
            state.keep_server_ids(&[NodeId(2)]),
            Err(Refused::NodeIdUsed(NodeId(2)))
        );
        assert_eq!(
            state.keep_server_ids(&[NodeId(4), NodeId(0)]),
            Err(Refused::NodeIdRange(NodeId(0)))
        );
        assert!(!state.node_ids.servers.contains(&NodeId(4)), "all or nothing");
        state.keep_server_ids(&[NodeId(4), NodeId(1)]).unwrap();
    }
}
