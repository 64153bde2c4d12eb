//! Reads everything that is on disk and judges it as a whole.
//!
//! Called once, when a store is opened. It changes nothing: what has to be mended is only noted, so that a
//! directory that is refused is left as it was.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::damage::{What, damaged, damaged_file};
use super::error::{Action, StoreError};
use super::frame::{ChainPoint, Frame};
use super::identity::StoreId;
use super::limits::{MAX_SEGMENT_BYTES, SECTOR_BYTES};
use super::listing::Listing;
use super::manifest::Manifest;
use super::record::{LogPosition, Record};
use super::scan::{Next, SegmentScan};
use super::sector::SectorCodec;
use super::segment::{self, Segment};
use super::state::{LogState, RecordPlace};

/// What opening a store found and did.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// The directory was empty and a new store was made.
    pub created: bool,
    /// Frames that were read.
    pub frames: u64,
    /// Entries that the log holds.
    pub entries: u64,
    /// The unfinished last write that was removed. Nobody was told that it had succeeded.
    pub repaired: Option<Repair>,
    /// The newest snapshot.
    pub snapshot: Option<LogPosition>,
    /// What is wrong with the older snapshot. It is not needed as long as the newest is sound.
    pub older_snapshot: Option<StoreError>,
    /// Files of unfinished steps that were removed.
    pub removed: Vec<PathBuf>,
}

/// What was mended at the end of the last segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The segment.
    pub file: PathBuf,
    /// Where the unfinished write begins, which is where the log now ends.
    pub offset: u64,
    /// Number of the frame that was being written.
    pub frame: u64,
    /// Bytes of it that were made zero again; 0 when only the file was shorter than it should be.
    pub torn_bytes: u64,
    /// The file was shorter than it should be, and has been filled up with zeros.
    pub was_short: bool,
}

/// Where the writer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The next frame.
    pub at: ChainPoint,
    /// The sector of the last segment at which it begins.
    pub sector: usize,
}

/// A directory that was read and found sound.
#[derive(Debug)]
pub struct Loaded {
    /// The manifest.
    pub manifest: Manifest,
    /// The log in memory.
    pub state: LogState,
    /// The open segments by their first frame.
    pub segments: BTreeMap<u64, Segment>,
    /// Where the writer goes on.
    pub tail: Tail,
    /// The bytes of the last segment that hold the last frame, where there is one.
    pub last_frame: Option<Range<u64>>,
    /// Frames that were read.
    pub frames: u64,
    /// What has to be mended.
    pub repair: Option<Repair>,
    /// Files that are left over from unfinished steps.
    pub leftovers: Vec<PathBuf>,
}

/// Reads and judges everything; `None` for a directory in which no store was ever finished being made.
pub fn load(dir: &Path) -> Result<Option<Loaded>, StoreError> {
    let listing = Listing::read(dir)?;
    let Some(manifest) = Manifest::read(dir)? else {
        return match unfinished_creation(dir, &listing)? {
            true => Ok(None),
            false => Err(damaged_file(&Manifest::path(dir), What::ManifestMissing)),
        };
    };
    let mut leftovers = listing.passing;
    let (first, last) = (manifest.first_segment, manifest.last_segment);
    if first > last {
        return Err(damaged_file(&Manifest::path(dir), What::ManifestChecksum));
    }
    for unlisted in listing
        .segments
        .iter()
        .filter(|segment| **segment < first || **segment > last)
    {
        let path = segment::path_of(dir, *unlisted);
        if *unlisted > last && holds_frames(&path, manifest.segment_size_bytes)? {
            return Err(damaged_file(&path, What::SegmentUnlisted));
        }
        leftovers.push(path);
    }
    for listed in [first, last] {
        if !listing.segments.contains(&listed) {
            let what = What::SegmentMissing { frame: listed };
            return Err(damaged_file(&segment::path_of(dir, listed), what));
        }
    }
    let mut load = Load::new(dir, manifest);
    for segment in listing.segments.range(first..=last) {
        load.segment(*segment)?;
    }
    if load.frames == 0 && first != ChainPoint::GENESIS.seq {
        return Err(damaged_file(&segment::path_of(dir, first), What::SegmentEmpty));
    }
    if let Some((from, to)) = load.state.missing() {
        let what = What::EntriesMissing { from, to };
        return Err(damaged_file(&segment::path_of(dir, first), what));
    }
    Ok(Some(load.finish(leftovers)))
}

/// Whether a directory without a manifest is one in which making a store was cut off: the manifest comes
/// last, so nothing can have been written into the first segment.
fn unfinished_creation(dir: &Path, listing: &Listing) -> Result<bool, StoreError> {
    let genesis = ChainPoint::GENESIS.seq;
    if !listing.snapshots.is_empty() || listing.segments.iter().any(|segment| *segment != genesis) {
        return Ok(false);
    }
    Ok(listing.segments.is_empty() || !holds_frames(&segment::path_of(dir, genesis), MAX_SEGMENT_BYTES)?)
}

/// Whether anything stands after the header of a segment.
fn holds_frames(path: &Path, limit_bytes: u64) -> Result<bool, StoreError> {
    let (bytes, length) = read_file(path, limit_bytes)?;
    Ok(length > limit_bytes || bytes.iter().skip(SECTOR_BYTES).any(|byte| *byte != 0))
}

/// Reads a file, but not more of it than it may have; also returns the length it has.
fn read_file(path: &Path, limit_bytes: u64) -> Result<(Vec<u8>, u64), StoreError> {
    let cannot = |error| StoreError::io(Action::Read, path, error);
    let file = File::open(path).map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    let mut bytes = Vec::with_capacity(length.min(limit_bytes) as usize);
    file.take(limit_bytes).read_to_end(&mut bytes).map_err(cannot)?;
    Ok((bytes, length))
}

struct Load<'a> {
    dir: &'a Path,
    manifest: Manifest,
    codec: SectorCodec,
    state: LogState,
    segments: BTreeMap<u64, Segment>,
    tail: Option<Tail>,
    last_frame: Option<Range<u64>>,
    frames: u64,
    repair: Option<Repair>,
}

impl<'a> Load<'a> {
    fn new(dir: &'a Path, manifest: Manifest) -> Self {
        Load {
            dir,
            manifest,
            codec: SectorCodec::new(&manifest.store),
            state: LogState::default(),
            segments: BTreeMap::new(),
            tail: None,
            last_frame: None,
            frames: 0,
            repair: None,
        }
    }

    fn finish(self, leftovers: Vec<PathBuf>) -> Loaded {
        let tail = self.tail.unwrap_or(Tail {
            at: ChainPoint::GENESIS,
            sector: 1,
        });
        Loaded {
            manifest: self.manifest,
            state: self.state,
            segments: self.segments,
            tail,
            last_frame: self.last_frame,
            frames: self.frames,
            repair: self.repair,
            leftovers,
        }
    }

    /// Reads the segment that follows those read before.
    fn segment(&mut self, first: u64) -> Result<(), StoreError> {
        let path = segment::path_of(self.dir, first);
        if let (Some(tail), Some(before)) = (self.tail, self.segments.values().next_back())
            && tail.at.seq < first
        {
            let what = What::FramesMissing {
                from: tail.at.seq,
                to: first - 1,
            };
            let offset = (tail.sector * SECTOR_BYTES) as u64;
            return Err(damaged(&before.path, offset, what, offset));
        }
        let store: StoreId = self.manifest.store;
        let size = self.manifest.segment_size_bytes;
        let is_last = first == self.manifest.last_segment;
        let (bytes, length) = read_file(&path, size)?;
        let at = segment::decode_header(&path, &bytes, &store, size, first)?;
        if length > size || (length < size && !is_last) {
            let what = What::SegmentLength {
                expected_bytes: size,
                found_bytes: length,
            };
            return Err(damaged(&path, length.min(size), what, 0));
        }
        if self.tail.is_some_and(|tail| tail.at != at) {
            return Err(damaged(&path, 0, What::SegmentOutOfPlace, 0));
        }
        let codec = self.codec.clone();
        let scan = SegmentScan::new(&path, &store, &codec, &bytes, size);
        let (tail, torn_sectors) = self.frames(&scan, &path, first, at)?;
        if torn_sectors > 0 && !is_last {
            let what = What::SectorMissing { frame: tail.at.seq };
            let offset = (tail.sector * SECTOR_BYTES) as u64;
            return Err(damaged(&path, offset, what, offset));
        }
        let was_short = length < size;
        if torn_sectors > 0 || was_short {
            self.repair = Some(Repair {
                file: path.clone(),
                offset: (tail.sector * SECTOR_BYTES) as u64,
                frame: tail.at.seq,
                torn_bytes: (torn_sectors * SECTOR_BYTES) as u64,
                was_short,
            });
        }
        self.tail = Some(tail);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| StoreError::io(Action::Open, &path, error))?;
        self.segments.insert(
            first,
            Segment {
                first,
                path,
                file: Arc::new(file),
            },
        );
        Ok(())
    }

    /// Reads all frames of a segment; returns where they end and how many sectors of a torn write follow.
    fn frames(
        &mut self,
        scan: &SegmentScan<'_>,
        path: &Path,
        first: u64,
        mut at: ChainPoint,
    ) -> Result<(Tail, usize), StoreError> {
        let mut sector = 1;
        self.last_frame = None;
        loop {
            match scan.next(sector, at)? {
                Next::Frame(frame, after) => {
                    let seal = frame.seal;
                    self.replay(frame, first, sector, at.seq).ok_or_else(|| {
                        let offset = (sector * SECTOR_BYTES) as u64;
                        damaged(path, offset, What::Record { frame: at.seq }, offset)
                    })?;
                    self.frames += 1;
                    self.last_frame = Some((sector * SECTOR_BYTES) as u64..(after * SECTOR_BYTES) as u64);
                    sector = after;
                    at = at.after(seal);
                }
                Next::End => return Ok((Tail { at, sector }, 0)),
                Next::Torn { sectors } => return Ok((Tail { at, sector }, sectors)),
            }
        }
    }

    /// Repeats the records of a frame; `None` when one of them cannot be right.
    fn replay(&mut self, frame: Frame, segment: u64, sector: usize, seq: u64) -> Option<()> {
        let total = frame.records.len();
        let mut rest = Bytes::from(frame.records);
        let mut count = 0;
        while !rest.is_empty() {
            let offset = (total - rest.len()) as u32;
            let record = Record::decode(&mut rest)?;
            let opens_segment = seq == segment && offset == 0;
            match record {
                Record::Checkpoint(checkpoint) if opens_segment => {
                    if self.frames == 0 {
                        self.state = LogState::from_checkpoint(checkpoint);
                    } else if checkpoint != self.state.checkpoint() {
                        return None;
                    }
                }
                Record::Checkpoint(_) => return None,
                Record::Append(_) | Record::Truncate { .. } | Record::Purge(_) | Record::Meta { .. } => {
                    if opens_segment {
                        return None;
                    }
                    let (sector, frame) = (u16::try_from(sector).ok()?, u16::try_from(seq - segment).ok()?);
                    let place = RecordPlace {
                        segment,
                        sector,
                        frame,
                        offset,
                    };
                    self.state.apply(record, place).ok()?;
                }
            }
            count += 1;
        }
        (count == frame.record_count).then_some(())
    }
}
