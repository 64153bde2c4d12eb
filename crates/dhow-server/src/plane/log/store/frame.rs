//! One frame: the records of one group commit, written at once and made durable by one fdatasync.
//!
//! A frame is a header of 40 bytes and its records, cut into sectors. The header carries a seal, a hash over
//! everything in the frame and the seal of the frame before it: frames form a chain, so a frame that is
//! missing, repeated or taken from another history is found even where every sector is sound. Called by the
//! writer and by recovery.

use super::identity::StoreId;
use super::limits::SECTOR_BYTES;
use super::sector::{SECTOR_DATA_BYTES, SECTOR_HEADER_BYTES, SectorCodec, SectorHeader};

/// Bytes of a frame in front of its records: length, count, the seal before, its own seal.
pub const FRAME_HEADER_BYTES: usize = 4 + 4 + Seal::BYTES + Seal::BYTES;

/// The hash that stands for a frame and, through the chain, for everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal([u8; Seal::BYTES]);

impl Seal {
    /// Length on disk: 128 bits of BLAKE3.
    pub const BYTES: usize = 16;
    /// What the first frame of a store is chained to.
    pub const GENESIS: Seal = Seal([0; Seal::BYTES]);

    /// A seal as it was read from a file.
    pub const fn from_bytes(bytes: [u8; Seal::BYTES]) -> Self {
        Seal(bytes)
    }

    /// The bytes as they stand on disk.
    pub const fn as_bytes(&self) -> &[u8; Seal::BYTES] {
        &self.0
    }
}

/// Where in the chain a frame stands: its number and the seal of the frame before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPoint {
    /// Sequence number of the frame, from 1.
    pub seq: u64,
    /// Seal of the frame before it.
    pub prev: Seal,
}

impl ChainPoint {
    /// Where the first frame of a store stands.
    pub const GENESIS: ChainPoint = ChainPoint {
        seq: 1,
        prev: Seal::GENESIS,
    };

    /// Where the frame after this one stands.
    pub fn after(self, seal: Seal) -> ChainPoint {
        ChainPoint {
            seq: self.seq.saturating_add(1),
            prev: seal,
        }
    }
}

/// Why sectors that are each sound do not make a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFault {
    /// The lengths inside it do not agree.
    Length,
    /// The hash over its content is another.
    Seal,
    /// It follows another frame than the one before it.
    Chain,
}

/// The records of a sound frame.
#[derive(Debug)]
pub struct Frame {
    /// Its own seal.
    pub seal: Seal,
    /// How many records it says it has.
    pub record_count: u32,
    /// The records' bytes.
    pub records: Vec<u8>,
}

/// Sectors that a frame with so many bytes of records takes.
pub fn sectors_for(records_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + records_bytes).div_ceil(SECTOR_DATA_BYTES)
}

/// Bytes of records that fit into a frame of so many sectors.
pub fn records_capacity(sectors: usize) -> usize {
    (sectors * SECTOR_DATA_BYTES).saturating_sub(FRAME_HEADER_BYTES)
}

/// Writes a frame into `out`, which is overwritten, and returns its seal. The caller has checked that the
/// frame fits into a segment, whose sectors a `u16` can count.
pub fn encode(
    store: &StoreId,
    codec: &SectorCodec,
    at: ChainPoint,
    record_count: u32,
    records: &[u8],
    out: &mut Vec<u8>,
) -> Seal {
    let len = records.len() as u32;
    let seal = seal_of(store, at, len, record_count, records);
    let mut head = [0u8; FRAME_HEADER_BYTES];
    head[0..4].copy_from_slice(&len.to_le_bytes());
    head[4..8].copy_from_slice(&record_count.to_le_bytes());
    head[8..24].copy_from_slice(at.prev.as_bytes());
    head[24..40].copy_from_slice(seal.as_bytes());

    let count = sectors_for(records.len());
    out.clear();
    out.resize(count * SECTOR_BYTES, 0);
    let mut rest = records;
    for (number, sector) in out.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let mut room = &mut sector[SECTOR_HEADER_BYTES..];
        if number == 0 {
            room[..FRAME_HEADER_BYTES].copy_from_slice(&head);
            room = &mut room[FRAME_HEADER_BYTES..];
        }
        let (now, later) = rest.split_at(rest.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        rest = later;
        codec.finish(
            SectorHeader {
                seq: at.seq,
                number: number as u16,
                count: count as u16,
            },
            sector,
        );
    }
    seal
}

/// Reads a frame from sectors that were each found valid and in their places.
pub fn decode(store: &StoreId, at: ChainPoint, sectors: &[u8]) -> Result<Frame, FrameFault> {
    let mut data = Vec::with_capacity(sectors.len());
    for sector in sectors.chunks_exact(SECTOR_BYTES) {
        data.extend_from_slice(&sector[SECTOR_HEADER_BYTES..]);
    }
    let head = data
        .first_chunk::<FRAME_HEADER_BYTES>()
        .ok_or(FrameFault::Length)?;
    let len = u32_at(head, 0);
    let record_count = u32_at(head, 4);
    let prev = seal_at(head, 8);
    let seal = seal_at(head, 24);

    let end = FRAME_HEADER_BYTES + len as usize;
    if sectors_for(len as usize) * SECTOR_BYTES != sectors.len() || data[end..].iter().any(|byte| *byte != 0)
    {
        return Err(FrameFault::Length);
    }
    if prev != at.prev {
        return Err(FrameFault::Chain);
    }
    data.truncate(end);
    let records = data.split_off(FRAME_HEADER_BYTES);
    if seal_of(store, at, len, record_count, &records) != seal {
        return Err(FrameFault::Seal);
    }
    Ok(Frame {
        seal,
        record_count,
        records,
    })
}

fn seal_of(store: &StoreId, at: ChainPoint, len: u32, record_count: u32, records: &[u8]) -> Seal {
    let mut hasher = blake3::Hasher::new();
    hasher.update(store.as_bytes());
    hasher.update(&at.seq.to_le_bytes());
    hasher.update(&len.to_le_bytes());
    hasher.update(&record_count.to_le_bytes());
    hasher.update(at.prev.as_bytes());
    hasher.update(records);
    let mut seal = [0; Seal::BYTES];
    seal.copy_from_slice(&hasher.finalize().as_bytes()[..Seal::BYTES]);
    Seal(seal)
}

fn u32_at(head: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn seal_at(head: &[u8; FRAME_HEADER_BYTES], at: usize) -> Seal {
    let mut seal = [0; Seal::BYTES];
    seal.copy_from_slice(&head[at..at + Seal::BYTES]);
    Seal(seal)
}
