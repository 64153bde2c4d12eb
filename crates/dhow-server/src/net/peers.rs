//! The channel between servers: one question, one answer, as bytes.
//!
//! The raft log asks through [`PeerTransport`] and answers through [`PeerHandler`]; what lies between is TLS between
//! members, or a network of a test. It must never hand a handler a question from anybody but a member.

pub mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// The largest question or answer. Log entries are sent in parts below 1 MiB and snapshots in chunks; anything
/// larger is an attack or a bug, and its length is refused before a byte of it is read.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Connections to one peer are kept apart by what they carry, so that a snapshot never holds up a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Votes, entries, heartbeats and short questions.
    Log,
    Snapshot,
}

/// Why a question has no answer. Whether it arrived is not known, except where it says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It was not sent.
    #[error("node {node} cannot be reached at {addr}: {why}")]
    Unreachable {
        node: u64,
        addr: SocketAddr,
        why: String,
    },
    #[error("node {node} did not answer in time")]
    TimedOut { node: u64 },
    #[error("the connection to node {node} broke: {why}")]
    Broken { node: u64, why: String },
    /// It was not sent.
    #[error("a message of {size_bytes} bytes is above the limit of {FRAME_BYTES_MAX}")]
    TooLarge { size_bytes: usize },
}

/// Asks other servers.
pub trait PeerTransport: Send + Sync + 'static {
    /// Asks once and waits for the answer, `timeout` at most. Questions of one lane may overtake each other.
    fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        lane: Lane,
        question: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, PeerError>>;
}

/// Answers other servers. `from` is proved.
pub trait PeerHandler: Send + Sync + 'static {
    fn answer(&self, from: u64, question: Bytes) -> BoxFuture<'_, Bytes>;
}
