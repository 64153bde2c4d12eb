//! The list of segments: which file is the first and which the last.
//!
//! The frames' chain shows a segment missing between two others, but not one missing at either end. This
//! file does: it is replaced, whole and durable, before the first frame goes into a new segment, and before
//! the first segment is deleted.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::damage::{What, damaged_file};
use super::disk::Disk;
use super::error::{Action, StoreError};
use super::identity::StoreId;

const MAGIC: [u8; 8] = *b"DHOWLIST";
const VERSION: u32 = 1;
const FILE: &str = "manifest";
const BYTES: usize = 64;

/// The content of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Identity of the store.
    pub store: StoreId,
    /// Size of every segment.
    pub segment_size_bytes: u64,
    /// First frame of the first segment.
    pub first_segment: u64,
    /// First frame of the last segment.
    pub last_segment: u64,
}

impl Manifest {
    /// Where the manifest of a store stands.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    fn passing_path(dir: &Path) -> PathBuf {
        dir.join("manifest.tmp")
    }

    /// Reads the manifest; `None` when there is no such file.
    pub fn read(dir: &Path) -> Result<Option<Manifest>, StoreError> {
        let path = Manifest::path(dir);
        let mut bytes = Vec::new();
        // One byte more than it may have, so that a longer file is noticed and not read.
        let read = File::open(&path).and_then(|file| file.take(BYTES as u64 + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(Action::Read, &path, error)),
        }
        let refuse = || damaged_file(&path, What::ManifestChecksum);
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| refuse())?;
        if crc32fast::hash(&bytes[..60]).to_le_bytes() != bytes[60..] || bytes[..8] != MAGIC {
            return Err(refuse());
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version != VERSION {
            return Err(StoreError::NewerFormat {
                file: path,
                found: version,
                known: VERSION,
            });
        }
        let mut store = [0; StoreId::BYTES];
        store.copy_from_slice(&bytes[16..32]);
        Ok(Some(Manifest {
            store: StoreId::from_bytes(store),
            segment_size_bytes: u64_at(&bytes, 32),
            first_segment: u64_at(&bytes, 40),
            last_segment: u64_at(&bytes, 48),
        }))
    }

    /// Writes the manifest beside the one in force. Nothing counts yet, so a full disk is only an answer.
    pub fn prepare(&self, disk: &Disk, dir: &Path) -> Result<(), StoreError> {
        let path = Manifest::passing_path(dir);
        disk.write_new(&path, &self.encode())
            .map_err(|error| StoreError::making(Action::Write, &path, BYTES as u64, error))
    }

    /// Puts the prepared manifest in force. After an error nobody knows which one is on disk.
    pub fn put_in_force(disk: &Disk, dir: &Path) -> Result<(), StoreError> {
        let path = Manifest::path(dir);
        disk.rename(dir, &Manifest::passing_path(dir), &path)
            .map_err(|error| StoreError::io(Action::Rename, &path, error))
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.store.as_bytes());
        bytes[32..40].copy_from_slice(&self.segment_size_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_segment.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.last_segment.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
