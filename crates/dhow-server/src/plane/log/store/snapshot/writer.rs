//! Streams a snapshot into a file that gets its name when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::plane::log::store::error::{Action, StoreError};
use crate::plane::log::store::limits::SNAPSHOT_CHUNK_BYTES;
use crate::plane::log::store::record::LogPosition;

use super::SnapshotsState;
use super::form::{encode_chunk_header, encode_footer, encode_header};

/// A snapshot in the making. Dropped before [`SnapshotWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct SnapshotWriter {
    snapshots: Arc<SnapshotsState>,
    at: LogPosition,
    path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    /// Content that does not fill a chunk yet.
    pending: Vec<u8>,
    chunks: u64,
    content_bytes: u64,
    /// Where the next bytes go.
    offset: u64,
}

impl SnapshotWriter {
    pub(super) fn create(snapshots: Arc<SnapshotsState>, at: LogPosition) -> Result<Self, StoreError> {
        let path = snapshots.passing_path(at.index);
        let file = snapshots
            .disk
            .create_empty(&path)
            .map_err(|error| StoreError::making(Action::Create, &path, 0, error))?;
        let header = encode_header(&snapshots.store, at);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&header);
        let mut writer = SnapshotWriter {
            snapshots,
            at,
            path,
            file,
            hasher,
            pending: Vec::with_capacity(SNAPSHOT_CHUNK_BYTES),
            chunks: 0,
            content_bytes: 0,
            offset: 0,
        };
        writer
            .put(&header)
            .map_err(|error| writer.cannot(Action::Write, error))?;
        Ok(writer)
    }

    /// The position the snapshot is of.
    pub fn position(&self) -> LogPosition {
        self.at
    }

    /// Writes the rest and the footer, makes all of it durable and gives it its name. From here on it is the
    /// newest snapshot, and only the one before it is kept besides.
    pub fn finish(mut self) -> Result<LogPosition, StoreError> {
        self.put_rest()
            .map_err(|error| self.cannot(Action::Write, error))?;
        self.snapshots
            .disk
            .sync(&self.file, &self.path)
            .map_err(|error| self.cannot(Action::Sync, error))?;
        self.snapshots.put_in_force(&self.path, self.at.index)?;
        Ok(self.at)
    }

    fn put_rest(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.put_chunk()?;
        }
        let end = encode_chunk_header(self.chunks, &[]);
        let footer = encode_footer(self.chunks, self.content_bytes, &self.hasher);
        self.put(&end)?;
        self.put(&footer)
    }

    fn put_chunk(&mut self) -> io::Result<()> {
        let content = std::mem::take(&mut self.pending);
        self.put(&encode_chunk_header(self.chunks, &content))?;
        self.put(&content)?;
        self.hasher.update(&content);
        self.chunks += 1;
        self.content_bytes += content.len() as u64;
        self.pending = content;
        self.pending.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.snapshots
            .disk
            .write_at(&self.file, &self.path, bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn cannot(&self, action: Action, error: io::Error) -> StoreError {
        StoreError::making(action, &self.path, self.offset, error)
    }
}

impl Write for SnapshotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = SNAPSHOT_CHUNK_BYTES - self.pending.len();
        let taken = bytes.len().min(room);
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == SNAPSHOT_CHUNK_BYTES {
            self.put_chunk()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        // After `finish` the passing name is gone; before it, this removes what was begun. A failure leaves a
        // file that the next opening removes.
        let _ = self.snapshots.disk.remove(&self.path);
    }
}
