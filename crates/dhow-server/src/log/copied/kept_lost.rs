//! What people had written on the losing side of a divided cluster, on disk until the leader has it in its log.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dhow_core::branches::{Lost, LostRevision};
use tokio::sync::watch;

/// See the module. Small and rare: it is read and written whole.
#[derive(Debug)]
pub struct KeptLost {
    path: PathBuf,
    kept: Mutex<Lost>,
    changes: watch::Sender<usize>,
}

impl KeptLost {
    /// Reads what is there; a file that cannot be read is left alone and told.
    pub(super) fn open(path: PathBuf) -> Self {
        let kept = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::error!(path = %path.display(), %error, "revisions of a divided cluster cannot be read");
                Lost::default()
            }),
            Err(_) => Lost::default(),
        };
        let count = kept.revisions.len() + kept.others.len();
        Self {
            path,
            kept: Mutex::new(kept),
            changes: watch::Sender::new(count),
        }
    }

    /// Everything that waits.
    pub fn all(&self) -> Lost {
        self.lock().clone()
    }

    /// Follows how much waits.
    pub fn changes(&self) -> watch::Receiver<usize> {
        self.changes.subscribe()
    }

    /// Keeps more. Blocks.
    pub(super) fn add(&self, lost: Lost) -> std::io::Result<()> {
        let mut kept = self.lock();
        let mut more = kept.clone();
        for revision in lost.revisions {
            if !more.revisions.contains(&revision) {
                more.revisions.push(revision);
            }
        }
        more.others.extend(lost.others);
        write(&self.path, &more)?;
        *kept = more;
        self.changes
            .send_replace(kept.revisions.len() + kept.others.len());
        Ok(())
    }

    /// The leader has these. Blocks.
    pub fn told(&self, revisions: &[LostRevision], others: &[String]) -> std::io::Result<()> {
        let mut kept = self.lock();
        let mut rest = kept.clone();
        rest.revisions.retain(|revision| !revisions.contains(revision));
        rest.others.retain(|other| !others.contains(other));
        write(&self.path, &rest)?;
        *kept = rest;
        self.changes
            .send_replace(kept.revisions.len() + kept.others.len());
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lost> {
        // Each change is whole before the lock is let go of.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of it or what was there before.
fn write(path: &Path, lost: &Lost) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(lost)?;
    let passing = path.with_extension("tmp");
    let mut file = std::fs::File::create(&passing)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&passing, path)?;
    match path.parent() {
        Some(dir) => std::fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}
