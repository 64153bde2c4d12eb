//! The layout of a snapshot file: header, chunks, footer.

use std::path::Path;

use crate::plane::log::store::damage::What;
use crate::plane::log::store::error::StoreError;
use crate::plane::log::store::identity::StoreId;
use crate::plane::log::store::record::LogPosition;

use super::damaged_snapshot;

const MAGIC: [u8; 8] = *b"DHOWSNAP";
const VERSION: u32 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes in front of a chunk's content: length and checksum. A length of zero says that the footer follows.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// Bytes of the footer: number of chunks, length, hash, checksum.
pub const FOOTER_BYTES: usize = 8 + 8 + HASH_BYTES + 4;
/// Bytes of the hash over header and content.
pub const HASH_BYTES: usize = 16;

/// The header of a snapshot.
pub fn encode_header(store: &StoreId, at: LogPosition) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(store.as_bytes());
    header[32..40].copy_from_slice(&at.index.to_le_bytes());
    header[40..48].copy_from_slice(&at.term.to_le_bytes());
    let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Reads a header that must be this store's, at this index.
pub fn decode_header(
    path: &Path,
    header: &[u8; HEADER_BYTES],
    store: &StoreId,
    index: u64,
) -> Result<LogPosition, StoreError> {
    let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    if crc.to_le_bytes() != header[HEADER_BYTES - 4..] || header[..8] != MAGIC {
        return Err(damaged_snapshot(path, 0, What::SnapshotHeader));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if version != VERSION {
        return Err(StoreError::NewerFormat {
            file: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    let mut term = [0; 8];
    term.copy_from_slice(&header[40..48]);
    let at = LogPosition {
        index,
        term: u64::from_le_bytes(term),
    };
    if *header != encode_header(store, at) {
        return Err(damaged_snapshot(path, 0, What::SnapshotOutOfPlace));
    }
    Ok(at)
}

/// Checksum of a chunk: its number and length are part of it, so chunks cannot change places.
pub fn chunk_checksum(number: u64, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(content.len() as u32).to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// The header of a chunk; the same with empty content says that the footer follows.
pub fn encode_chunk_header(number: u64, content: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[0..4].copy_from_slice(&(content.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&chunk_checksum(number, content).to_le_bytes());
    header
}

/// The footer over so many chunks and bytes.
pub fn encode_footer(chunks: u64, content_bytes: u64, hasher: &blake3::Hasher) -> [u8; FOOTER_BYTES] {
    let mut footer = [0; FOOTER_BYTES];
    footer[0..8].copy_from_slice(&chunks.to_le_bytes());
    footer[8..16].copy_from_slice(&content_bytes.to_le_bytes());
    footer[16..32].copy_from_slice(&hasher.finalize().as_bytes()[..HASH_BYTES]);
    let crc = crc32fast::hash(&footer[..FOOTER_BYTES - 4]);
    footer[FOOTER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    footer
}
