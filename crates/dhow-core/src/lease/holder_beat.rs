//! What a holder and the leader tell each other of sessions. Everything in it may be lost, repeated or late.

use crate::ids::{NodeId, Term};

/// Which session of a node: the leader of a term gave it out as its so-manyth. The higher one is the newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub term: Term,
    pub number: u64,
}

/// The leader's stamp that a holder has heard, and how long it has had it by its own clock. The stamp was made before
/// the holder heard it, so that the sum is never later than the leader's present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub stamp_ms: u64,
    pub since_ms: u64,
}

/// A session, and how long ago its node was heard for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSign {
    pub node: NodeId,
    pub session: SessionId,
    pub age_ms: u64,
}

/// What a holder tells the leader, every half second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderBeat {
    /// Drawn when the holder's process starts.
    pub boot: u64,
    /// Counts the beats of this boot from 1. What an earlier one says after a later one was heard is old.
    pub seq: u64,
    /// None before the leader of this term was heard.
    pub echo: Option<Echo>,
    /// Whether `heard` names every session that the holder has.
    pub is_full: bool,
    /// The nodes that were heard since the last beat that was answered.
    pub heard: Vec<LastSign>,
    /// The sessions that broke since then, and not by the holder's wish.
    pub broke: Vec<LastSign>,
    /// The sessions that the holder has ended since then, whose nodes were told to go elsewhere.
    pub ended: Vec<LastSign>,
    /// How much of the log is in the holder's state; none from one that does not say.
    pub applied_index: Option<u64>,
    /// Whether the holder serves all.
    pub is_fresh: bool,
    /// How long ago anything came from any node but the holder's own, answers to pings included. None from one that has no
    /// such node, or does not say.
    pub hears_age_ms: Option<u64>,
}

/// A server that takes sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshServer {
    pub server: NodeId,
    /// For how long it has said so without a break.
    pub fresh_for_ms: u64,
}

/// What the leader answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderBeatAnswer {
    pub term: Term,
    /// The beat that is answered.
    pub seq: u64,
    /// The leader's monotonic time.
    pub stamp_ms: u64,
    /// How far a state must be to be as new as the cluster was when this was said.
    pub read_index: u64,
    /// The time to live that the nodes are granted.
    pub ttl_secs: u32,
    /// The leader does not know this holder's sessions: the next beat names all of them.
    pub is_full_wanted: bool,
    /// Sessions that the holder has to end, because their nodes have newer ones elsewhere.
    pub end: Vec<(NodeId, SessionId)>,
    /// The servers that take sessions now, ascending.
    pub servers: Vec<FreshServer>,
}
