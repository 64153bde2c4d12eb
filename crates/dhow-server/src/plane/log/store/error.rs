//! What can go wrong in the store, written for the person who reads it.
//!
//! Three families: damage (the store refuses to open or to read, and names the place), failures of the disk
//! (writing stops until the store is opened again) and refusals of one request (nothing else is touched).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::What;

/// An error of the store. It is cheap to clone, because one failed fsync answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory.
    #[error(
        "{dir} is in use by another daemon{holder}; stop that one, or give this one a data directory of its own",
        dir = dir.display(), holder = Holder(*holder)
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, where it could be read.
        holder: Option<u32>,
    },
    /// Bytes on disk are not what was written. Nothing was changed.
    #[error("{file} is damaged at byte {offset}: {what}. {hint}", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it the damage begins.
        offset: u64,
        /// What was found there.
        what: What,
        /// What a person can do.
        hint: String,
    },
    /// The file is sound, but of a version that this program does not know.
    #[error(
        "{file} has format version {found}, this program knows up to {known}; start the newer program that wrote it",
        file = file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was tried.
        action: Action,
        /// On which file.
        path: PathBuf,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
    /// The disk is full. Nothing was written, and writing works again once there is room.
    #[error("no room on the disk for {path} ({size_bytes} bytes); free some space, nothing was written", path = path.display())]
    NoSpace {
        /// The file that was to be made.
        path: PathBuf,
        /// How large it was to be.
        size_bytes: u64,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
    /// An earlier write or fsync failed, so nobody knows what is on disk beyond the acknowledged entries.
    #[error(
        "the log takes no more writes after a failure of the disk; reading still works, restart the daemon once the disk is sound"
    )]
    Poisoned {
        /// What failed.
        #[source]
        cause: Arc<StoreError>,
    },
    /// The queue is full.
    #[error(
        "the log's queue is full ({requests} requests, {size_bytes} bytes are waiting); try again shortly"
    )]
    Busy {
        /// Requests that wait.
        requests: usize,
        /// Bytes that wait.
        size_bytes: usize,
    },
    /// A request is above a limit.
    #[error("{what} of {size_bytes} bytes is above the limit of {limit_bytes} bytes")]
    TooLarge {
        /// What is too large.
        what: TooLarge,
        /// How large it is.
        size_bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
    /// An append that would leave a gap or overwrite an entry.
    #[error("entry {got} cannot be appended, the next index is {expected}")]
    NotNext {
        /// The next index.
        expected: u64,
        /// The index asked for.
        got: u64,
    },
    /// A truncation outside of what the log holds.
    #[error(
        "the log cannot be cut at {from}, it holds the entries from {first} up to, not including, {next}"
    )]
    BadTruncate {
        /// First index that was to go.
        from: u64,
        /// First index held.
        first: u64,
        /// Index of the next entry.
        next: u64,
    },
    /// The last index is used up.
    #[error("index {index} is beyond the last one a log can have")]
    IndexExhausted {
        /// The index asked for.
        index: u64,
    },
    /// A read below what the log still holds.
    #[error("entry {wanted} was purged, the log begins at {first}; read the newest snapshot instead")]
    Compacted {
        /// The index asked for.
        wanted: u64,
        /// First index held.
        first: u64,
    },
    /// The store was closed while the request waited.
    #[error("the log is closed")]
    Closed,
    /// Options that cannot work together.
    #[error("the log's options cannot work: {why}")]
    BadOptions {
        /// Why not.
        why: String,
    },
}

impl StoreError {
    /// Whether one request was refused and the store goes on with the next.
    pub fn is_harmless(&self) -> bool {
        match self {
            StoreError::NoSpace { .. } | StoreError::TooLarge { .. } | StoreError::Busy { .. } => true,
            StoreError::Locked { .. }
            | StoreError::Damaged { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Io { .. }
            | StoreError::Poisoned { .. }
            | StoreError::NotNext { .. }
            | StoreError::BadTruncate { .. }
            | StoreError::IndexExhausted { .. }
            | StoreError::Compacted { .. }
            | StoreError::Closed
            | StoreError::BadOptions { .. } => false,
        }
    }

    /// A failure of the operating system, told apart from a full disk.
    pub(super) fn io(action: Action, path: &Path, source: io::Error) -> StoreError {
        StoreError::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// A failure while something new was being made, where a full disk is an answer and not a fault.
    pub(super) fn making(action: Action, path: &Path, size_bytes: u64, source: io::Error) -> StoreError {
        if is_no_space(&source) {
            return StoreError::NoSpace {
                path: path.to_owned(),
                size_bytes,
                source: Arc::new(source),
            };
        }
        StoreError::io(action, path, source)
    }
}

/// A full disk or a used-up quota.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// What was asked of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Create a file or directory.
    Create,
    /// List a directory.
    List,
    /// Lock a directory.
    Lock,
    /// Open a file.
    Open,
    /// Read a file.
    Read,
    /// Write a file.
    Write,
    /// Make a file or directory durable.
    Sync,
    /// Give a file its name.
    Rename,
    /// Delete a file.
    Remove,
    /// Start the thread that writes.
    Spawn,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Create => "create",
            Action::List => "list",
            Action::Lock => "lock",
            Action::Open => "open",
            Action::Read => "read",
            Action::Write => "write",
            Action::Sync => "sync",
            Action::Rename => "rename",
            Action::Remove => "remove",
            Action::Spawn => "start the writer of",
        })
    }
}

/// What a limit was set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    /// The payload of an entry.
    Entry,
    /// All records of a request.
    Batch,
    /// A value beside the entries.
    Meta,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TooLarge::Entry => "an entry",
            TooLarge::Batch => "a batch",
            TooLarge::Meta => "a metadata value",
        })
    }
}

struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, " (process {pid})"),
            None => Ok(()),
        }
    }
}
