//! A disk that is full or fails.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dhow_server::plane::log::store::{Batch, Disk, DiskOp, LogPosition, Op, StoreError, StoreOptions};

use super::support::{append, commit_one, files, open, payload, read_all, segments, small};

/// Which operation fails, on files whose name contains this, and how.
type Fault = Option<(DiskOp, &'static str, i32)>;

#[derive(Clone, Default)]
struct Faulty(Arc<Mutex<Fault>>);

impl Faulty {
    fn options(&self) -> StoreOptions {
        let fault = Arc::clone(&self.0);
        let hook = move |op: DiskOp, path: &Path| match *fault.lock().unwrap() {
            Some((wanted, part, errno)) if wanted == op && path.to_string_lossy().contains(part) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        };
        StoreOptions {
            disk: Disk::with_hook(Arc::new(hook)),
            ..small()
        }
    }

    fn set(&self, fault: Fault) {
        *self.0.lock().unwrap() = fault;
    }
}

const NO_SPACE: i32 = 28;
const IO_ERROR: i32 = 5;

#[test]
fn a_full_disk_refuses_the_write_and_nothing_else() {
    // Every step of making a segment that can find the disk full.
    for fault in [
        (DiskOp::Allocate, "spare"),
        (DiskOp::Write, "spare"),
        (DiskOp::Sync, "spare"),
        (DiskOp::Rename, "segment"),
        (DiskOp::Allocate, "manifest"),
        (DiskOp::Write, "manifest"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let faulty = Faulty::default();
        let store = open(dir.path(), faulty.options());
        faulty.set(Some((fault.0, fault.1, NO_SPACE)));
        let mut count = 0;
        let error = loop {
            match store.commit(Batch::of(append(payload(count, 1500)))) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::NoSpace { .. }), "{fault:?}: {error}");
        assert!(count > 3, "{fault:?}");
        // It reads, it refuses again, and what still fits into the segment is still taken.
        assert_eq!(read_all(&store).len() as u64, count);
        assert!(matches!(
            store.commit(Batch::of(append(payload(0, 1500)))),
            Err(StoreError::NoSpace { .. })
        ));
        assert_eq!(commit_one(&store, payload(count, 1)), count);
        faulty.set(None);
        assert_eq!(
            commit_one(&store, payload(count + 1, 1500)),
            count + 1,
            "{fault:?}"
        );
        drop(store);
        let entries = read_all(&open(dir.path(), small()));
        assert_eq!(entries.len() as u64, count + 2, "{fault:?}");
        assert_eq!(segments(dir.path()).len(), 2, "{fault:?}");
    }
}

#[test]
fn after_a_failed_write_or_fsync_nothing_is_written_until_the_store_is_opened_again() {
    for op in [DiskOp::Write, DiskOp::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let faulty = Faulty::default();
        let store = open(dir.path(), faulty.options());
        commit_one(&store, payload(0, 100));
        faulty.set(Some((op, "segment", IO_ERROR)));
        let error = store.commit(Batch::of(append(payload(1, 100)))).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        // The disk is well again, but what it holds is not known.
        faulty.set(None);
        let before = files(dir.path());
        match store.commit(Batch::of(append(payload(2, 100)))) {
            Err(StoreError::Poisoned { cause }) => assert!(matches!(*cause, StoreError::Io { .. })),
            other => panic!("{other:?}"),
        }
        assert_eq!(files(dir.path()), before);
        assert_eq!(read_all(&store).len(), 1);
        drop(store);
        let store = open(dir.path(), small());
        let found = read_all(&store).len();
        // A frame whose fsync failed may be there or not; one that was never written is not.
        assert!(
            if op == DiskOp::Write {
                found == 1
            } else {
                found == 2
            },
            "{op:?}: {found}"
        );
        assert_eq!(commit_one(&store, payload(3, 100)), found as u64);
    }
}

#[test]
fn a_failure_once_the_new_manifest_may_be_in_force_stops_writing() {
    for (op, part, errno) in [
        (DiskOp::Rename, "manifest", NO_SPACE),
        (DiskOp::Rename, "manifest", IO_ERROR),
        (DiskOp::Sync, "spare", IO_ERROR),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let faulty = Faulty::default();
        let store = open(dir.path(), faulty.options());
        faulty.set(Some((op, part, errno)));
        let mut count = 0;
        while store.commit(Batch::of(append(payload(count, 1500)))).is_ok() {
            count += 1;
        }
        faulty.set(None);
        let error = store.commit(Batch::of(append(payload(0, 1)))).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
        drop(store);
        let store = open(dir.path(), small());
        assert_eq!(read_all(&store).len() as u64, count);
        assert_eq!(commit_one(&store, payload(9, 1500)), count);
    }
}

#[test]
fn a_failed_deletion_costs_room_and_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = Faulty::default();
    let store = open(dir.path(), faulty.options());
    while segments(dir.path()).len() < 3 {
        commit_one(&store, payload(1, 1500));
    }
    let last = store.bounds().last.unwrap();
    faulty.set(Some((DiskOp::Remove, "segment", IO_ERROR)));
    store.commit(Batch::of(Op::Purge(last))).unwrap();
    commit_one(&store, payload(2, 10));
    faulty.set(None);
    drop(store);
    assert_eq!(segments(dir.path()).len(), 3);
    let store = open(dir.path(), small());
    assert_eq!(segments(dir.path()).len(), 1);
    assert_eq!(read_all(&store).len(), 1);
    assert_eq!(
        store.bounds().purged,
        Some(LogPosition {
            index: last.index,
            term: 1
        })
    );
}

#[test]
fn a_store_opens_on_a_full_disk_and_syncs_what_it_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small());
    commit_one(&store, payload(0, 700));
    drop(store);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let hook = move |op: DiskOp, path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        seen.lock().unwrap().push((op, name.starts_with("segment")));
        match op {
            DiskOp::Allocate => Err(io::Error::from_raw_os_error(NO_SPACE)),
            DiskOp::Write | DiskOp::Sync | DiskOp::Rename | DiskOp::SyncDir | DiskOp::Remove => Ok(()),
        }
    };
    let options = StoreOptions {
        disk: Disk::with_hook(Arc::new(hook)),
        ..small()
    };
    let store = open(dir.path(), options);
    // A process that was killed may have left the last frame in memory alone, and the names too.
    let wanted = [
        (DiskOp::Write, true),
        (DiskOp::Sync, true),
        (DiskOp::SyncDir, false),
    ];
    assert_eq!(*steps.lock().unwrap(), wanted);
    assert_eq!(read_all(&store).len(), 1);
    assert_eq!(commit_one(&store, payload(1, 700)), 1);
}
