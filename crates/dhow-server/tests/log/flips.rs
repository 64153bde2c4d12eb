//! A changed byte is refused with the file named, or has no meaning. It never costs an entry silently.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use dhow_server::plane::log::store::{Batch, LogPosition, MetaKey, Op, SegmentStore, StoreError};

use super::support::{commit_one, files, long, memory_dir, open, payload, read_all, restore, segments, tiny};

/// Every single bit, and all of them.
const PATTERNS: [u8; 9] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF];

/// A store with every kind of record, three segments and two snapshots.
fn make(dir: &std::path::Path) {
    let store = open(dir, tiny());
    store
        .commit(Batch::of(Op::Meta {
            key: MetaKey::Vote,
            value: payload(1, 20),
        }))
        .unwrap();
    for number in 0..6 {
        commit_one(&store, payload(number, 60));
    }
    store.commit(Batch::of(Op::Truncate { from: 4 })).unwrap();
    while segments(dir).len() < 3 {
        commit_one(&store, payload(9, 64));
    }
    store
        .commit(Batch::of(Op::Purge(LogPosition { index: 1, term: 1 })))
        .unwrap();
    for index in [1, 3] {
        let mut snapshot = store.snapshots().create(LogPosition { index, term: 1 }).unwrap();
        snapshot.write_all(b"state").unwrap();
        snapshot.finish().unwrap();
    }
}

#[test]
fn every_flipped_byte_of_every_file_is_refused_or_has_no_meaning() {
    let dir = memory_dir();
    make(dir.path());
    let store = open(dir.path(), tiny());
    let wanted = (read_all(&store), store.bounds(), store.meta(MetaKey::Vote));
    drop(store);
    let before = files(dir.path());
    assert_eq!(before.len(), 3 + 2 + 1, "{:?}", before.keys());

    let mut harmless = Vec::new();
    for (path, bytes) in &before {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        for (offset, byte) in bytes.iter().enumerate() {
            // By default one pattern for each byte, another for each neighbour; all of them in a long run.
            let some = if long() {
                &PATTERNS[..]
            } else {
                &PATTERNS[offset % 9..=offset % 9]
            };
            for pattern in some {
                file.write_all_at(&[byte ^ pattern], offset as u64).unwrap();
                match SegmentStore::open(dir.path(), tiny()) {
                    Err(StoreError::Damaged {
                        file, offset: found, ..
                    }) => {
                        assert_eq!(&file, path, "byte {offset}");
                        assert!(found <= offset as u64, "byte {offset} was reported at {found}");
                    }
                    Err(other) => panic!("{} byte {offset}: {other}", path.display()),
                    Ok((store, recovery)) => {
                        let got = (read_all(&store), store.bounds(), store.meta(MetaKey::Vote));
                        assert_eq!(got, wanted, "{} byte {offset}", path.display());
                        drop(store);
                        harmless.push((path.clone(), recovery.older_snapshot.is_some()));
                        restore(dir.path(), &before);
                    }
                }
                file.write_all_at(&[*byte], offset as u64).unwrap();
            }
        }
    }
    assert_eq!(files(dir.path()), before, "a refused directory was changed");
    // Only the older snapshot may be changed without being refused, and then it is reported.
    for (path, reported) in harmless {
        assert!(
            path.ends_with("snapshot-00000000000000000001"),
            "{}",
            path.display()
        );
        assert!(reported);
    }
}

#[test]
fn a_byte_that_changes_under_an_open_store_is_found_by_the_read() {
    let dir = memory_dir();
    let store = open(dir.path(), tiny());
    let index = commit_one(&store, payload(5, 64));
    let segment = segments(dir.path()).pop().unwrap();
    let offset = fs::read(&segment)
        .unwrap()
        .windows(64)
        .position(|window| window == payload(5, 64))
        .unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[0], offset as u64 + 10).unwrap();
    match store.read(index..index + 1, 4096) {
        Err(StoreError::Damaged {
            file, offset: found, ..
        }) => {
            assert_eq!(file, segment);
            assert_eq!(found as usize, offset / 512 * 512);
        }
        other => panic!("{other:?}"),
    }
}
