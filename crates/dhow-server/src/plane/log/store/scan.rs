//! Reads one segment from its bytes and tells the end of the log from a torn write and from damage.
//!
//! The rule, for the frame that should come next: all of its sectors are valid, then it is a frame; all that
//! follows is zero, then the log ends here; all that follows is either zero or a valid sector of just this
//! frame, then its write was torn; anything else is damage. Called by recovery; it changes nothing.

use std::path::Path;

use super::damage::{What, damaged};
use super::error::StoreError;
use super::frame::{ChainPoint, Frame, FrameFault, decode};
use super::identity::StoreId;
use super::limits::SECTOR_BYTES;
use super::sector::{FORMAT_VERSION, SectorCodec, SectorHeader, SectorState};

/// A segment's bytes with what is needed to judge them.
pub struct SegmentScan<'a> {
    path: &'a Path,
    store: &'a StoreId,
    codec: &'a SectorCodec,
    bytes: &'a [u8],
    /// Sectors that the segment has when it is whole.
    sectors: usize,
}

/// What comes next in a segment.
#[derive(Debug)]
pub enum Next {
    /// A sound frame and the sector after it.
    Frame(Frame, usize),
    /// The log ends here.
    End,
    /// A write was cut off here: so many sectors from this one on are its remains.
    Torn {
        /// Sectors that the remains reach over.
        sectors: usize,
    },
}

impl<'a> SegmentScan<'a> {
    /// A scan over the bytes that a segment file has, which may be fewer than it should.
    pub fn new(
        path: &'a Path,
        store: &'a StoreId,
        codec: &'a SectorCodec,
        bytes: &'a [u8],
        segment_size_bytes: u64,
    ) -> Self {
        let sectors = (segment_size_bytes / SECTOR_BYTES as u64) as usize;
        SegmentScan {
            path,
            store,
            codec,
            bytes,
            sectors,
        }
    }

    /// Judges what stands at `sector`, where the frame at `at` should begin.
    pub fn next(&self, sector: usize, at: ChainPoint) -> Result<Next, StoreError> {
        if sector >= self.sectors {
            return Ok(Next::End);
        }
        match self.whole_frame(sector, at.seq) {
            Some(count) => self.decode_frame(sector, count, at),
            None => self.judge_tail(sector, at.seq),
        }
    }

    /// The number of sectors of the frame that begins here, if every one of them is valid.
    fn whole_frame(&self, sector: usize, seq: u64) -> Option<usize> {
        let SectorState::Valid(SectorHeader { count, .. }) = self.sector(sector) else {
            return None;
        };
        let whole = (0..count).all(|number| {
            self.sector(sector + usize::from(number))
                == SectorState::Valid(SectorHeader { seq, number, count })
        });
        whole.then_some(usize::from(count))
    }

    fn decode_frame(&self, sector: usize, count: usize, at: ChainPoint) -> Result<Next, StoreError> {
        let bytes = &self.bytes[sector * SECTOR_BYTES..(sector + count) * SECTOR_BYTES];
        match decode(self.store, at, bytes) {
            Ok(frame) => Ok(Next::Frame(frame, sector + count)),
            Err(FrameFault::Length | FrameFault::Seal) => {
                Err(self.refuse(sector, sector, What::FrameContent { frame: at.seq }))
            }
            Err(FrameFault::Chain) => Err(self.refuse(sector, sector, What::FrameChain { frame: at.seq })),
        }
    }

    /// Decides between end, torn write and damage, for everything from `start` to the end of the segment.
    fn judge_tail(&self, start: usize, seq: u64) -> Result<Next, StoreError> {
        let mut count = None;
        let mut first_zero = None;
        let mut last_used = None;
        for sector in start..self.sectors {
            let state = self.sector(sector);
            let number = sector - start;
            let inside = |header: SectorHeader| {
                header.seq == seq
                    && usize::from(header.number) == number
                    && count.is_none_or(|count| count == header.count)
                    && start + usize::from(header.count) <= self.sectors
            };
            match state {
                SectorState::Zero => {
                    first_zero.get_or_insert(sector);
                }
                SectorState::Valid(header) if inside(header) => {
                    count = Some(header.count);
                    last_used = Some(sector);
                }
                SectorState::Cut(None) => last_used = Some(sector),
                SectorState::Cut(Some(header)) if inside(header) => last_used = Some(sector),
                SectorState::Valid(header) => {
                    return Err(self.misplaced(start, sector, first_zero, seq, header));
                }
                SectorState::Newer(found) => {
                    return Err(StoreError::NewerFormat {
                        file: self.path.to_owned(),
                        found: u32::from(found),
                        known: u32::from(FORMAT_VERSION),
                    });
                }
                SectorState::Cut(Some(_)) | SectorState::Bad => {
                    let of_frame = number == 0 || count.is_some_and(|count| number < usize::from(count));
                    let what = if of_frame {
                        What::SectorChecksum { frame: seq }
                    } else {
                        What::AfterEnd
                    };
                    return Err(self.refuse(start, sector, what));
                }
            }
        }
        Ok(match last_used {
            None => Next::End,
            Some(last) => Next::Torn {
                sectors: count.map_or(last - start + 1, usize::from).max(last - start + 1),
            },
        })
    }

    /// A valid sector of another frame, or of another part of this one.
    fn misplaced(
        &self,
        start: usize,
        sector: usize,
        first_zero: Option<usize>,
        seq: u64,
        header: SectorHeader,
    ) -> StoreError {
        match first_zero {
            Some(zero) if header.seq >= seq => self.refuse(start, zero, What::SectorMissing { frame: seq }),
            Some(_) | None => self.refuse(
                start,
                sector,
                What::FrameOutOfOrder {
                    expected: seq,
                    found: header.seq,
                },
            ),
        }
    }

    fn sector(&self, sector: usize) -> SectorState {
        let from = sector * SECTOR_BYTES;
        let to = from + SECTOR_BYTES;
        if sector >= self.sectors {
            return SectorState::Bad;
        }
        if to <= self.bytes.len() {
            return self.codec.classify(&self.bytes[from..to]);
        }
        match self.bytes.get(from..) {
            Some(present) => self.codec.classify_cut(present),
            None => SectorState::Zero,
        }
    }

    fn refuse(&self, sound_before: usize, sector: usize, what: What) -> StoreError {
        damaged(
            self.path,
            (sector * SECTOR_BYTES) as u64,
            what,
            (sound_before * SECTOR_BYTES) as u64,
        )
    }
}
