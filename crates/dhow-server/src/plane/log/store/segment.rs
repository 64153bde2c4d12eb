//! One segment file: a header sector, then frames, then zeros up to a fixed size.
//!
//! Segments are named by the number of their first frame. The header repeats that number, the identity of
//! the store and the seal of the frame before, so that a segment under a wrong name is found.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damage::{What, damaged};
use super::error::StoreError;
use super::frame::{ChainPoint, Seal};
use super::identity::StoreId;
use super::limits::SECTOR_BYTES;

const MAGIC: [u8; 8] = *b"DHOWSEGM";
const VERSION: u32 = 1;
const PREFIX: &str = "segment-";
const SUFFIX: &str = ".log";

/// An open segment.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Number of its first frame.
    pub first: u64,
    /// Its path, for messages and deletion.
    pub path: PathBuf,
    /// The file. A reader that still holds it can go on reading after it was deleted.
    pub file: Arc<File>,
}

/// The path of the segment whose first frame has this number.
pub fn path_of(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{first:020}{SUFFIX}"))
}

/// The number of the first frame, from a file name; `None` for a file that is no segment.
pub fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The header sector of a segment.
pub fn encode_header(store: &StoreId, segment_size_bytes: u64, at: ChainPoint) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    sector[0..8].copy_from_slice(&MAGIC);
    sector[8..12].copy_from_slice(&VERSION.to_le_bytes());
    sector[16..32].copy_from_slice(store.as_bytes());
    sector[32..40].copy_from_slice(&segment_size_bytes.to_le_bytes());
    sector[40..48].copy_from_slice(&at.seq.to_le_bytes());
    sector[48..64].copy_from_slice(at.prev.as_bytes());
    let crc = crc32fast::hash(&sector[..SECTOR_BYTES - 4]);
    sector[SECTOR_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    sector
}

/// Reads the header sector, checks that it is this store's and that of the segment named `first`, and returns
/// where in the chain the segment begins.
pub fn decode_header(
    path: &Path,
    sector: &[u8],
    store: &StoreId,
    segment_size_bytes: u64,
    first: u64,
) -> Result<ChainPoint, StoreError> {
    let refuse = |what| damaged(path, 0, what, 0);
    let sector: &[u8; SECTOR_BYTES] = sector.first_chunk().ok_or_else(|| refuse(What::SegmentHeader))?;
    let crc = crc32fast::hash(&sector[..SECTOR_BYTES - 4]);
    if crc.to_le_bytes() != sector[SECTOR_BYTES - 4..] || sector[..8] != MAGIC {
        return Err(refuse(What::SegmentHeader));
    }
    let version = u32::from_le_bytes([sector[8], sector[9], sector[10], sector[11]]);
    if version != VERSION {
        return Err(StoreError::NewerFormat {
            file: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    let mut prev = [0; Seal::BYTES];
    prev.copy_from_slice(&sector[48..64]);
    let at = ChainPoint {
        seq: first,
        prev: Seal::from_bytes(prev),
    };
    if *sector != encode_header(store, segment_size_bytes, at) {
        return Err(refuse(What::SegmentOutOfPlace));
    }
    Ok(at)
}
