//! Whether this node is part of a cluster yet.

/// Whether this server belongs to its cluster. The daemon says what a person should do where it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has no log yet, and asks the others or waits to be added.
    Joining,
    /// It has a log.
    Member,
    /// The others know this node id with another store: its directory was lost or replaced. It must not vote again
    /// under the same id, for it no longer knows what it has promised.
    Refused {
        /// The member that said so.
        by: u64,
    },
}

impl Admission {
    /// What a person should do about it.
    pub fn advice(&self, node_id: u64) -> Option<String> {
        match self {
            Self::Joining | Self::Member => None,
            Self::Refused { by } => Some(format!(
                "node {by} does not take node {node_id} back: it knows it with another raft directory because this one \
                 was emptied or replaced, or it went on without it by `dhow cluster recover`. A member that forgot its \
                 votes, or that was given up, may not come back. Remove node {node_id} from the cluster where it is \
                 still one (`dhow cluster remove {node_id}`), and add this server, emptied, under a new id"
            )),
        }
    }
}
