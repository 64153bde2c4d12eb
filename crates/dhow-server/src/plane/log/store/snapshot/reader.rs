//! Streams a snapshot out of its file, checking each chunk before it is handed out.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::plane::log::store::damage::What;
use crate::plane::log::store::error::{Action, StoreError};
use crate::plane::log::store::identity::StoreId;
use crate::plane::log::store::limits::SNAPSHOT_CHUNK_BYTES;
use crate::plane::log::store::record::LogPosition;

use super::damaged_snapshot;
use super::form::{
    CHUNK_HEADER_BYTES, FOOTER_BYTES, HEADER_BYTES, chunk_checksum, decode_header, encode_footer,
};

/// A snapshot that is being read. The end is reported only when the footer fits what was read, so a reader that
/// sees the end has seen everything.
#[derive(Debug)]
pub struct SnapshotReader {
    path: PathBuf,
    file: BufReader<File>,
    at: LogPosition,
    hasher: blake3::Hasher,
    chunk: Vec<u8>,
    /// How much of the chunk was handed out.
    taken: usize,
    chunks: u64,
    content_bytes: u64,
    offset: u64,
    ended: bool,
}

impl SnapshotReader {
    pub(super) fn open(path: &Path, store: &StoreId, index: u64) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(|error| StoreError::io(Action::Open, path, error))?;
        let mut reader = SnapshotReader {
            path: path.to_owned(),
            file: BufReader::with_capacity(SNAPSHOT_CHUNK_BYTES, file),
            at: LogPosition::default(),
            hasher: blake3::Hasher::new(),
            chunk: Vec::new(),
            taken: 0,
            chunks: 0,
            content_bytes: 0,
            offset: 0,
            ended: false,
        };
        let mut header = [0; HEADER_BYTES];
        reader.fill(0, &mut header)?;
        reader.at = decode_header(path, &header, store, index)?;
        reader.hasher.update(&header);
        Ok(reader)
    }

    /// The position the snapshot is of.
    pub fn position(&self) -> LogPosition {
        self.at
    }

    /// Reads on to the end without handing anything out.
    pub(super) fn verify_rest(&mut self) -> Result<LogPosition, StoreError> {
        while self.next_chunk()? {}
        Ok(self.at)
    }

    /// Reads the next chunk; `false` at the end, once the footer was found right.
    fn next_chunk(&mut self) -> Result<bool, StoreError> {
        if self.ended {
            return Ok(false);
        }
        let start = self.offset;
        let damaged = What::SnapshotChunk { number: self.chunks };
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.fill(start, &mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        if length > SNAPSHOT_CHUNK_BYTES {
            return Err(damaged_snapshot(&self.path, start, damaged));
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        self.taken = 0;
        chunk.resize(length, 0);
        self.fill(start, &mut chunk)?;
        if chunk_checksum(self.chunks, &chunk) != checksum {
            return Err(damaged_snapshot(&self.path, start, damaged));
        }
        if length == 0 {
            return self.footer().map(|()| false);
        }
        self.hasher.update(&chunk);
        self.chunks += 1;
        self.content_bytes += length as u64;
        self.chunk = chunk;
        Ok(true)
    }

    fn footer(&mut self) -> Result<(), StoreError> {
        let start = self.offset;
        let mut footer = [0; FOOTER_BYTES];
        self.fill(start, &mut footer)?;
        if footer != encode_footer(self.chunks, self.content_bytes, &self.hasher) {
            return Err(damaged_snapshot(&self.path, start, What::SnapshotFooter));
        }
        match self.file.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(damaged_snapshot(&self.path, self.offset, What::SnapshotAfterEnd)),
            Err(error) => return Err(StoreError::io(Action::Read, &self.path, error)),
        }
        self.ended = true;
        Ok(())
    }

    /// Reads on; `start` is where the part begins that a message should name.
    fn fill(&mut self, start: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        match self.file.read_exact(buffer) {
            Ok(()) => {
                self.offset += buffer.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(damaged_snapshot(&self.path, start, What::SnapshotCut))
            }
            Err(error) => Err(StoreError::io(Action::Read, &self.path, error)),
        }
    }
}

impl Read for SnapshotReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() && !self.next_chunk().map_err(io::Error::other)? {
            return Ok(0);
        }
        let rest = &self.chunk[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}
