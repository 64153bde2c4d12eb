//! A write that was cut off is removed when the store is opened, and only that.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dhow_server::plane::log::store::{SegmentStore, StoreError, What};

use super::support::{
    SECTOR, commit_one, files, long, memory_dir, open, payload, read_all, refused, restore, segments, small,
};

/// Lengths of the entries in a store, one frame each; the last one takes three sectors.
const LENGTHS: [usize; 4] = [100, 1200, 30, 1100];
const LAST_SECTORS: usize = 3;

struct Fixture {
    dir: tempfile::TempDir,
    segment: PathBuf,
    /// Where the last frame begins.
    last: usize,
}

fn fixture() -> Fixture {
    let dir = memory_dir();
    let store = open(dir.path(), small());
    for (number, len) in LENGTHS.into_iter().enumerate() {
        commit_one(&store, payload(number as u64, len));
    }
    drop(store);
    let segment = segments(dir.path()).pop().unwrap();
    let used = used_sectors(&segment);
    Fixture {
        dir,
        segment,
        last: (used - LAST_SECTORS) * SECTOR,
    }
}

fn used_sectors(segment: &Path) -> usize {
    let bytes = fs::read(segment).unwrap();
    bytes
        .chunks(SECTOR)
        .rposition(|sector| sector.iter().any(|byte| *byte != 0))
        .unwrap()
        + 1
}

/// Opens a store that must hold the first entries of the fixture.
fn check_survivors(fixture: &Fixture, survivors: usize, torn: bool, what: &str) -> SegmentStore {
    let (store, recovery) =
        SegmentStore::open(fixture.dir.path(), small()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = read_all(&store);
    assert_eq!(found.len(), survivors, "{what}: {recovery:?}");
    for entry in &found {
        let index = entry.index as usize;
        assert_eq!(entry.payload, payload(entry.index, LENGTHS[index]), "{what}");
    }
    let torn_bytes = recovery.repaired.as_ref().map_or(0, |repair| repair.torn_bytes);
    assert_eq!(torn_bytes > 0, torn, "{what}: {recovery:?}");
    if let Some(repair) = &recovery.repaired {
        assert_eq!(repair.file, fixture.segment, "{what}");
        if torn {
            assert_eq!(
                (repair.offset as usize, repair.frame),
                (fixture.last, 4),
                "{what}"
            );
        }
    }
    store
}

/// Writes into a store that was repaired, and opens it once more.
fn check_goes_on(fixture: &Fixture, store: SegmentStore, survivors: usize, what: &str) {
    let added = commit_one(&store, payload(99, 1300));
    assert_eq!(added as usize, survivors, "{what}");
    drop(store);
    assert_eq!(
        fs::metadata(&fixture.segment).unwrap().len(),
        small().segment_size_bytes,
        "{what}"
    );
    let (store, recovery) = SegmentStore::open(fixture.dir.path(), small()).unwrap();
    assert_eq!(recovery.repaired, None, "{what}");
    assert_eq!(read_all(&store).len(), survivors + 1, "{what}");
}

#[test]
fn a_file_cut_at_any_byte_of_the_last_frame_loses_that_frame_alone() {
    let fixture = fixture();
    let before = files(fixture.dir.path());
    let end = fixture.last + LAST_SECTORS * SECTOR;
    for cut in fixture.last..=end + SECTOR {
        let file = fs::OpenOptions::new().write(true).open(&fixture.segment).unwrap();
        file.set_len(cut as u64).unwrap();
        // The last sector ends in padding; a cut there loses bytes all the same, as the checksum covers them.
        let whole = cut >= end;
        let torn = !whole && cut > fixture.last;
        let (survivors, what) = (if whole { 4 } else { 3 }, format!("cut at {cut}"));
        let store = check_survivors(&fixture, survivors, torn, &what);
        // Going on costs more than opening, so by default it is tried at some cuts of every sector.
        if long() || cut % 64 == 0 {
            check_goes_on(&fixture, store, survivors, &what);
        }
        restore(fixture.dir.path(), &before);
    }
}

#[test]
fn any_sectors_of_the_last_frame_that_never_reached_the_disk_lose_that_frame_alone() {
    let fixture = fixture();
    let before = files(fixture.dir.path());
    for missing in 1..1usize << LAST_SECTORS {
        zero_sectors(&fixture.segment, fixture.last, missing);
        let all = missing == (1 << LAST_SECTORS) - 1;
        let what = format!("missing sectors {missing:03b}");
        let store = check_survivors(&fixture, 3, !all, &what);
        check_goes_on(&fixture, store, 3, &what);
        restore(fixture.dir.path(), &before);
    }
}

#[test]
fn a_first_frame_of_a_new_segment_may_be_torn_too() {
    let dir = memory_dir();
    let store = open(dir.path(), small());
    let mut count = 0;
    while segments(dir.path()).len() < 2 {
        commit_one(&store, payload(count, 1000));
        count += 1;
    }
    drop(store);
    let segment = segments(dir.path()).pop().unwrap();
    let before = files(dir.path());
    for missing in 1..1usize << 3 {
        zero_sectors(&segment, SECTOR, missing);
        let (store, recovery) = SegmentStore::open(dir.path(), small()).unwrap();
        assert_eq!(read_all(&store).len() as u64, count - 1, "{recovery:?}");
        assert_eq!(commit_one(&store, payload(7, 10)), count - 1);
        drop(store);
        assert_eq!(read_all(&open(dir.path(), small())).len() as u64, count);
        restore(dir.path(), &before);
    }
}

#[test]
fn sectors_missing_from_an_earlier_frame_are_damage() {
    let fixture = fixture();
    let before = files(fixture.dir.path());
    // The second frame: sectors 2 to 4, after the header and the first frame.
    for missing in 1..1usize << 3 {
        zero_sectors(&fixture.segment, 2 * SECTOR, missing);
        let changed = files(fixture.dir.path());
        let error = refused(fixture.dir.path(), small());
        let first_missing = 2 + missing.trailing_zeros() as usize;
        match &error {
            StoreError::Damaged {
                file,
                offset,
                what: What::SectorMissing { frame: 2 },
                ..
            } => {
                assert_eq!(
                    (file, *offset as usize),
                    (&fixture.segment, first_missing * SECTOR),
                    "{missing:03b}"
                );
            }
            other => panic!("{missing:03b}: {other}"),
        }
        assert_eq!(
            files(fixture.dir.path()),
            changed,
            "a refused directory was changed"
        );
        restore(fixture.dir.path(), &before);
    }
}

#[test]
fn a_torn_tail_before_garbage_is_damage() {
    let fixture = fixture();
    zero_sectors(&fixture.segment, fixture.last, 0b010);
    let end = (fixture.last + (LAST_SECTORS + 2) * SECTOR) as u64;
    let file = fs::OpenOptions::new().write(true).open(&fixture.segment).unwrap();
    file.write_all_at(b"x", end).unwrap();
    match refused(fixture.dir.path(), small()) {
        StoreError::Damaged {
            offset,
            what: What::AfterEnd,
            ..
        } => assert_eq!(offset, end),
        other => panic!("{other}"),
    }
}

/// Makes sectors zero, those whose bit is set, counted from `start`.
fn zero_sectors(segment: &Path, start: usize, missing: usize) {
    let file = fs::OpenOptions::new().write(true).open(segment).unwrap();
    for number in (0..usize::BITS as usize).filter(|number| missing & (1 << number) != 0) {
        file.write_all_at(&[0; SECTOR], (start + number * SECTOR) as u64)
            .unwrap();
    }
}
