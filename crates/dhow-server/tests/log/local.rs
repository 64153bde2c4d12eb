//! The single-node log: what is proposed comes back once, durable, in order.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use bytes::Bytes;
use dhow_server::plane::log::local::{LocalLog, MAX_EVENTS, OpenedLog};
use dhow_server::plane::log::store::{
    Batch, Disk, DiskOp, Entry, LogPosition, MetaKey, Op, SegmentStore, StoreError, StoreOptions, What,
};
use dhow_server::plane::log::{Log, LogEvent, ProposalId, ProposeError};

use super::support::{files, payload, segments, small};

fn committed(opened: &mut OpenedLog) -> (Option<ProposalId>, Vec<Entry>) {
    match opened.events.blocking_recv() {
        Some(LogEvent::Committed { at, parts }) => {
            let mut parts = parts.into_iter();
            let part = parts.next().expect("one proposal");
            assert!(parts.next().is_none());
            assert_eq!(part.entries.last().map(Entry::position), Some(at));
            (part.proposal, part.entries)
        }
        other => panic!("{other:?}"),
    }
}

fn open(dir: &Path, term: u64) -> OpenedLog {
    let mut opened = LocalLog::open(dir, small()).unwrap();
    match opened.events.blocking_recv() {
        Some(LogEvent::Leadership(leadership)) => {
            assert_eq!(
                (leadership.term, leadership.leader, leadership.is_here),
                (term, Some(1), true)
            );
        }
        other => panic!("{other:?}"),
    }
    opened
}

fn propose(opened: &mut OpenedLog, id: u64, payloads: Vec<Bytes>) -> Vec<Entry> {
    opened.log.propose(ProposalId(id), payloads).unwrap();
    let (proposal, entries) = committed(opened);
    assert_eq!(proposal, Some(ProposalId(id)));
    entries
}

fn snapshot(log: &LocalLog, at: LogPosition, state: &[u8]) {
    let mut writer = log.begin_snapshot(at).unwrap();
    writer.write_all(state).unwrap();
    log.compact(writer).unwrap();
}

#[test]
fn proposals_come_back_in_order_and_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 1);
    assert_eq!(opened.log.status().committed_index, 0);
    for id in 0..50 {
        opened
            .log
            .propose(ProposalId(id), vec![payload(id, 10), payload(id + 1000, 5)])
            .unwrap();
    }
    let mut all = Vec::new();
    for id in 0..50 {
        let (proposal, entries) = committed(&mut opened);
        assert_eq!(proposal, Some(ProposalId(id)));
        assert_eq!(entries[0].payload, payload(id, 10));
        all.extend(entries);
    }
    assert_eq!(
        all.iter().map(|entry| entry.index).collect::<Vec<_>>(),
        (1..=100).collect::<Vec<_>>()
    );
    assert_eq!(opened.log.status().committed_index, 100);
    drop(opened);

    let mut opened = open(dir.path(), 2);
    assert_eq!(opened.log.read(1, usize::MAX).unwrap(), all);
    let next = propose(&mut opened, 7, vec![payload(7, 7)]);
    assert_eq!((next[0].index, next[0].term), (101, 2));
}

#[test]
fn a_reducer_that_does_not_listen_makes_the_log_full_and_never_blocks_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = LocalLog::open(dir.path(), small()).unwrap();
    let taken = (0..)
        .take_while(|id| opened.log.propose(ProposalId(*id), vec![payload(1, 1)]).is_ok())
        .count();
    // The writer is faster or slower than this loop, but one place is the first event's.
    assert!((1..MAX_EVENTS).contains(&taken), "{taken}");
    assert!(matches!(
        opened.events.blocking_recv(),
        Some(LogEvent::Leadership(_))
    ));
    for id in 0..taken {
        assert_eq!(committed(&mut opened).0, Some(ProposalId(id as u64)));
    }
    assert_eq!(
        propose(&mut opened, 5, vec![payload(5, 5)])[0].index as usize,
        taken + 1
    );
}

#[test]
fn a_refused_proposal_is_told_and_leaves_no_gap() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 1);
    let error = opened
        .log
        .propose(ProposalId(1), vec![payload(1, 5000)])
        .unwrap_err();
    match error {
        ProposeError::Store(cause) => assert!(matches!(*cause, StoreError::TooLarge { .. })),
        other => panic!("{other}"),
    }
    assert_eq!(propose(&mut opened, 2, vec![payload(2, 5)])[0].index, 1);
}

#[test]
fn a_failing_disk_refuses_what_is_on_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let (arm, armed) = channel::<()>();
    let armed = std::sync::Mutex::new(armed);
    let hook = move |op: DiskOp, _: &Path| match op {
        DiskOp::Sync if armed.lock().unwrap().try_recv().is_ok() => Err(std::io::Error::from_raw_os_error(5)),
        _ => Ok(()),
    };
    let options = StoreOptions {
        disk: Disk::with_hook(Arc::new(hook)),
        ..small()
    };
    let mut opened = LocalLog::open(dir.path(), options).unwrap();
    assert!(matches!(
        opened.events.blocking_recv(),
        Some(LogEvent::Leadership(_))
    ));
    arm.send(()).unwrap();
    opened.log.propose(ProposalId(1), vec![payload(1, 5)]).unwrap();
    match opened.events.blocking_recv() {
        Some(LogEvent::Refused {
            proposal: ProposalId(1),
            cause: ProposeError::Store(cause),
        }) => {
            assert!(matches!(*cause, StoreError::Io { .. }), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    match opened.log.propose(ProposalId(2), vec![payload(2, 5)]) {
        Err(ProposeError::Store(cause)) => assert!(matches!(*cause, StoreError::Poisoned { .. }), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_log_forgets_only_what_the_older_snapshot_covers() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 1);
    let mut last = LogPosition::default();
    let mut write = |opened: &mut OpenedLog| {
        for _ in 0..40 {
            last = propose(opened, 1, vec![payload(1, 1000)])[0].position();
        }
        last
    };
    let first = write(&mut opened);
    snapshot(&opened.log, first, b"first");
    assert_eq!(
        opened.log.status().first_index,
        1,
        "one snapshot alone is not trusted"
    );
    let second = write(&mut opened);
    snapshot(&opened.log, second, b"second");
    assert_eq!(opened.log.status().first_index, first.index + 1);
    assert!(matches!(
        opened.log.read(1, 100),
        Err(StoreError::Compacted { wanted: 1, .. })
    ));
    let third = write(&mut opened);
    // The deletion follows the answer to the purge, but comes before the answer to what was written after it.
    let begun = opened.log.store().stats().rotations as usize + 1;
    let left = segments(dir.path()).len();
    assert!(left + 2 < begun, "{left} of {begun} segments are left");
    drop(opened);

    let opened = open(dir.path(), 2);
    assert_eq!(opened.recovery.snapshot, Some(second));
    let mut state = Vec::new();
    let mut reader = opened.log.newest_snapshot().unwrap().unwrap();
    reader.read_to_end(&mut state).unwrap();
    assert_eq!(
        (reader.position(), state.as_slice()),
        (second, b"second".as_slice())
    );
    let replay = opened.log.read(second.index + 1, usize::MAX).unwrap();
    assert_eq!(replay.first().map(|entry| entry.index), Some(second.index + 1));
    assert_eq!(replay.last().map(Entry::position), Some(third));
    assert!(
        opened
            .log
            .compact(
                opened
                    .log
                    .begin_snapshot(LogPosition { index: 999, term: 1 })
                    .unwrap()
            )
            .is_err()
    );
}

#[test]
fn an_installed_snapshot_replaces_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 1);
    propose(&mut opened, 1, vec![payload(1, 10)]);
    let at = LogPosition { index: 500, term: 9 };
    let mut writer = opened.log.begin_snapshot(at).unwrap();
    writer.write_all(b"from elsewhere").unwrap();
    opened.log.install(writer).unwrap();
    assert!(
        matches!(opened.events.blocking_recv(), Some(LogEvent::SnapshotInstalled { at: found }) if found == at)
    );
    assert_eq!(propose(&mut opened, 2, vec![payload(2, 10)])[0].index, 501);
    drop(opened);
    let opened = open(dir.path(), 10);
    assert_eq!(opened.recovery.snapshot, Some(at));
    assert_eq!(opened.log.read(501, 100).unwrap().len(), 1);
}

#[test]
fn an_installation_that_was_cut_off_is_finished_and_a_lost_log_is_not_taken_for_one() {
    let at = LogPosition { index: 500, term: 9 };
    for marked in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        propose(&mut open(dir.path(), 1), 1, vec![payload(1, 10)]);
        let store = SegmentStore::open(dir.path(), small()).unwrap().0;
        if marked {
            store
                .commit(Batch::of(Op::Meta {
                    key: MetaKey::Install,
                    value: at.to_meta(),
                }))
                .unwrap();
        }
        store.snapshots().create(at).unwrap().finish().unwrap();
        drop(store);
        let before = files(dir.path());
        match LocalLog::open(dir.path(), small()) {
            Ok(opened) => {
                assert!(marked);
                assert_eq!(
                    (
                        opened.log.status().first_index,
                        opened.log.status().committed_index
                    ),
                    (501, 500)
                );
            }
            Err(StoreError::Damaged {
                what:
                    What::SnapshotAhead {
                        snapshot: 500,
                        log_next: 2,
                    },
                ..
            }) => {
                assert!(!marked);
                assert_eq!(files(dir.path()), before);
            }
            Err(other) => panic!("{other}"),
        }
    }
}
