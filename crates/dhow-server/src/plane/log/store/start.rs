//! Opening a store: lock, load, judge, repair, start the writer. In this order, and nothing is changed before
//! everything was found sound.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{Batch, Op};
use super::cache::EntryCache;
use super::damage::What;
use super::error::{Action, StoreError};
use super::frame::ChainPoint;
use super::identity::StoreId;
use super::listing::Listing;
use super::lock::DirLock;
use super::manifest::Manifest;
use super::open_store::{OpenStore, View};
use super::options::StoreOptions;
use super::record::{LogPosition, MetaKey};
use super::recovery::{self, Loaded, Recovery};
use super::sector::SectorCodec;
use super::snapshot::{self, Snapshots, Verified};
use super::spare::SpareMaker;
use super::writer::Writer;
use super::{SegmentStore, StoreParts, repair, segment};

/// Does what [`SegmentStore::open`] promises: takes the lock, reads and judges everything, mends the end, and starts the
/// writer.
pub fn open(dir: &Path, mut options: StoreOptions) -> Result<(SegmentStore, Recovery), StoreError> {
    options.check()?;
    make_dir(&options, dir)?;
    let lock = Arc::new(DirLock::take(dir)?);
    let (loaded, created) = match recovery::load(dir)? {
        Some(loaded) => (loaded, false),
        None => (create(dir, &options)?, true),
    };
    options.segment_size_bytes = loaded.manifest.segment_size_bytes;
    options.check()?;
    let snapshots = Snapshots::new(
        dir.to_owned(),
        loaded.manifest.store,
        options.disk.clone(),
        Arc::clone(&lock),
    );
    let log_first = loaded.state.bounds.first_index();
    let verified = snapshots.verify(log_first)?;
    if options.purged_needs_snapshot {
        check_history(dir, &loaded, &verified)?;
    }
    repair::repair(&options.disk, dir, &loaded)?;
    let report = Recovery {
        created,
        frames: loaded.frames,
        entries: loaded.state.bounds.next_index - log_first,
        repaired: loaded.repair.clone(),
        snapshot: verified.newest,
        older_snapshot: verified.older_damage,
        removed: loaded.leftovers.clone(),
    };
    let unfinished = unfinished_install(&loaded, report.snapshot);
    let store = start(dir, options, loaded, snapshots, lock)?;
    if let Some(at) = unfinished {
        store.commit(Batch::of(Op::Purge(at)))?;
    }
    Ok((store, report))
}

fn start(
    dir: &Path,
    options: StoreOptions,
    loaded: Loaded,
    snapshots: Snapshots,
    lock: Arc<DirLock>,
) -> Result<SegmentStore, StoreError> {
    let manifest = loaded.manifest;
    let last = segment::path_of(dir, manifest.last_segment);
    let active = loaded
        .segments
        .get(&manifest.last_segment)
        .cloned()
        .ok_or_else(|| {
            super::damage::damaged_file(
                &last,
                What::SegmentMissing {
                    frame: manifest.last_segment,
                },
            )
        })?;
    let spare = SpareMaker::start(options.disk.clone(), dir, manifest.segment_size_bytes)?;
    let view = View {
        log: loaded.state,
        cache: EntryCache::new(options.cache_bytes),
        segments: loaded.segments,
    };
    let codec = SectorCodec::new(&manifest.store);
    let shared = Arc::new(OpenStore::new(dir.to_owned(), options, codec, view, lock));
    let (sender, requests) = StoreParts::queue();
    let writer = Writer::new(
        Arc::clone(&shared),
        requests,
        manifest,
        active,
        loaded.tail,
        spare,
    );
    let thread = std::thread::Builder::new()
        .name("dhow-log-writer".to_owned())
        .spawn(move || writer.run())
        .map_err(|error| StoreError::io(Action::Spawn, dir, error))?;
    let inner = StoreParts {
        shared,
        snapshots,
        sender: Some(sender),
        writer: Some(thread),
    };
    Ok(SegmentStore {
        inner: Arc::new(inner),
    })
}

/// Makes the directory where it is missing, durably.
fn make_dir(options: &StoreOptions, dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(|error| StoreError::making(Action::Create, dir, 0, error))?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => options
            .disk
            .sync_dir(parent)
            .map_err(|error| StoreError::making(Action::Sync, parent, 0, error)),
        Some(_) | None => Ok(()),
    }
}

/// Makes a new store: the first segment, then the manifest, which is what makes it count.
fn create(dir: &Path, options: &StoreOptions) -> Result<Loaded, StoreError> {
    let disk = &options.disk;
    let listing = Listing::read(dir)?;
    let begun: Vec<PathBuf> = listing
        .passing
        .into_iter()
        .chain(listing.segments.iter().map(|first| segment::path_of(dir, *first)))
        .collect();
    repair::remove_all(disk, dir, &begun)?;

    let at = ChainPoint::GENESIS;
    let store = options.store_id.unwrap_or_else(StoreId::random);
    let size = options.segment_size_bytes;
    let path = segment::path_of(dir, at.seq);
    let passing = path.with_extension("tmp");
    let making = |action| {
        let path = &path;
        move |error| StoreError::making(action, path, size, error)
    };
    let file = disk
        .create_zeroed(&passing, size)
        .map_err(making(Action::Create))?;
    let header = segment::encode_header(&store, size, at);
    disk.write_at(&file, &passing, &header, 0)
        .map_err(making(Action::Write))?;
    disk.sync(&file, &passing).map_err(making(Action::Sync))?;
    disk.rename(dir, &passing, &path)
        .map_err(making(Action::Rename))?;
    let manifest = Manifest {
        store,
        segment_size_bytes: size,
        first_segment: at.seq,
        last_segment: at.seq,
    };
    manifest.prepare(disk, dir)?;
    Manifest::put_in_force(disk, dir)?;
    match recovery::load(dir)? {
        Some(loaded) => Ok(loaded),
        None => Err(super::damage::damaged_file(
            &Manifest::path(dir),
            What::ManifestMissing,
        )),
    }
}

/// Refuses a log whose beginning no snapshot covers, and a snapshot of entries that the log never had. Index 0
/// may be purged without a snapshot: a log that counts from 1 begins so.
fn check_history(dir: &Path, loaded: &Loaded, verified: &Verified) -> Result<(), StoreError> {
    let bounds = loaded.state.bounds;
    let first = bounds.first_index();
    let covered = verified.newest.map_or(0, |newest| newest.index);
    if first > covered.saturating_add(1) {
        let path = snapshot::path_of(dir, first - 1);
        return Err(super::damage::damaged_file(
            &path,
            What::SnapshotMissing { log_first: first },
        ));
    }
    match verified.newest {
        Some(newest)
            if newest.index >= bounds.next_index && unfinished_install(loaded, verified.newest).is_none() =>
        {
            let what = What::SnapshotAhead {
                snapshot: newest.index,
                log_next: bounds.next_index,
            };
            Err(super::damage::damaged_file(
                &snapshot::path_of(dir, newest.index),
                what,
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// The position of a snapshot that was named while it was being installed, but which the log does not follow yet.
fn unfinished_install(loaded: &Loaded, newest: Option<LogPosition>) -> Option<LogPosition> {
    let marked = loaded
        .state
        .metas
        .get(&MetaKey::Install)
        .and_then(LogPosition::from_meta)?;
    newest.filter(|newest| *newest == marked && newest.index >= loaded.state.bounds.next_index)
}
