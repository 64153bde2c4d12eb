//! What travels in a world.

use dhow_agent::{Heartbeat, HeartbeatAnswer, Highest, Report};
use dhow_core::assignment::Assignment;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::lease::{HolderBeat, HolderBeatAnswer, SessionId};
use dhow_core::mirror::ReportAnswer;

/// A connection of a node to a server; each attempt has one of its own.
pub(super) type Connection = u64;

/// What a node says on its connection. What is said there comes in order, and as often as it is said.
#[derive(Clone, Debug)]
pub(super) enum NodeWord {
    Open {
        last: Option<Revision>,
        highest: Highest,
    },
    Report(Report),
    Beat(Heartbeat),
    /// The answer to a ping.
    Pong,
    Close,
}

/// What a server says on it.
#[derive(Clone, Debug)]
pub(super) enum ServerWord {
    Opened {
        ttl_secs: u32,
        term: u64,
    },
    Assignment(Assignment),
    /// None where the node is to try again.
    Reported(Option<(ReportAnswer, u32)>),
    Beaten(Option<(HeartbeatAnswer, u32)>),
    Ping,
    /// The session is over, or there was none.
    Closed,
}

/// What one node asks the leader for, through its holder.
#[derive(Clone, Debug)]
pub(super) enum HeldWord {
    Report(Report),
    Beat(Heartbeat),
}

/// What the leader answers to that.
#[derive(Clone, Debug)]
pub(super) enum HeldAnswer {
    Reported(ReportAnswer),
    Beaten(HeartbeatAnswer),
}

/// What the leader answers to the nodes of one message; none where it does not know the node.
pub(super) type HeldAnswers = Vec<(NodeId, Connection, Option<HeldAnswer>)>;

/// What servers say to each other. It may be lost, come late, in another order, or twice.
#[derive(Clone, Debug)]
pub(super) enum PeerWord {
    Beat(HolderBeat),
    Beaten(HolderBeatAnswer),
    Open {
        boot: u64,
        parcel: u64,
        asked: Vec<(NodeId, Connection)>,
    },
    Opened {
        boot: u64,
        parcel: u64,
        read_index: usize,
        given: Vec<(NodeId, Connection, SessionId, u32)>,
    },
    Forward {
        boot: u64,
        parcel: u64,
        words: Vec<(NodeId, Connection, HeldWord)>,
    },
    Answers {
        boot: u64,
        parcel: u64,
        index: usize,
        answers: HeldAnswers,
    },
}

/// A message, and whose it is.
#[derive(Clone, Debug)]
pub(super) enum Message {
    ToServer {
        from: NodeId,
        to: NodeId,
        connection: Connection,
        word: NodeWord,
    },
    ToNode {
        from: NodeId,
        to: NodeId,
        connection: Connection,
        word: ServerWord,
    },
    Between {
        from: NodeId,
        to: NodeId,
        word: PeerWord,
    },
}

impl Message {
    pub fn ends(&self) -> (NodeId, NodeId) {
        match self {
            Self::ToServer { from, to, .. }
            | Self::ToNode { from, to, .. }
            | Self::Between { from, to, .. } => (*from, *to),
        }
    }

    /// The connection and the direction, of what travels in order.
    pub fn stream(&self) -> Option<(Connection, bool)> {
        match self {
            Self::ToServer { connection, .. } => Some((*connection, true)),
            Self::ToNode { connection, .. } => Some((*connection, false)),
            Self::Between { .. } => None,
        }
    }
}
