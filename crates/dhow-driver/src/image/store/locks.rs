//! Locks per digest. Within the process waiters queue without holding a thread; across processes a lock file
//! decides. There is no lock for the whole store: work on different digests never waits for one another.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::error::StoreError;
use super::files::Failing;
use super::lock_file::LockFile;
use crate::image::digest::Digest;

/// How soon another process is asked again: it works on a layer for seconds, so this adds little.
const OTHER_PROCESS_RETRY: Duration = Duration::from_millis(20);

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

    /// Waits for the lock of one digest. Other processes are asked again and again: a thread that waits inside
    /// of the kernel could not be woken when this process wants to end.
    pub async fn acquire(&self, kind: LockKind, digest: &Digest) -> Result<DigestLock, StoreError> {
        let turn = self.queue((kind, *digest)).lock_owned().await;
        let path = self.dir.join(format!("{}-{}", kind.name(), digest.hex()));
        loop {
            let file_path = path.clone();
            let tried = spawn_blocking(move || LockFile::try_acquire(&file_path)).await;
            let taken = tried.map_err(std::io::Error::other).and_then(|taken| taken);
            if let Some(file) = taken.failing("lock", &path)? {
                return Ok(DigestLock {
                    _file: file,
                    _turn: turn,
                });
            }
            tokio::time::sleep(OTHER_PROCESS_RETRY).await;
        }
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
