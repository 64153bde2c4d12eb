//! The one thread that writes: takes what waits, writes it as one frame, makes it durable, answers.
//!
//! Requests that come in during an fdatasync go into the next frame together; that is all there is to group
//! commit, there is no timer. After a failed write or fdatasync nothing is ever written again: the kernel may
//! have dropped the dirty pages, so a second fdatasync that succeeds would prove nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use super::batch::Request;
use super::error::{Action, StoreError};
use super::frame::{self, ChainPoint, Seal, records_capacity, sectors_for};
use super::group::Group;
use super::limits::{FRAME_BUFFER_KEEP_BYTES, SECTOR_BYTES};
use super::manifest::Manifest;
use super::open_store::OpenStore;
use super::record::{MAX_CHECKPOINT_BYTES, Record};
use super::recovery::Tail;
use super::repair::remove_all;
use super::segment::{self, Segment};
use super::spare::SpareMaker;
use super::state::RecordPlace;

/// The thread that writes the segments of one store.
pub struct Writer {
    shared: Arc<OpenStore>,
    requests: Receiver<Request>,
    manifest: Manifest,
    active: Segment,
    tail: Tail,
    spare: SpareMaker,
    /// A request that did not fit into the frame before.
    held: Option<Request>,
    records_buffer: Vec<u8>,
    frame_buffer: Vec<u8>,
}

impl Writer {
    /// A writer that goes on at `tail` of the last segment.
    pub fn new(
        shared: Arc<OpenStore>,
        requests: Receiver<Request>,
        manifest: Manifest,
        active: Segment,
        tail: Tail,
        spare: SpareMaker,
    ) -> Self {
        Writer {
            shared,
            requests,
            manifest,
            active,
            tail,
            spare,
            held: None,
            records_buffer: Vec::new(),
            frame_buffer: Vec::new(),
        }
    }

    /// Works until every sender is gone and the queue is empty.
    pub fn run(mut self) {
        while let Some(request) = self.next_request() {
            self.commit_from(request);
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        let request = self.requests.recv().ok()?;
        self.shared.dequeued(request.size_bytes);
        Some(request)
    }

    /// Commits this request together with those that wait behind it.
    fn commit_from(&mut self, first: Request) {
        if let Err(error) = self.shared.check_writable() {
            return (first.done)(Err(error));
        }
        if !self.fits(first.size_bytes)
            && let Err(error) = self.rotate()
        {
            return (first.done)(Err(error));
        }
        let group = self.gather(first);
        if group.staged.is_empty() {
            self.records_buffer = group.answer();
            return;
        }
        match self.write(&group) {
            Ok(seal) => self.finish(group, seal),
            Err(error) => {
                self.poison(&error);
                group.fail(&error);
            }
        }
    }

    /// Bytes of records that the rest of the active segment has room for.
    fn room_bytes(&self) -> usize {
        let sectors = (self.manifest.segment_size_bytes / SECTOR_BYTES as u64) as usize;
        records_capacity(sectors.saturating_sub(self.tail.sector))
    }

    fn opens_segment(&self) -> bool {
        self.tail.at.seq == self.active.first
    }

    fn fits(&self, size_bytes: usize) -> bool {
        let checkpoint = if self.opens_segment() {
            MAX_CHECKPOINT_BYTES
        } else {
            0
        };
        size_bytes + checkpoint <= self.room_bytes()
    }

    /// Takes the first request and as many of those that wait as one frame may hold.
    fn gather(&mut self, first: Request) -> Group {
        let view = self.shared.view();
        let checkpoint = self.opens_segment().then(|| view.log.checkpoint());
        let bounds = view.log.bounds;
        drop(view);
        let limit = self
            .room_bytes()
            .min(self.shared.options.max_batch_bytes() + MAX_CHECKPOINT_BYTES);
        let buffer = std::mem::take(&mut self.records_buffer);
        let mut group = Group::begin(bounds, self.tail.at.seq, checkpoint, buffer);
        group.add(first);
        while let Ok(request) = self.requests.try_recv() {
            self.shared.dequeued(request.size_bytes);
            if group.records.len() + request.size_bytes > limit {
                self.held = Some(request);
                break;
            }
            group.add(request);
        }
        group
    }

    /// Writes the frame and makes it durable.
    fn write(&mut self, group: &Group) -> Result<Seal, StoreError> {
        let store = self.manifest.store;
        let (count, records) = (group.record_count, &group.records);
        let seal = frame::encode(
            &store,
            &self.shared.codec,
            self.tail.at,
            count,
            records,
            &mut self.frame_buffer,
        );
        let disk = &self.shared.options.disk;
        let (file, path) = (&self.active.file, &self.active.path);
        let offset = (self.tail.sector * SECTOR_BYTES) as u64;
        disk.write_at(file, path, &self.frame_buffer, offset)
            .map_err(|error| StoreError::io(Action::Write, path, error))?;
        disk.sync(file, path)
            .map_err(|error| StoreError::io(Action::Sync, path, error))?;
        Ok(seal)
    }

    /// Shows a durable frame to readers, tells its callers, and tidies up behind it.
    fn finish(&mut self, mut group: Group, seal: Seal) {
        let mut purged = false;
        let mut entries = 0;
        {
            let mut view = self.shared.view();
            for (offset, record) in group.staged.drain(..) {
                match &record {
                    Record::Append(entry) => {
                        entries += 1;
                        view.cache.push(entry.clone());
                    }
                    Record::Truncate { from } => view.cache.truncate(*from),
                    Record::Purge(up_to) => {
                        purged = true;
                        view.cache.purge(up_to.index);
                    }
                    Record::Meta { .. } | Record::Checkpoint(_) => {}
                }
                // A segment has fewer sectors than a `u16` can count, and no more frames than sectors.
                let frame = (self.tail.at.seq - self.active.first) as u16;
                let place = RecordPlace {
                    segment: self.active.first,
                    sector: self.tail.sector as u16,
                    frame,
                    offset,
                };
                if let Err(error) = view.log.apply(record, place) {
                    // The same record passed the same check before it was written, so this is a fault of the
                    // program: what is on disk is right, what is in memory is not, and writing must stop.
                    tracing::error!(%error, "the log in memory does not follow the log on disk");
                    let _ = self.shared.poison.set(Arc::new(error));
                }
            }
        }
        let counters = &self.shared.counters;
        counters.frames.fetch_add(1, Ordering::Relaxed);
        counters.entries.fetch_add(entries, Ordering::Relaxed);
        self.tail = Tail {
            at: self.tail.at.after(seal),
            sector: self.tail.sector + sectors_for(group.records.len()),
        };
        self.records_buffer = group.answer();
        self.shrink_buffers();
        if purged {
            self.delete_purged();
        }
        if self.room_bytes() as u64 * 2 < self.manifest.segment_size_bytes {
            self.spare.ask();
        }
    }

    fn shrink_buffers(&mut self) {
        for buffer in [&mut self.records_buffer, &mut self.frame_buffer] {
            buffer.clear();
            buffer.shrink_to(FRAME_BUFFER_KEEP_BYTES);
        }
    }

    /// Goes on in a new segment. A full disk changes nothing, and the caller gets the error; any other failure, and any
    /// once the new manifest may be in force, stops writing.
    fn rotate(&mut self) -> Result<(), StoreError> {
        let at = self.tail.at;
        let (segment, manifest) = match self.prepare_segment(at) {
            Ok(prepared) => prepared,
            Err(error) => {
                // The log may go on in the old segment with what is small enough, and then the next segment gets
                // another name: a file that stayed behind under this one would look like a part of the log.
                let undone = self
                    .shared
                    .options
                    .disk
                    .remove(&segment::path_of(&self.shared.dir, at.seq));
                if undone.is_err() || !matches!(error, StoreError::NoSpace { .. }) {
                    self.poison(&error);
                }
                return Err(error);
            }
        };
        let (disk, dir) = (&self.shared.options.disk, &self.shared.dir);
        Manifest::put_in_force(disk, dir).inspect_err(|error| self.poison(error))?;
        self.shared.view().segments.insert(segment.first, segment.clone());
        self.shared.counters.rotations.fetch_add(1, Ordering::Relaxed);
        self.manifest = manifest;
        self.active = segment;
        self.tail = Tail { at, sector: 1 };
        Ok(())
    }

    /// Makes the segment that begins at `at` and a manifest that lists it. Neither counts yet.
    fn prepare_segment(&mut self, at: ChainPoint) -> Result<(Segment, Manifest), StoreError> {
        let (disk, dir) = (&self.shared.options.disk, &self.shared.dir);
        let file = self.spare.take()?;
        let size = self.manifest.segment_size_bytes;
        let path = segment::path_of(dir, at.seq);
        let header = segment::encode_header(&self.manifest.store, size, at);
        let making = |action| {
            let path = &path;
            move |error| StoreError::making(action, path, size, error)
        };
        disk.write_at(&file, self.spare.path(), &header, 0)
            .map_err(making(Action::Write))?;
        disk.sync(&file, self.spare.path())
            .map_err(making(Action::Sync))?;
        disk.rename(dir, self.spare.path(), &path)
            .map_err(making(Action::Rename))?;
        let manifest = Manifest {
            last_segment: at.seq,
            ..self.manifest
        };
        manifest.prepare(disk, dir)?;
        Ok((
            Segment {
                first: at.seq,
                path,
                file: Arc::new(file),
            },
            manifest,
        ))
    }

    /// Deletes the segments that hold nothing of the log any more. A failure costs room, not data, and the
    /// next purge tries again.
    fn delete_purged(&mut self) {
        if let Err(error) = self.try_delete_purged() {
            tracing::warn!(%error, "purged segments of the log could not be deleted");
        }
    }

    fn try_delete_purged(&mut self) -> Result<(), StoreError> {
        let oldest = self
            .shared
            .view()
            .log
            .oldest_segment()
            .unwrap_or(self.active.first);
        if oldest == self.manifest.first_segment {
            return Ok(());
        }
        let (disk, dir) = (&self.shared.options.disk, &self.shared.dir);
        let manifest = Manifest {
            first_segment: oldest,
            ..self.manifest
        };
        manifest.prepare(disk, dir)?;
        Manifest::put_in_force(disk, dir)?;
        self.manifest = manifest;
        let mut view = self.shared.view();
        let kept = view.segments.split_off(&oldest);
        let gone = std::mem::replace(&mut view.segments, kept);
        drop(view);
        let paths: Vec<_> = gone.into_values().map(|segment| segment.path).collect();
        remove_all(disk, dir, &paths)
    }

    fn poison(&self, error: &StoreError) {
        tracing::error!(%error, "the log takes no more writes");
        // A second failure changes nothing: the first one is the cause.
        let _ = self.shared.poison.set(Arc::new(error.clone()));
    }
}
