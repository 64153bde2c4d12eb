//! Small stores, their files, and a generator of repeatable numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dhow_server::plane::log::store::{Batch, Entry, Op, SegmentStore, StoreError, StoreOptions};

/// The size of a sector on disk.
pub const SECTOR: usize = 512;

/// A store with segments of 32 sectors and no cache, so that reads come from the disk.
pub fn small() -> StoreOptions {
    StoreOptions {
        segment_size_bytes: 16 * 1024,
        max_record_bytes: 4096,
        cache_bytes: 0,
        purged_needs_snapshot: false,
        ..StoreOptions::default()
    }
}

/// The smallest segments that can be: ten sectors.
pub fn tiny() -> StoreOptions {
    StoreOptions {
        segment_size_bytes: 10 * SECTOR as u64,
        max_record_bytes: 64,
        ..small()
    }
}

/// A directory in memory where there is one, for tests that look at bytes and open a store thousands of times;
/// nothing in them depends on what an fsync does.
pub fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub fn open(dir: &Path, options: StoreOptions) -> SegmentStore {
    SegmentStore::open(dir, options).unwrap().0
}

/// The error with which a directory is refused.
pub fn refused(dir: &Path, options: StoreOptions) -> StoreError {
    match SegmentStore::open(dir, options) {
        Err(error) => error,
        Ok((_, recovery)) => panic!("{} was opened: {recovery:?}", dir.display()),
    }
}

/// Bytes that differ for each number, with no zero among them.
pub fn payload(number: u64, len: usize) -> Bytes {
    let mut random = Random::new(number);
    (0..len)
        .map(|_| (random.next() % 255) as u8 + 1)
        .collect::<Vec<u8>>()
        .into()
}

pub fn append(payload: Bytes) -> Op {
    Op::AppendNext { term: 1, payload }
}

/// Appends one entry in a frame of its own and returns its index.
pub fn commit_one(store: &SegmentStore, payload: Bytes) -> u64 {
    store.commit(Batch::of(append(payload))).unwrap().first_index
}

/// Every entry that the store holds, read in steps.
pub fn read_all(store: &SegmentStore) -> Vec<Entry> {
    let bounds = store.bounds();
    let mut entries: Vec<Entry> = Vec::new();
    let mut from = bounds.first_index;
    while from < bounds.next_index {
        let some = store.read(from..bounds.next_index, 4096).unwrap();
        assert!(
            !some.is_empty(),
            "entry {from} is within the bounds but was not read"
        );
        from += some.len() as u64;
        entries.extend(some);
    }
    let indexes: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
    assert_eq!(
        indexes,
        (bounds.first_index..bounds.next_index).collect::<Vec<_>>()
    );
    entries
}

/// The files of a directory, without the lock.
pub fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() != "LOCK" {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

/// The segments of a directory, in order.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    files(dir)
        .into_keys()
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect()
}

/// Puts the files of a directory back to what they were.
pub fn restore(dir: &Path, wanted: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in files(dir).into_keys().filter(|path| !wanted.contains_key(path)) {
        fs::remove_file(path).unwrap();
    }
    for (path, bytes) in wanted {
        fs::write(path, bytes).unwrap();
    }
}

/// A small generator (SplitMix64), so that a printed seed repeats a run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Whether the long rounds were asked for.
pub fn long() -> bool {
    std::env::var_os("DHOW_TEST_LONG").is_some_and(|value| value == "1")
}

/// The seed from `DHOW_TEST_SEED`, or a new one; printed either way.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("DHOW_TEST_SEED") {
        Ok(text) => text.parse().expect("DHOW_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("{test}: DHOW_TEST_SEED={seed}");
    seed
}
