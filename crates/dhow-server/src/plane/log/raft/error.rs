//! Why a raft log cannot be opened.

use std::path::PathBuf;

use super::entry_form::FormError;
use super::known_peers::IdentityError;
use crate::plane::log::store::StoreError;

/// Why the raft log of a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum RaftOpenError {
    #[error("the raft log cannot be opened")]
    Store(#[source] StoreError),
    #[error(
        "{dir} is the raft directory of node {found}, and this is node {wanted}; set `node_id` to {found}, or give \
         this node a data directory of its own", dir = dir.display()
    )]
    AnotherNode { dir: PathBuf, found: u64, wanted: u64 },
    #[error("the raft log cannot be opened")]
    Identity(#[from] IdentityError),
    #[error("node {node_id} is not among its own peers; add it to `peers`")]
    NotAmongPeers { node_id: u64 },
    #[error("a cluster of {count} members is not possible, there may be {max}")]
    TooManyPeers { count: usize, max: usize },
    #[error("the timings cannot work: {why}")]
    Timings { why: String },
    #[error("the raft log did not start: {why}")]
    Start { why: String },
    #[error("{dir} has a raft log already; give an empty directory", dir = dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("{dir} has no raft log", dir = dir.display())]
    Empty { dir: PathBuf },
    #[error("the raft log cannot be read")]
    Form(#[source] FormError),
    #[error("the snapshot could not be written")]
    Snapshot(#[source] std::io::Error),
}
