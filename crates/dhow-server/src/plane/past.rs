//! The past of the cluster, as this server has applied it: states at intervals, compressed, and every entry between them.
//! Any revision in the window is made again by `step` from the state before it, and read with the code that reads the
//! present. The form on disk is described in `docs/past.md`.
//!
//! Written by a task of the runtime, which reads the log of commands behind the reducer's back and never makes it wait.
//! What the log has forgotten before it was read is a gap, and told as one. It decides nothing: whoever deletes the
//! directory loses the past and nothing else. Values of secrets are never in it, not even sealed.

mod archive;
mod chapter;
mod error;
mod frame;
mod index;
mod moment;
mod read;
mod redact;
mod replay;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::state::State;
use tokio::sync::{Semaphore, watch};

use super::log::Log;
use super::log::store::StoreError;
use archive::Archive;

pub use error::PastError;
pub use index::{ChapterInfo, PastIndex};
pub use moment::{Moment, When};
pub use replay::{Replay, ReplayEnd, ReplayError, Replayed, replay};

/// Below the data directory.
pub const PAST_DIR: &str = "past";

/// States that are made at a time: each is the work of a thread for up to a second.
const BUILDS_MAX: usize = 2;

/// When the next chapter begins. A chapter is one state and the entries after it.
#[derive(Clone, Copy, Debug)]
pub struct ChapterSize {
    /// No chapter is shorter, so that a large state is not written for every handful of entries.
    pub entries_min: u64,
    /// None is longer: this many are applied to answer for its last revision, at some 20,000 a second.
    pub entries_max: u64,
    /// None goes on for longer, so that old days can be forgotten one by one.
    pub span_ms: i64,
}

impl Default for ChapterSize {
    fn default() -> Self {
        Self {
            entries_min: 1_000,
            entries_max: 4_000,
            span_ms: 24 * 60 * 60 * 1_000,
        }
    }
}

/// Where the past is kept, and how much of it.
#[derive(Clone, Debug)]
pub struct PastOptions {
    pub dir: PathBuf,
    /// What is older is forgotten.
    pub window_ms: i64,
    /// The oldest is forgotten before there is more.
    pub bytes_max: u64,
    pub chapter: ChapterSize,
}

impl PastOptions {
    pub const WINDOW_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
    pub const BYTES_MAX: u64 = 1024 * 1024 * 1024;

    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            window_ms: Self::WINDOW_MS,
            bytes_max: Self::BYTES_MAX,
            chapter: ChapterSize::default(),
        }
    }
}

/// A handle on the past of this server; clones share it.
#[derive(Clone, Debug)]
pub struct Past {
    parts: Arc<PastParts>,
}

#[derive(Debug)]
struct PastParts {
    options: PastOptions,
    /// None until it was opened for the first time. Held while something is written.
    archive: Mutex<Option<Archive>>,
    index: watch::Sender<Arc<PastIndex>>,
    builds: Semaphore,
    moments: Mutex<moment::Cache>,
}

impl Past {
    pub fn new(options: PastOptions) -> Self {
        Self {
            parts: Arc::new(PastParts {
                options,
                archive: Mutex::default(),
                index: watch::Sender::default(),
                builds: Semaphore::new(BUILDS_MAX),
                moments: Mutex::default(),
            }),
        }
    }

    /// What is older is forgotten.
    pub fn window_ms(&self) -> i64 {
        self.parts.options.window_ms
    }

    pub fn bytes_max(&self) -> u64 {
        self.parts.options.bytes_max
    }

    /// What there is of it.
    pub fn index(&self) -> Arc<PastIndex> {
        Arc::clone(&self.parts.index.borrow())
    }

    /// Brings it to where the state is, from the log. What fails is told in the index and tried again by the next call.
    /// Blocks.
    pub fn catch_up(&self, log: &dyn Log, state: &State, now_unix_ms: i64) {
        let mut archive = self.archive();
        let result = self.write(&mut archive, log, state, now_unix_ms);
        let before = self.index();
        let problem = result.err().map(|error| {
            let text = error.told();
            if before.problem.is_none() {
                tracing::warn!(error = text, "the past is not written for now");
            }
            text
        });
        if problem.is_none() && before.problem.is_some() {
            tracing::info!("the past is written again");
        }
        let index = archive.as_ref().map(Archive::index).unwrap_or_default();
        self.parts
            .index
            .send_replace(Arc::new(PastIndex { problem, ..index }));
    }

    fn write(
        &self,
        archive: &mut Option<Archive>,
        log: &dyn Log,
        state: &State,
        now_unix_ms: i64,
    ) -> Result<(), PastError> {
        let archive = match archive {
            Some(archive) => archive,
            none => none.insert(Archive::open(&self.parts.options)?),
        };
        let written = archive.catch_up(log, state);
        // Also where nothing can be written: that may be for want of room.
        archive.forget(now_unix_ms)?;
        match written {
            // The daemon ends; what is missing is read from the log by the next one.
            Err(PastError::Log(StoreError::Closed)) => Ok(()),
            written => written,
        }
    }

    /// Makes durable what was written. Blocks.
    pub fn sync(&self) {
        if let Some(archive) = self.archive().as_mut() {
            archive.sync();
        }
    }

    fn archive(&self) -> MutexGuard<'_, Option<Archive>> {
        // A writer that panicked left whole frames and perhaps a torn one, which the next write cuts off.
        self.parts.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
