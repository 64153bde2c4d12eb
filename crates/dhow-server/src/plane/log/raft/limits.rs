//! Every limit of the raft log, with its arithmetic.

use crate::plane::log::store::limits::MAX_QUEUED_REQUESTS;

/// Proposals that may wait for the proposer: as many as the reducer may have on their way.
pub const MAX_PROPOSALS: usize = MAX_QUEUED_REQUESTS;

/// Events that may wait for the reducer. Applying waits for room, so this is only how far it may run ahead: one
/// for each proposal, and one for the first word about leadership.
pub const MAX_EVENTS: usize = MAX_PROPOSALS + 1;

/// Bytes of commands that are packed into one entry of the log. A larger entry would hold up the heartbeats behind
/// it; one proposal that is larger by itself is an entry of its own.
pub const BATCH_BYTES: usize = 512 * 1024;

/// What the form of an entry adds to each command: its length, at most five bytes for 32 bits.
pub const COMMAND_OVERHEAD_BYTES: usize = 5;

/// What the form of an entry adds besides: the version, the kind, three numbers and a count of at most ten bytes each;
/// rounded up.
pub const ENTRY_OVERHEAD_BYTES: usize = 64;

/// Entries of the log that are on their way to the other servers at the same time: while one is written there, the
/// next is written here, and the rest wait to be packed together.
pub const MAX_BATCHES_IN_FLIGHT: usize = 2;

/// Messages that are on their way to one server ahead of the library's asking: one for each entry that may be on its
/// way, and as many more while the library catches up with their answers.
pub const MAX_AHEAD: usize = 2 * MAX_BATCHES_IN_FLIGHT;

/// How long the outcome of a proposal is waited for. Far longer than an election; after that whoever waits is told
/// that nobody knows.
pub const OUTCOME_TIMEOUT_MS: u64 = 5_000;

/// Bytes of entries in one message to another server. One entry that is larger goes alone.
pub const APPEND_BYTES: usize = 768 * 1024;

/// Bytes of a snapshot in one message.
pub const SNAPSHOT_MESSAGE_BYTES: usize = 1024 * 1024;

/// How long one message of a snapshot may take.
pub const SNAPSHOT_MESSAGE_TIMEOUT_MS: u64 = 10_000;

/// How long the last message of a snapshot may take, which makes it durable and hands it to the reducer.
pub const SNAPSHOT_INSTALL_TIMEOUT_MS: u64 = 60_000;

/// How long a message with entries may take on its way. Raft gives up on it after a heartbeat; the message goes on,
/// and the next attempt of the same entries waits for it instead of sending them again over a slow line.
pub const APPEND_TIMEOUT_MS: u64 = 5_000;

/// Voters of a cluster: more make every write slower and nothing safer.
pub const MAX_VOTERS: usize = 7;

/// Members of a cluster: seven voters and a learner for each, while they are replaced.
pub const MAX_MEMBERS: usize = 2 * MAX_VOTERS;

/// Stores of other nodes that are remembered: 28 at 27 bytes each fit into a value of 1,024 bytes beside the log.
pub const MAX_KNOWN_PEERS: usize = 2 * MAX_MEMBERS;

/// Entries that a learner may be behind when it becomes a voter: what is sent in a moment.
pub const CAUGHT_UP_ENTRIES: u64 = 64;

/// How long writes may wait for a hand-over to begin, and how long it may take then. What is on its way takes a few
/// milliseconds.
pub const TRANSFER_TIMEOUT_MS: u64 = 2_000;

/// How long a change of the members may take.
pub const MEMBER_TIMEOUT_MS: u64 = 10_000;

/// How long the library waits for a vote: two writes of the slowest disk that is waited for, and as long again. The votes
/// of an election that is over are left alone, so that it costs nothing to wait.
pub const VOTE_TIMEOUT_MS: u64 = 4 * PACE_MAX_MS;

/// How often the time that an election is given is doubled when nobody came to lead: from 0.3 s to 4.8 s, besides what
/// this node's own disk takes. The disks of others may be slower.
pub const ELECTION_DOUBLINGS_MAX: u32 = 4;

/// Writes one after the other from the moment that a node stands until the others hear that it leads: its own vote, the
/// votes of the others, that it is elected, and its first entry.
pub const ELECTION_WRITES: u32 = 4;

/// Writes that may keep a leader from speaking, or a member from answering: the one under way and the next.
pub const LEASE_WRITES: u32 = 2;

/// A disk that takes less time than this to make something durable is quick: the usual times have room for it.
pub const PACE_QUICK_MS: u64 = 50;

/// A disk that takes longer is not waited for any longer.
pub const PACE_MAX_MS: u64 = 2_000;

/// How long another server may take to say how it is.
pub const ASK_TIMEOUT_MS: u64 = 500;

/// How often a node that is not yet part of a cluster asks the others.
pub const FORMATION_INTERVAL_MS: u64 = 200;

/// Readers that may wait for the leader to make sure that it still is: as many as a server may have requests.
pub const MAX_BARRIER_WAITS: usize = 4_096;
