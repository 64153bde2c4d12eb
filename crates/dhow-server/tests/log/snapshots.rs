//! Snapshots: streamed, checked, kept in pairs, never taken half.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use dhow_server::plane::log::store::{
    Batch, LogPosition, Op, SegmentStore, StoreError, StoreOptions, What, limits,
};

use super::support::{Random, commit_one, files, memory_dir, open, payload, refused, small};

fn at(index: u64) -> LogPosition {
    LogPosition { index, term: 1 }
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

fn write(store: &SegmentStore, index: u64, bytes: &[u8]) {
    let mut writer = store.snapshots().create(at(index)).unwrap();
    for part in bytes.chunks(10_000) {
        writer.write_all(part).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), at(index));
}

fn snapshot_files(dir: &Path) -> Vec<String> {
    files(dir)
        .into_keys()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("snapshot"))
        .collect()
}

#[test]
fn what_was_streamed_in_is_streamed_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small());
    assert!(store.snapshots().newest().unwrap().is_none());
    let chunk = limits::SNAPSHOT_CHUNK_BYTES;
    for (index, len) in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 17]
        .into_iter()
        .enumerate()
    {
        let bytes = content(index as u64, len);
        write(&store, index as u64, &bytes);
        let mut reader = store.snapshots().newest().unwrap().unwrap();
        assert_eq!(reader.position(), at(index as u64));
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        assert!(found == bytes, "length {len}");
    }
    let kept = ["snapshot-00000000000000000004", "snapshot-00000000000000000005"];
    assert_eq!(snapshot_files(dir.path()), kept);
}

#[test]
fn a_snapshot_that_was_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small());
    let mut writer = store.snapshots().create(at(5)).unwrap();
    writer.write_all(&content(1, 200_000)).unwrap();
    drop(writer);
    assert!(snapshot_files(dir.path()).is_empty());
    assert!(store.snapshots().newest().unwrap().is_none());
}

#[test]
fn a_snapshot_cut_anywhere_is_refused() {
    let dir = memory_dir();
    write(&open(dir.path(), small()), 3, &content(1, 500));
    let path = dir.path().join("snapshot-00000000000000000003");
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        match refused(dir.path(), small()) {
            StoreError::Damaged {
                file,
                offset,
                what: What::SnapshotCut,
                ..
            } => {
                assert_eq!(file, path);
                assert!(offset as usize <= cut);
            }
            other => panic!("cut at {cut}: {other}"),
        }
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert!(matches!(
        refused(dir.path(), small()),
        StoreError::Damaged {
            what: What::SnapshotAfterEnd,
            ..
        }
    ));
}

#[test]
fn a_damaged_snapshot_is_refused_with_what_can_be_done() {
    let hint_of = |purge: Option<u64>, snapshots: &[u64]| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), small());
        for number in 0..10 {
            commit_one(&store, payload(number, 10));
        }
        for index in snapshots {
            write(&store, *index, &content(*index, 100));
        }
        if let Some(index) = purge {
            store.commit(Batch::of(Op::Purge(at(index)))).unwrap();
        }
        drop(store);
        let newest = dir.path().join(snapshot_files(dir.path()).pop().unwrap());
        let mut bytes = fs::read(&newest).unwrap();
        bytes[100] ^= 1;
        fs::write(&newest, bytes).unwrap();
        let before = files(dir.path());
        let error = refused(dir.path(), small());
        assert_eq!(files(dir.path()), before);
        let StoreError::Damaged {
            file,
            what: What::SnapshotChunk { number: 0 },
            hint,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!(file, newest);
        // What the hint says helps where it says so.
        fs::remove_file(newest).unwrap();
        let strict = StoreOptions {
            purged_needs_snapshot: true,
            ..small()
        };
        (hint, SegmentStore::open(dir.path(), strict).is_ok())
    };
    let (hint, helps) = hint_of(None, &[4]);
    assert!(hint.contains("every entry") && helps, "{hint}");
    let (hint, helps) = hint_of(Some(4), &[4, 8]);
    assert!(
        hint.contains("reaches back to the snapshot before it, at 4") && helps,
        "{hint}"
    );
    let (hint, helps) = hint_of(Some(6), &[4, 8]);
    assert!(hint.contains("backup") && !helps, "{hint}");
    let (hint, helps) = hint_of(Some(4), &[8]);
    assert!(hint.contains("backup") && !helps, "{hint}");
}

#[test]
fn a_reader_outlives_the_file_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small());
    let bytes = content(1, 300_000);
    write(&store, 1, &bytes);
    let mut reader = store.snapshots().newest().unwrap().unwrap();
    write(&store, 2, b"second");
    write(&store, 3, b"third");
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    assert!(found == bytes);
}
