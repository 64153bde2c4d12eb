//! Writes a blob to its partial file and hashes it on the way, on a blocking thread.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::image::digest::{Digest, DigestHasher};
use crate::image::store::{DigestLock, Failing, StoreError};
use crate::image::work::Work;

/// Chunks between the network and the disk: 16 of at most about 400 KiB, so below 7 MiB per download.
const CHUNKS_IN_FLIGHT: usize = 16;
const REHASH_BUFFER_BYTES: usize = 128 << 10;

/// The partial file of one blob, open for writing.
pub(super) struct BlobWriter {
    path: PathBuf,
    file: File,
    hasher: DigestHasher,
    /// Held along, so that nobody touches the file while a write is still under way.
    _lock: Arc<DigestLock>,
    _work: Work,
}

impl BlobWriter {
    /// Opens the partial file and hashes what it already holds.
    pub async fn open(path: PathBuf, lock: Arc<DigestLock>, work: Work) -> Result<Self, StoreError> {
        run(move || {
            let opened = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(&path);
            let mut file = opened.failing("open", &path)?;
            let mut hasher = DigestHasher::default();
            let mut buffer = vec![0; REHASH_BUFFER_BYTES];
            loop {
                match file.read(&mut buffer).failing("read", &path)? {
                    0 => break,
                    count => hasher.update(&buffer[..count]),
                }
            }
            Ok(Self {
                path,
                file,
                hasher,
                _lock: lock,
                _work: work,
            })
        })
        .await
    }

    pub fn size_bytes(&self) -> u64 {
        self.hasher.size_bytes()
    }

    /// Forgets everything and starts at the first byte.
    pub async fn restarted(mut self) -> Result<Self, StoreError> {
        run(move || {
            self.hasher = DigestHasher::default();
            let emptied = self
                .file
                .set_len(0)
                .and_then(|()| self.file.seek(SeekFrom::Start(0)));
            emptied.failing("empty", &self.path)?;
            Ok(self)
        })
        .await
    }

    /// Starts writing what is sent; `BlobPipe::finish` gives the writer back.
    pub fn start(self) -> BlobPipe {
        let (chunks, mut incoming) = mpsc::channel::<Bytes>(CHUNKS_IN_FLIGHT);
        let mut writer = self;
        let task = spawn_blocking(move || {
            while let Some(chunk) = incoming.blocking_recv() {
                writer.append(&chunk)?;
            }
            Ok(writer)
        });
        BlobPipe { chunks, task }
    }

    fn append(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(chunk).failing("write", &self.path)?;
        self.hasher.update(chunk);
        Ok(())
    }

    /// Says what the whole content hashes to, and gives the file back at its beginning.
    pub async fn finish(mut self) -> Result<(File, Digest), StoreError> {
        run(move || {
            self.file.seek(SeekFrom::Start(0)).failing("read", &self.path)?;
            Ok((self.file, self.hasher.finish()))
        })
        .await
    }
}

/// A writer at work.
pub(super) struct BlobPipe {
    chunks: mpsc::Sender<Bytes>,
    task: tokio::task::JoinHandle<Result<BlobWriter, StoreError>>,
}

impl BlobPipe {
    /// Hands over a chunk; false when the writer has failed, which `finish` then tells.
    pub async fn send(&self, chunk: Bytes) -> bool {
        self.chunks.send(chunk).await.is_ok()
    }

    pub async fn finish(self) -> Result<BlobWriter, StoreError> {
        drop(self.chunks);
        joined(self.task.await)
    }
}

async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    joined(spawn_blocking(work).await)
}

fn joined<T>(outcome: Result<Result<T, StoreError>, tokio::task::JoinError>) -> Result<T, StoreError> {
    outcome.unwrap_or_else(|error| {
        Err(StoreError::io(
            "write",
            std::path::Path::new("the download"),
            io::Error::other(error),
        ))
    })
}
