//! What is missing, swapped, foreign or too much is refused by name, and nothing is changed.

use std::fs;
use std::path::Path;

use dhow_server::plane::log::store::{Batch, LogPosition, Op, SegmentStore, StoreError, StoreOptions, What};

use super::support::{SECTOR, commit_one, files, open, payload, read_all, refused, restore, segments, tiny};

fn three_segments(dir: &Path) {
    let store = open(dir, tiny());
    let mut number = 0;
    while segments(dir).len() < 3 {
        commit_one(&store, payload(number, 64));
        number += 1;
    }
}

/// Expects damage of this file, checks the message, and that nothing was changed.
fn damage(dir: &Path, file: &Path) -> What {
    let before = files(dir);
    let error = refused(dir, tiny());
    assert_eq!(files(dir), before, "a refused directory was changed");
    let text = error.to_string();
    match error {
        StoreError::Damaged {
            file: found,
            what,
            hint,
            ..
        } => {
            assert_eq!(found, file, "{text}");
            assert!(hint.contains("Nothing was changed"), "{text}");
            what
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_missing_segment_is_refused_wherever_it_stood() {
    for (gone, named) in [(0, 0), (1, 0), (2, 2)] {
        let dir = tempfile::tempdir().unwrap();
        three_segments(dir.path());
        let all = segments(dir.path());
        fs::remove_file(&all[gone]).unwrap();
        let what = damage(dir.path(), &all[named]);
        let frames = matches!(what, What::FramesMissing { .. });
        assert_eq!(frames, gone == 1, "{what}");
        assert!(frames || matches!(what, What::SegmentMissing { .. }), "{what}");
    }
}

#[test]
fn a_missing_manifest_is_refused_but_an_unfinished_creation_is_not() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let manifest = dir.path().join("manifest");
    fs::remove_file(&manifest).unwrap();
    assert_eq!(damage(dir.path(), &manifest), What::ManifestMissing);

    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), tiny()));
    fs::remove_file(dir.path().join("manifest")).unwrap();
    let (store, recovery) = SegmentStore::open(dir.path(), tiny()).unwrap();
    assert!(recovery.created);
    commit_one(&store, payload(1, 10));
    drop(store);
    fs::remove_file(dir.path().join("manifest")).unwrap();
    assert_eq!(
        damage(dir.path(), &dir.path().join("manifest")),
        What::ManifestMissing
    );
}

#[test]
fn segments_that_change_places_or_come_from_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let all = segments(dir.path());
    let second = fs::read(&all[1]).unwrap();
    fs::copy(&all[2], &all[1]).unwrap();
    assert_eq!(damage(dir.path(), &all[1]), What::SegmentOutOfPlace);

    let other = tempfile::tempdir().unwrap();
    three_segments(other.path());
    fs::copy(&segments(other.path())[1], &all[1]).unwrap();
    assert_eq!(damage(dir.path(), &all[1]), What::SegmentOutOfPlace);

    fs::write(&all[1], second).unwrap();
    assert!(!read_all(&open(dir.path(), tiny())).is_empty());
}

#[test]
fn a_segment_of_another_history_of_the_same_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let backup = files(dir.path());
    let all = segments(dir.path());
    // The same store goes back to a state before the last segment and takes another way.
    let old = tempfile::tempdir().unwrap();
    for (path, bytes) in &backup {
        fs::write(old.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    let store = open(old.path(), tiny());
    while segments(old.path()).len() < 4 {
        commit_one(&store, payload(1000, 64));
    }
    drop(store);
    let store = open(dir.path(), tiny());
    while segments(dir.path()).len() < 4 {
        commit_one(&store, payload(2000, 64));
    }
    drop(store);
    // Both histories have a fourth segment of the same name; only the seals tell them apart.
    let fourth = segments(dir.path()).pop().unwrap();
    assert_eq!(
        segments(old.path()).pop().unwrap().file_name(),
        fourth.file_name()
    );
    fs::copy(segments(old.path()).pop().unwrap(), &fourth).unwrap();
    assert_eq!(damage(dir.path(), &fourth), What::SegmentOutOfPlace);
    assert_eq!(all.len(), 3);
}

#[test]
fn a_frame_of_another_history_of_the_same_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    commit_one(&open(dir.path(), tiny()), payload(0, 64));
    let backup = files(dir.path());
    let segment = segments(dir.path()).pop().unwrap();
    // Twice from the same state two frames, each one sector, with other bytes.
    let history = |first: u64| {
        restore(dir.path(), &backup);
        let store = open(dir.path(), tiny());
        commit_one(&store, payload(first, 64));
        commit_one(&store, payload(first + 1, 64));
        fs::read(&segment).unwrap()
    };
    let (one, other) = (history(10), history(20));
    let third = 3 * SECTOR..4 * SECTOR;
    assert_ne!(one[third.clone()], other[third.clone()]);
    let mut mixed = one.clone();
    mixed[third.clone()].copy_from_slice(&other[third]);
    fs::write(&segment, mixed).unwrap();
    assert_eq!(damage(dir.path(), &segment), What::FrameChain { frame: 3 });
}

#[test]
fn a_segment_that_is_too_long_or_unlisted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let all = segments(dir.path());
    for segment in &all {
        let bytes = fs::read(segment).unwrap();
        fs::write(segment, [&bytes[..], &[0; 512]].concat()).unwrap();
        assert!(matches!(damage(dir.path(), segment), What::SegmentLength { .. }));
        fs::write(segment, bytes).unwrap();
    }
    let before_last = fs::read(&all[1]).unwrap();
    fs::write(&all[1], &before_last[..before_last.len() - 512]).unwrap();
    assert!(matches!(damage(dir.path(), &all[1]), What::SegmentLength { .. }));
    fs::write(&all[1], before_last).unwrap();

    let unlisted = dir.path().join("segment-00000000000000000999.log");
    fs::copy(&all[2], &unlisted).unwrap();
    assert_eq!(damage(dir.path(), &unlisted), What::SegmentUnlisted);
}

#[test]
fn leftovers_of_unfinished_steps_are_removed_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let entries = read_all(&open(dir.path(), tiny()));
    let leftovers = [
        "manifest.tmp",
        "segment-00000000000000000999.log",
        "snapshot-00000000000000000005.0.tmp",
    ];
    for name in leftovers {
        fs::write(dir.path().join(name), vec![0; 5120]).unwrap();
    }
    let (store, recovery) = SegmentStore::open(dir.path(), tiny()).unwrap();
    assert_eq!(recovery.removed.len(), leftovers.len(), "{:?}", recovery.removed);
    assert_eq!(read_all(&store), entries);
    for name in leftovers {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
}

#[test]
fn a_purged_log_without_its_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), tiny());
    for number in 0..4 {
        commit_one(&store, payload(number, 20));
    }
    let at = LogPosition { index: 2, term: 1 };
    store.snapshots().create(at).unwrap().finish().unwrap();
    store.commit(Batch::of(Op::Purge(at))).unwrap();
    drop(store);
    let strict = StoreOptions {
        purged_needs_snapshot: true,
        ..tiny()
    };
    drop(open(dir.path(), strict.clone()));
    let snapshot = dir.path().join("snapshot-00000000000000000002");
    fs::remove_file(&snapshot).unwrap();
    match refused(dir.path(), strict) {
        StoreError::Damaged {
            file,
            what: What::SnapshotMissing { log_first: 3 },
            ..
        } => assert_eq!(file, snapshot),
        other => panic!("{other}"),
    }
}

#[test]
fn a_directory_has_one_holder() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), tiny());
    match refused(dir.path(), tiny()) {
        StoreError::Locked { dir: found, holder } => {
            assert_eq!(found, dir.path());
            assert_eq!(holder, Some(std::process::id()));
        }
        other => panic!("{other}"),
    }
    drop(store);
    drop(open(dir.path(), tiny()));
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), tiny()));
    let manifest = dir.path().join("manifest");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    fs::write(&manifest, bytes).unwrap();
    match refused(dir.path(), tiny()) {
        StoreError::NewerFormat {
            file,
            found: 2,
            known: 1,
        } => assert_eq!(file, manifest),
        other => panic!("{other}"),
    }
}
