//! Signs that it is the leader that is ill, not the nodes: why expiry is held, or why nodes do not follow it.

use crate::ids::{NodeId, Term};

/// Why a leader gives no node up for a while, in words for its log and for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseAlarm {
    #[error(
        "{silent} of {nodes} nodes fell silent at about the same time: more likely this leader has lost its network \
         than they their lives. No node is given up for now; check this server's links"
    )]
    ManySilent { silent: usize, nodes: usize },
    #[error(
        "the lease timer of this leader ran {late_ms} ms late: it was suspended or is overloaded, and has \
         missed heartbeats. No node is given up for now; check this server's load"
    )]
    LateTimer { late_ms: u64 },
    #[error(
        "{broke} of {sessions} sessions of server {holder} broke at about the same time: more likely that server has \
         lost its network than its nodes their lives. They have time to find another server; check that server's links"
    )]
    HolderIll {
        holder: NodeId,
        broke: usize,
        sessions: usize,
    },
    #[error(
        "server {holder} has heard none of its {sessions} nodes for some seconds: more likely that server has lost its \
         network than they their lives. They have time to find another server; check that server's links"
    )]
    HolderDeaf { holder: NodeId, sessions: usize },
    #[error(
        "{broke} of {sessions} nodes lost their sessions at about the same time, on several servers: more likely the \
         servers or the network have too much to do than they have lost their lives. They have time to come back; check \
         the servers' load"
    )]
    CrowdBroke { broke: usize, sessions: usize },
    #[error(
        "node {node} has followed this cluster in term {followed}, above term {term} of this server: the state here is \
         older than what the node has acted on, and it takes no orders of it. Was a server begun from a copy of old \
         files? `dhow cluster backup`, then `dhow cluster restore` on all servers, begins above every term"
    )]
    HigherTerm {
        node: NodeId,
        followed: Term,
        term: Term,
    },
}
