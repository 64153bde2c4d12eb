//! Every limit of the channel, with its arithmetic.

use std::time::Duration;

/// The first frame of each side: a few numbers and the cluster's id.
pub(super) const HELLO_BYTES_MAX: usize = 1_024;

/// Questions of one connection that wait for their answers. The log keeps a handful under way for each follower.
pub(super) const PENDING_MAX: usize = 256;

/// Frames that wait to be written: each holds a reference to bytes that its sender has anyway.
pub(super) const QUEUE_MAX: usize = 32;

/// Questions of one connection that are answered at the same time: with the largest of 16 MiB these are 256 MiB,
/// and with those that the log sends, below 1 MiB, 16 MiB.
pub(super) const ANSWERING_MAX: usize = 16;

/// Callers that have not said who they are: a half-open handshake has some 10 KiB, so that these are 40 MiB.
pub(super) const GUESTS_MAX: usize = 4_096;

/// Connections of one member: 2 lanes, and those that are being made anew.
pub(super) const PER_MEMBER_MAX: usize = 16;

/// How long a caller has to prove who it is.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may take to be made. A peer in the same cluster answers within milliseconds.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// After a failed attempt nothing is tried for this long; it doubles with each failure.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// The longest such pause. It adds to the time that a restarted peer is away, so that it stays below an election.
pub(super) const BACKOFF_MAX: Duration = Duration::from_millis(400);

/// A connection on which a question was asked and nothing at all was heard for this long is dropped when the next
/// question times out: the peer may be gone without a word, and a new connection finds out.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The log names one refused address once in this time, however often it tries.
pub(super) const REFUSAL_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Addresses that are remembered for that: some 100 bytes each.
pub(super) const REFUSALS_MAX: usize = 256;

/// How long answers that are under way have at the end.
pub(super) const DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Bytes that are read at once: many heartbeats, and the head of a longer frame, whose rest is read past it.
pub(super) const READ_BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that are gathered before they are written.
pub(super) const WRITE_BUFFER_BYTES: usize = 64 * 1024;
