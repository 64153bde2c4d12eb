//! One sector: the unit that is on disk whole, missing, or damaged.
//!
//! Frames are cut into sectors of 512 bytes, each with its own header and checksum. That is what makes the
//! difference between a torn write and damage exact: a disk writes a sector whole or not at all, so a torn
//! write leaves sectors that are all zero beside sectors that are valid. A sector that is neither was changed
//! after it was written. Called by the frame codec, recovery and reads; it must never guess.

use super::identity::StoreId;
use super::limits::SECTOR_BYTES;

/// Bytes of a sector in front of its share of the frame.
pub const SECTOR_HEADER_BYTES: usize = 20;
/// Bytes of the frame that one sector carries.
pub const SECTOR_DATA_BYTES: usize = SECTOR_BYTES - SECTOR_HEADER_BYTES;

const MAGIC: [u8; 2] = *b"Dw";
/// The version of the frame and sector layout.
pub const FORMAT_VERSION: u8 = 1;

const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];

/// Which part of which frame a sector carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorHeader {
    /// The frame's sequence number.
    pub seq: u64,
    /// Position inside the frame, from 0.
    pub number: u16,
    /// Sectors of the frame.
    pub count: u16,
}

/// What a sector on disk turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectorState {
    /// All bytes are zero (or lie beyond the end of the file): never written.
    Zero,
    /// The checksum holds.
    Valid(SectorHeader),
    /// The file ends inside it. The header is there when enough bytes are, unchecked.
    Cut(Option<SectorHeader>),
    /// The checksum holds, but a newer version wrote it.
    Newer(u8),
    /// It was changed after it was written, or never was a sector of this store.
    Bad,
}

/// Reads and writes sectors of one store: the store's identity is part of every checksum, so that a sector of
/// another store is never taken for one of this.
#[derive(Debug, Clone)]
pub struct SectorCodec {
    base: crc32fast::Hasher,
}

impl SectorCodec {
    /// A codec for the store with this identity.
    pub fn new(store: &StoreId) -> Self {
        let mut base = crc32fast::Hasher::new();
        base.update(store.as_bytes());
        SectorCodec { base }
    }

    /// Fills in the header of a sector whose data is already in place.
    pub fn finish(&self, header: SectorHeader, sector: &mut [u8]) {
        sector[4..6].copy_from_slice(&MAGIC);
        sector[6] = FORMAT_VERSION;
        sector[7] = 0;
        sector[8..16].copy_from_slice(&header.seq.to_le_bytes());
        sector[16..18].copy_from_slice(&header.number.to_le_bytes());
        sector[18..20].copy_from_slice(&header.count.to_le_bytes());
        let crc = self.checksum(sector);
        sector[0..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Says what a whole sector is.
    pub fn classify(&self, sector: &[u8]) -> SectorState {
        if sector.len() != SECTOR_BYTES {
            return SectorState::Bad;
        }
        if sector == ZEROS {
            return SectorState::Zero;
        }
        if self.checksum(sector).to_le_bytes() != sector[0..4] || sector[4..6] != MAGIC {
            return SectorState::Bad;
        }
        if sector[6] != FORMAT_VERSION {
            return SectorState::Newer(sector[6]);
        }
        match parse_header(sector) {
            Some(header) if header.number < header.count => SectorState::Valid(header),
            Some(_) | None => SectorState::Bad,
        }
    }

    /// Says what the beginning of a sector is, the rest of which lies beyond the end of the file.
    pub fn classify_cut(&self, present: &[u8]) -> SectorState {
        if present == &ZEROS[..present.len()] {
            return SectorState::Zero;
        }
        if present.len() < SECTOR_HEADER_BYTES {
            return SectorState::Cut(None);
        }
        match parse_header(present) {
            Some(header) if present[4..6] == MAGIC && present[6] == FORMAT_VERSION => {
                SectorState::Cut(Some(header))
            }
            Some(_) | None => SectorState::Bad,
        }
    }

    fn checksum(&self, sector: &[u8]) -> u32 {
        let mut hasher = self.base.clone();
        hasher.update(&sector[4..]);
        hasher.finalize()
    }
}

fn parse_header(sector: &[u8]) -> Option<SectorHeader> {
    if sector[7] != 0 {
        return None;
    }
    Some(SectorHeader {
        seq: u64::from_le_bytes(sector[8..16].try_into().ok()?),
        number: u16::from_le_bytes(sector[16..18].try_into().ok()?),
        count: u16::from_le_bytes(sector[18..20].try_into().ok()?),
    })
}
