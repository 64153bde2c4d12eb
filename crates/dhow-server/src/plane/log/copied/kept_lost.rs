//! What people had written on the losing side of a divided cluster, on disk until the leader has it in its log.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dhow_core::branches::{Lost, LostRevision};
use dhow_disk::Outlives;
use tokio::sync::watch;

/// The file with what users had written on the losing side of a divided cluster. The copied log adds to it, and the
/// task for conflicts takes out what the leader has. It is small and rare, so that it is read and written whole.
#[derive(Debug)]
pub struct KeptLost {
    path: PathBuf,
    kept: Mutex<Lost>,
    changes: watch::Sender<usize>,
}

impl KeptLost {
    /// Reads what is there; a damaged file is put aside and told. Blocks.
    pub(super) fn open(path: PathBuf) -> std::io::Result<Self> {
        let kept = dhow_disk::read_or_set_aside(&path, |bytes| serde_json::from_slice::<Lost>(bytes))?;
        let kept = kept.or_tell(|path, why| {
            tracing::error!(
                path = %path.display(), why,
                "revisions of a divided cluster were damaged before the leader had them; the file is put aside"
            );
        });
        let kept = kept.unwrap_or_default();
        let count = kept.revisions.len() + kept.others.len();
        Ok(Self {
            path,
            kept: Mutex::new(kept),
            changes: watch::Sender::new(count),
        })
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
    dhow_disk::replace(path, &bytes, Outlives::PowerCut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_put_aside_and_what_follows_is_kept_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lost.json");
        std::fs::write(&path, "{\"revis").unwrap();
        let kept = KeptLost::open(path.clone()).unwrap();
        let lost = Lost {
            others: vec!["a token".into()],
            ..Lost::default()
        };
        kept.add(lost.clone()).unwrap();
        assert_eq!(KeptLost::open(path).unwrap().all(), lost);
        let aside = dir.path().join("lost.json.unreadable-1");
        assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"revis");
    }
}
