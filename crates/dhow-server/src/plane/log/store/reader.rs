//! Reads entries back, checking every sector again.
//!
//! The places are looked up under the lock, the disk is read without it. Entries of one frame that follow each
//! other are read at once.

use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::damage::{What, damaged};
use super::error::{Action, StoreError};
use super::frame::FRAME_HEADER_BYTES;
use super::limits::{ENTRY_OVERHEAD_BYTES, READ_RUN_BYTES, SECTOR_BYTES};
use super::open_store::{OpenStore, View};
use super::record::{APPEND_HEADER_BYTES, Entry, Record};
use super::sector::{SECTOR_DATA_BYTES, SECTOR_HEADER_BYTES, SectorCodec, SectorState};
use super::segment::Segment;
use super::state::Slot;

/// Entries of one frame that follow each other.
struct Run {
    segment: Segment,
    sector: u16,
    /// Number of the frame.
    frame: u64,
    entries: Vec<(u64, Slot)>,
}

/// Reads the entries of a range, as many as fit into `max_bytes`, but one where there is one.
pub fn read(shared: &OpenStore, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
    let (runs, cached) = plan(&shared.view(), range, max_bytes)?;
    let mut entries = Vec::new();
    for run in &runs {
        read_run(&shared.codec, run, &mut entries)?;
    }
    entries.extend(cached);
    Ok(entries)
}

/// Reads the entries of a range where all of them are in memory; as many as fit into `max_bytes`.
pub fn read_cached(shared: &OpenStore, range: Range<u64>, max_bytes: usize) -> Option<Vec<Entry>> {
    match plan(&shared.view(), range, max_bytes) {
        Ok((runs, cached)) if runs.is_empty() => Some(cached),
        Ok(_) | Err(_) => None,
    }
}

/// Finds where the entries are: first those on disk, then those in memory, which end where the log ends.
fn plan(view: &View, range: Range<u64>, max_bytes: usize) -> Result<(Vec<Run>, Vec<Entry>), StoreError> {
    let first = view.log.bounds.first_index();
    if range.start < first {
        return Err(StoreError::Compacted {
            wanted: range.start,
            first,
        });
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut cached = Vec::new();
    let mut total_bytes = 0;
    for index in range.start..range.end.min(view.log.bounds.next_index) {
        let Some(slot) = view.log.slot(index) else { break };
        let cost = slot.payload_bytes as usize + ENTRY_OVERHEAD_BYTES;
        if total_bytes > 0 && total_bytes + cost > max_bytes {
            break;
        }
        total_bytes += cost;
        if let Some(entry) = view.cache.get(index) {
            cached.push(entry.clone());
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.takes(slot) => run.entries.push((index, slot)),
            Some(_) | None => {
                let Some(segment) = view.segments.get(&slot.segment) else {
                    break;
                };
                runs.push(Run {
                    segment: segment.clone(),
                    sector: slot.sector,
                    frame: slot.segment + u64::from(slot.frame),
                    entries: vec![(index, slot)],
                });
            }
        }
    }
    Ok((runs, cached))
}

impl Run {
    fn takes(&self, slot: Slot) -> bool {
        let begin = self.entries.first().map_or(0, |(_, first)| first.offset as usize);
        self.segment.first == slot.segment
            && self.sector == slot.sector
            && slot.offset as usize + slot.payload_bytes as usize - begin <= READ_RUN_BYTES
    }
}

/// The bytes of a slot's record, counted from the beginning of its frame's data.
fn span(slot: &Slot) -> Range<usize> {
    let begin = FRAME_HEADER_BYTES + slot.offset as usize;
    begin..begin + APPEND_HEADER_BYTES + slot.payload_bytes as usize
}

fn read_run(codec: &SectorCodec, run: &Run, out: &mut Vec<Entry>) -> Result<(), StoreError> {
    let (Some((_, first)), Some((_, last))) = (run.entries.first(), run.entries.last()) else {
        return Ok(());
    };
    let from = span(first).start / SECTOR_DATA_BYTES;
    let to = span(last).end.div_ceil(SECTOR_DATA_BYTES);
    let path = &run.segment.path;
    let mut sectors = vec![0; (to - from) * SECTOR_BYTES];
    let offset = ((usize::from(run.sector) + from) * SECTOR_BYTES) as u64;
    run.segment
        .file
        .read_exact_at(&mut sectors, offset)
        .map_err(|error| StoreError::io(Action::Read, path, error))?;
    let data = Bytes::from(verified_data(codec, run, from, offset, &sectors)?);
    for (index, slot) in &run.entries {
        let Range { start, end } = span(slot);
        let base = from * SECTOR_DATA_BYTES;
        let mut record = data.slice(start - base..end - base);
        match Record::decode(&mut record) {
            Some(Record::Append(entry)) if entry.index == *index && entry.term == slot.term => {
                out.push(entry)
            }
            Some(
                Record::Append(_)
                | Record::Truncate { .. }
                | Record::Purge(_)
                | Record::Meta { .. }
                | Record::Checkpoint(_),
            )
            | None => return Err(damaged(path, offset, What::Record { frame: run.frame }, offset)),
        }
    }
    Ok(())
}

/// The frame's bytes in these sectors, each of which must be sound and in its place.
fn verified_data(
    codec: &SectorCodec,
    run: &Run,
    from: usize,
    offset: u64,
    sectors: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let mut data = Vec::with_capacity(sectors.len());
    for (position, sector) in sectors.chunks_exact(SECTOR_BYTES).enumerate() {
        let sound = match codec.classify(sector) {
            SectorState::Valid(header) => {
                header.seq == run.frame && usize::from(header.number) == from + position
            }
            SectorState::Zero | SectorState::Cut(_) | SectorState::Newer(_) | SectorState::Bad => false,
        };
        if !sound {
            let at = offset + (position * SECTOR_BYTES) as u64;
            let what = What::SectorChecksum { frame: run.frame };
            return Err(damaged(&run.segment.path, at, what, at));
        }
        data.extend_from_slice(&sector[SECTOR_HEADER_BYTES..]);
    }
    Ok(data)
}
