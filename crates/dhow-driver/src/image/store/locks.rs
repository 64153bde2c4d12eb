//! Locks per digest. Within the process waiters queue without holding a thread; across processes a lock file
//! decides. There is no lock for the whole store: work on different digests never waits for one another.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::error::StoreError;
use super::files::Failing;
use super::lock_file::LockFile;
use crate::image::digest::Digest;

/// What a digest stands for. Locks are taken in this order: image, layer, blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKind {
    Image,
    Layer,
    Blob,
}

impl LockKind {
    fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Layer => "layer",
            Self::Blob => "blob",
        }
    }
}

type Key = (LockKind, Digest);

/// Hands out the locks of one store.
#[derive(Debug)]
pub(crate) struct Locks {
    dir: PathBuf,
    /// Only locks that somebody holds or waits for; the mutex is held for a map operation, never longer.
    queues: Mutex<HashMap<Key, Weak<AsyncMutex<()>>>>,
}

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct DigestLock {
    // Dropped in this order: the next waiter of this process finds the file free.
    _file: LockFile,
    _turn: OwnedMutexGuard<()>,
}

impl Locks {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            queues: Mutex::new(HashMap::new()),
        }
    }

    /// Waits for the lock of one digest.
    pub async fn acquire(&self, kind: LockKind, digest: &Digest) -> Result<DigestLock, StoreError> {
        let turn = self.queue((kind, *digest)).lock_owned().await;
        let path = self.dir.join(format!("{}-{}", kind.name(), digest.hex()));
        let file_path = path.clone();
        // The turn goes along: if this future is dropped while the thread waits, nobody overtakes it.
        let waited = spawn_blocking(move || (LockFile::acquire(&file_path), turn)).await;
        let (file, turn) = waited.map_err(std::io::Error::other).failing("lock", &path)?;
        Ok(DigestLock {
            _file: file.failing("lock", &path)?,
            _turn: turn,
        })
    }

    fn queue(&self, key: Key) -> Arc<AsyncMutex<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(AsyncMutex::new(()));
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}
