//! Prepares the next segment while commits go on, so that a rotation does not wait for 16 MiB of zeros.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::disk::Disk;
use super::error::{Action, StoreError};

/// Name of the file until it gets its place in the log.
const FILE: &str = "spare.tmp";

/// Makes at most one spare segment ahead of need. Belongs to the writer.
pub struct SpareMaker {
    disk: Disk,
    path: PathBuf,
    size_bytes: u64,
    worker: Option<Worker>,
    wanted: bool,
}

struct Worker {
    ask: SyncSender<()>,
    made: Receiver<io::Result<File>>,
    thread: JoinHandle<()>,
}

impl SpareMaker {
    /// A maker for segments of this size; its thread waits until it is asked.
    pub fn start(disk: Disk, dir: &Path, size_bytes: u64) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        // One place each: at most one spare is asked for at a time.
        let (ask, asked) = sync_channel::<()>(1);
        let (give, made) = sync_channel(1);
        let (worker_disk, worker_path) = (disk.clone(), path.clone());
        let thread = std::thread::Builder::new()
            .name("dhow-log-spare".to_owned())
            .spawn(move || {
                for () in asked {
                    if give
                        .send(worker_disk.create_zeroed(&worker_path, size_bytes))
                        .is_err()
                    {
                        break;
                    }
                }
            })
            .map_err(|error| StoreError::io(Action::Spawn, dir, error))?;
        Ok(SpareMaker {
            disk,
            path,
            size_bytes,
            worker: Some(Worker { ask, made, thread }),
            wanted: false,
        })
    }

    /// Where the spare stands until it is renamed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has a spare made in the background, unless that was asked before.
    pub fn ask(&mut self) {
        if !self.wanted
            && let Some(worker) = &self.worker
        {
            self.wanted = worker.ask.try_send(()).is_ok();
        }
    }

    /// The spare, waiting for it or making it now. After a failure in the background it is tried once more,
    /// because there may be room again.
    pub fn take(&mut self) -> Result<File, StoreError> {
        if std::mem::take(&mut self.wanted)
            && let Some(worker) = &self.worker
            && let Ok(Ok(file)) = worker.made.recv()
        {
            return Ok(file);
        }
        self.disk
            .create_zeroed(&self.path, self.size_bytes)
            .map_err(|error| StoreError::making(Action::Create, &self.path, self.size_bytes, error))
    }
}

impl Drop for SpareMaker {
    fn drop(&mut self) {
        if let Some(Worker { ask, made, thread }) = self.worker.take() {
            drop((ask, made));
            // A thread that panicked leaves at most a file that the next opening removes.
            let _ = thread.join();
        }
        let _ = self.disk.remove(&self.path);
    }
}
