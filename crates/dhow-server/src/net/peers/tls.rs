//! The channel between servers over TCP, with TLS between members.
//!
//! The daemon makes one [`TlsTransport`], which the raft log asks through, and [`listen`]s with the log's handler.
//! Each (peer, lane) has one connection that carries many questions at once; it is made when it is needed and
//! dropped as soon as the peer is known to be another process than before. A handler never hears a question of
//! anybody but a member, and nothing that a stranger sends does more than end its own connection.

mod connection;
mod contacts;
mod error;
mod frame;
mod hello;
mod limits;
mod link;
mod listener;
mod refusals;
mod security;
mod serving;
mod transport;

pub use contacts::PeerCounts;
pub use error::PeerListenError;
pub use listener::{Listening, listen};
pub use transport::{ClusterIdCell, PeerOptions, TlsTransport};

#[cfg(test)]
mod tests;
