//! Power loss at every step: only what was made durable is sure to be there.
//!
//! A hook watches the disk and keeps two pictures of the directory, as it is and as it surely is on the disk: the
//! bytes of a file count as of its last fsync, names as of the last fsync of the directory. Before each step it
//! makes directories as a power loss could leave them, each unsynced sector and each unsynced name there or not,
//! and opens them: they must hold the state before the commit that is under way, or after it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use bytes::Bytes;
use dhow_server::plane::log::store::{
    Batch, Disk, DiskOp, Entry, LogPosition, MetaKey, Op, SegmentStore, StoreOptions,
};

use super::support::{Random, SECTOR, long, memory_dir, open, payload, read_all, seed, small};

/// What a store holds, for comparing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    entries: Vec<Entry>,
    purged: Option<LogPosition>,
    next_index: u64,
    vote: Option<Bytes>,
}

fn state(store: &SegmentStore) -> State {
    let bounds = store.bounds();
    State {
        entries: read_all(store),
        purged: bounds.purged,
        next_index: bounds.next_index,
        vote: store.meta(MetaKey::Vote),
    }
}

type Names = BTreeMap<String, u64>;

struct Watcher {
    dir: PathBuf,
    random: Random,
    /// States of which one must be found: that before the commit under way, and that after it.
    expected: Vec<State>,
    /// Names, and bytes by inode number, that are surely on disk.
    names: Names,
    bytes: HashMap<u64, Vec<u8>>,
    /// The step that each thread was about to take, which is over when it takes the next one.
    under_way: HashMap<ThreadId, (DiskOp, PathBuf)>,
    losses: u32,
    repaired: u32,
}

impl Watcher {
    fn step(&mut self, op: DiskOp, path: &Path) {
        self.last_step_is_over();
        if matches!(
            op,
            DiskOp::Sync | DiskOp::SyncDir | DiskOp::Rename | DiskOp::Remove
        ) && !self.expected.is_empty()
        {
            self.lose_power();
        }
        self.under_way
            .insert(std::thread::current().id(), (op, path.to_owned()));
    }

    fn last_step_is_over(&mut self) {
        if let Some((op, path)) = self.under_way.remove(&std::thread::current().id()) {
            self.over(op, &path);
        }
    }

    fn over(&mut self, op: DiskOp, path: &Path) {
        match op {
            DiskOp::Sync => {
                if let Ok(meta) = fs::metadata(path) {
                    self.bytes.insert(meta.ino(), fs::read(path).unwrap());
                }
            }
            DiskOp::SyncDir => self.names = current_names(&self.dir),
            DiskOp::Allocate | DiskOp::Write | DiskOp::Rename | DiskOp::Remove => {}
        }
    }

    /// Makes a directory as a power loss now could leave it, and opens it.
    fn lose_power(&mut self) {
        let current = current_names(&self.dir);
        let mut names = if self.random.below(2) == 0 {
            self.names.clone()
        } else {
            current.clone()
        };
        for (name, inode) in &self.names {
            // A deletion may be on disk or not, apart from everything else.
            let deleted = !current.contains_key(name) && !current.values().any(|other| other == inode);
            if deleted && self.random.below(2) == 0 {
                names.remove(name);
            } else if deleted {
                names.insert(name.clone(), *inode);
            }
        }
        let by_inode: HashMap<u64, String> = current.into_iter().map(|(name, inode)| (inode, name)).collect();
        let image = memory_dir();
        for (name, inode) in names {
            let sure = self.bytes.get(&inode).cloned();
            let now = by_inode
                .get(&inode)
                .map(|name| fs::read(self.dir.join(name)).unwrap_or_default());
            let bytes = self.mix(sure.unwrap_or_default(), now.unwrap_or_default());
            fs::write(image.path().join(name), bytes).unwrap();
        }
        self.losses += 1;
        let (store, recovery) = SegmentStore::open(image.path(), small())
            .unwrap_or_else(|error| panic!("after {} power losses: {error}", self.losses));
        self.repaired += u32::from(recovery.repaired.is_some());
        let found = state(&store);
        assert!(
            self.expected.contains(&found),
            "after {} power losses: {found:?}",
            self.losses
        );
    }

    /// Bytes of which each sector is the old one or the new one.
    fn mix(&mut self, sure: Vec<u8>, now: Vec<u8>) -> Vec<u8> {
        if now.len() < sure.len() {
            return sure;
        }
        let mut mixed = now;
        let keep_most = self.random.below(3);
        for (sector, bytes) in mixed.chunks_mut(SECTOR).enumerate() {
            let old = sure.get(sector * SECTOR..sector * SECTOR + bytes.len());
            let lost = match keep_most {
                0 => self.random.below(2) == 0,
                1 => self.random.below(8) == 0,
                _ => true,
            };
            if lost {
                match old {
                    Some(old) => bytes.copy_from_slice(old),
                    None => bytes.fill(0),
                }
            }
        }
        mixed
    }
}

fn current_names(dir: &Path) -> Names {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .filter(|entry| entry.file_name() != "LOCK")
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().unwrap(),
                entry.metadata().ok()?.ino(),
            ))
        })
        .collect()
}

#[test]
fn a_power_loss_at_any_step_loses_nothing_that_was_acknowledged() {
    let seed = seed("power loss");
    let dir = memory_dir();
    let watcher = Arc::new(Mutex::new(Watcher {
        dir: dir.path().to_owned(),
        random: Random::new(seed),
        expected: Vec::new(),
        names: Names::new(),
        bytes: HashMap::new(),
        under_way: HashMap::new(),
        losses: 0,
        repaired: 0,
    }));
    let hooked = Arc::clone(&watcher);
    let hook = move |op: DiskOp, path: &Path| {
        // After a finding the lock is poisoned; the steps of the store that is being closed fail then.
        let mut watcher = hooked.lock().map_err(|_| std::io::Error::other("a finding"))?;
        watcher.step(op, path);
        Ok(())
    };
    let options = StoreOptions {
        disk: Disk::with_hook(Arc::new(hook)),
        ..small()
    };
    let store = open(dir.path(), options);
    let mut random = Random::new(seed ^ 1);
    // The same steps go into a second store, which tells what the state after each of them is.
    let twin_dir = memory_dir();
    let twin = open(twin_dir.path(), small());
    for number in 0..if long() { 3000 } else { 120 } {
        let batch = random_batch(&mut random, &store, number);
        let before = state(&twin);
        twin.commit(batch.clone()).unwrap();
        let after = state(&twin);
        watcher.lock().unwrap().expected = vec![before, after.clone()];
        commit(&store, batch, Arc::clone(&watcher), after);
        if number % 40 == 39 {
            let at = store.bounds().last.unwrap();
            let mut snapshot = store.snapshots().create(at).unwrap();
            snapshot.write_all(&payload(number, 3000)).unwrap();
            snapshot.finish().unwrap();
        }
    }
    let rotations = store.stats().rotations;
    drop(store);
    let watcher = watcher.lock().unwrap();
    println!(
        "{} power losses, {} torn tails, {rotations} rotations",
        watcher.losses, watcher.repaired
    );
    assert!(rotations > 5 && watcher.repaired > 10);
}

/// Commits, and from the very moment of the acknowledgement expects the state after.
fn commit(store: &SegmentStore, batch: Batch, watcher: Arc<Mutex<Watcher>>, after: State) {
    let (tell, told) = channel();
    let done = Box::new(move |result: Result<_, _>| {
        let mut watcher = watcher.lock().unwrap();
        watcher.last_step_is_over();
        watcher.expected = vec![after];
        tell.send(result.is_ok()).unwrap();
    });
    store.submit(batch, done).unwrap();
    assert!(told.recv().unwrap());
}

fn random_batch(random: &mut Random, store: &SegmentStore, number: u64) -> Batch {
    let bounds = store.bounds();
    let held = bounds.next_index - bounds.first_index;
    Batch::new(match random.below(10) {
        0 if held > 0 => vec![Op::Truncate {
            from: bounds.next_index - 1 - random.below(held.min(3)),
        }],
        1 if held > 8 => vec![Op::Purge(LogPosition {
            index: bounds.first_index + random.below(held),
            term: 1,
        })],
        2 => vec![Op::Meta {
            key: MetaKey::Vote,
            value: payload(number, 12),
        }],
        _ => (0..1 + random.below(3))
            .map(|entry| Op::AppendNext {
                term: 1,
                payload: payload(number * 8 + entry, random.below(1300) as usize),
            })
            .collect(),
    })
}
