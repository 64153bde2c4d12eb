//! The exact bytes of a small store, so that a change of the format is noticed.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;

use bytes::Bytes;
use dhow_server::plane::log::store::{Batch, LogPosition, MetaKey, Op, StoreId, StoreOptions};

use super::support::{open, read_all, segments, tiny};

fn options() -> StoreOptions {
    StoreOptions {
        store_id: Some(StoreId::from_bytes(*b"0123456789abcdef")),
        ..tiny()
    }
}

/// Bytes as rows of a hex dump: offset, sixteen bytes; rows of zeros are left out.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            write!(text, "{:04x}", row * 16).unwrap();
            chunk.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

fn check(name: &str, bytes: &[u8], golden: &str) {
    let found = dump(bytes);
    assert!(found == golden, "{name} changed:\n{found}");
}

#[test]
fn the_bytes_of_a_small_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), options());
    let entry = |payload: &'static [u8]| Op::AppendNext {
        term: 7,
        payload: Bytes::from_static(payload),
    };
    store
        .commit(Batch::new(vec![entry(b"hello"), entry(b"")]))
        .unwrap();
    let vote = Op::Meta {
        key: MetaKey::Vote,
        value: Bytes::from_static(b"me"),
    };
    let purge = Op::Purge(LogPosition { index: 0, term: 7 });
    store
        .commit(Batch::new(vec![Op::Truncate { from: 1 }, purge, vote]))
        .unwrap();
    let mut snapshot = store
        .snapshots()
        .create(LogPosition { index: 3, term: 7 })
        .unwrap();
    snapshot.write_all(b"state").unwrap();
    snapshot.finish().unwrap();
    drop(store);

    let segment = fs::read(&segments(dir.path())[0]).unwrap();
    assert_eq!(segment.len(), 5120);
    check(
        "the manifest",
        &fs::read(dir.path().join("manifest")).unwrap(),
        include_str!("golden/manifest.hex"),
    );
    check("the segment", &segment, include_str!("golden/segment.hex"));
    let snapshot = fs::read(dir.path().join("snapshot-00000000000000000003")).unwrap();
    assert_eq!(snapshot.len(), 64 + 8 + 5 + 8 + 36);
    check("the snapshot", &snapshot, include_str!("golden/snapshot.hex"));
}

#[test]
fn the_golden_bytes_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, len: usize, golden: &str| {
        let mut bytes = vec![0; len];
        for line in golden.lines() {
            let (offset, row) = line.split_once(' ').unwrap();
            let offset = usize::from_str_radix(offset, 16).unwrap();
            for (at, byte) in row.split(' ').enumerate() {
                bytes[offset + at] = u8::from_str_radix(byte, 16).unwrap();
            }
        }
        fs::write(dir.path().join(name), bytes).unwrap();
    };
    file("manifest", 64, include_str!("golden/manifest.hex"));
    file(
        "segment-00000000000000000001.log",
        5120,
        include_str!("golden/segment.hex"),
    );
    file(
        "snapshot-00000000000000000003",
        121,
        include_str!("golden/snapshot.hex"),
    );
    let store = open(dir.path(), tiny());
    assert!(read_all(&store).is_empty());
    assert_eq!(store.meta(MetaKey::Vote).as_deref(), Some(b"me".as_slice()));
    assert_eq!(store.bounds().last, Some(LogPosition { index: 0, term: 7 }));
}
