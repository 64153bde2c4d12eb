//! Files of the event log, and a writer that never holds anybody up.

use std::path::Path;
use std::sync::Arc;

use dhow_core::ids::Revision;
use dhow_core::time::ClusterTime;
use tempfile::TempDir;

use super::*;
use crate::clock::FakeClock;
use crate::plane::runtime::limits::{
    AUDIT_FILES_MAX, EVENT_CHUNK_RECORDS, EVENT_FILES_MAX, EVENTS_WAITING_MAX,
};

fn record(revision: u64, part: u32) -> Arc<EventRecord> {
    Arc::new(EventRecord {
        revision: Revision(revision),
        part,
        time_ms: ClusterTime(revision),
        wall_unix_ms: None,
        event: Event::new(EventKind::SecretSet).with_message("db-password"),
    })
}

fn ids(records: &[EventRecord]) -> Vec<String> {
    records.iter().map(|record| record.id().to_string()).collect()
}

fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

#[test]
fn a_line_is_flat_json() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[record(7, 0)]).unwrap();
    let files = files::list(dir.path()).unwrap();
    let text = std::fs::read_to_string(&files[0].path).unwrap();
    assert_eq!(
        text,
        "{\"revision\":7,\"part\":0,\"time_ms\":7,\"kind\":\"secret_set\",\"message\":\"db-password\"}\n"
    );
}

#[test]
fn files_follow_each_other_and_the_oldest_go() {
    let dir = TempDir::new().unwrap();
    let line_bytes = serde_json::to_vec(record(10, 0).as_ref()).unwrap().len() as u64 + 1;
    let mut store = EventStore::open_sized(dir.path(), 2 * line_bytes).unwrap();
    for revision in 10..30 {
        store.append(&[record(revision, 0)]).unwrap();
    }
    let kept = files::list(dir.path()).unwrap();
    assert_eq!(kept.len(), EVENT_FILES_MAX);
    let reader = store.reader();
    let all = reader.since(EventId::default(), usize::MAX).unwrap();
    assert_eq!(all.len(), 2 * EVENT_FILES_MAX);
    assert_eq!(all.last().unwrap().revision, Revision(29));
    assert_eq!(
        ids(&reader.since(id("26"), usize::MAX).unwrap()),
        ["27.0", "28.0", "29.0"]
    );
    assert_eq!(ids(&reader.since(id("20"), 2).unwrap()), ["21.0", "22.0"]);
    let gone = reader.since(id("11"), 1).unwrap_err();
    assert!(matches!(gone, ReadEventsError::Gone(EventsGone { oldest }) if oldest == all[0].id()));
    let reopened = EventStore::open(dir.path()).unwrap();
    assert_eq!(reopened.last_id(), id("29.0"));
}

fn deed(revision: u64) -> Arc<EventRecord> {
    let told = record(revision, 0);
    let event = Event {
        author: Some("token ci".into()),
        ..told.event.clone()
    };
    Arc::new(EventRecord {
        event,
        ..EventRecord::clone(&told)
    })
}

#[test]
fn who_did_what_is_not_pushed_out_by_what_happens() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open_sized(dir.path(), 1_000).unwrap();
    store.append(&[deed(9), record(10, 0)]).unwrap();
    for revision in 11..300 {
        store.append(&[record(revision, 0)]).unwrap();
    }
    let all = store.reader().since(EventId::default(), usize::MAX).unwrap();
    assert!(all[0].revision > Revision(10), "nodes push everything out");
    let kept = |store: &EventStore| {
        ids(&store
            .audit_reader()
            .since(EventId::default(), usize::MAX)
            .unwrap())
    };
    assert_eq!(kept(&store), ["9.0"]);
    for revision in 300..600 {
        store.append(&[deed(revision)]).unwrap();
    }
    let audit = files::list(&dir.path().join("audit")).unwrap();
    assert_eq!(audit.len(), AUDIT_FILES_MAX, "it is bounded too");
    drop(store);
    let reopened = EventStore::open_sized(dir.path(), 1_000).unwrap();
    assert_eq!(reopened.last_id(), id("599.0"));
    assert_eq!(kept(&reopened).last().map(String::as_str), Some("599.0"));
}

#[test]
fn what_an_older_version_kept_of_who_did_what_is_taken_over() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[record(1, 0), deed(2), record(3, 0)]).unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("audit")).unwrap();
    for _ in 0..2 {
        let store = EventStore::open(dir.path()).unwrap();
        let audit = store
            .audit_reader()
            .since(EventId::default(), usize::MAX)
            .unwrap();
        assert_eq!(ids(&audit), ["2.0"]);
        assert_eq!(store.last_id(), id("3.0"));
    }
}

#[test]
fn a_power_cut_that_costs_one_kind_of_files_more_loses_no_deed_and_doubles_none() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[deed(1), record(2, 0), deed(3)]).unwrap();
    drop(store);
    let audit_ids = |store: &EventStore| {
        ids(&store
            .audit_reader()
            .since(EventId::default(), usize::MAX)
            .unwrap())
    };
    let cut = |dir: &Path| {
        let path = files::list(dir).unwrap().remove(0).path;
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.split_inclusive('\n').next().unwrap();
        std::fs::write(&path, first).unwrap();
    };
    cut(&dir.path().join("audit"));
    let store = EventStore::open(dir.path()).unwrap();
    assert_eq!(audit_ids(&store), ["1.0", "3.0"]);
    drop(store);
    cut(dir.path());
    let mut store = EventStore::open(dir.path()).unwrap();
    assert_eq!(store.last_id(), id("1.0"), "the rest is told again");
    store.append(&[record(2, 0), deed(3), deed(4)]).unwrap();
    assert_eq!(audit_ids(&store), ["1.0", "3.0", "4.0"]);
}

#[test]
fn a_cut_line_is_removed_and_writing_goes_on() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[record(1, 0), record(1, 1)]).unwrap();
    drop(store);
    let path = files::list(dir.path()).unwrap().remove(0).path;
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut store = EventStore::open(dir.path()).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let expected = [EventId::default(), id("1.0"), id("1.1")][lines];
        assert_eq!(store.last_id(), expected, "cut at {cut}");
        store.append(&[record(2, 0)]).unwrap();
        let records = store.reader().since(EventId::default(), usize::MAX).unwrap();
        assert_eq!(records.len(), lines + 1, "cut at {cut}");
    }
}

#[test]
fn a_line_that_cannot_be_read_hides_no_other() {
    let dir = TempDir::new().unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[record(1, 0)]).unwrap();
    let path = files::list(dir.path()).unwrap().remove(0).path;
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"revision\":2,\"kind\":\"of_a_newer_version\",\"time_ms\":2}\n");
    std::fs::write(&path, text).unwrap();
    let mut store = EventStore::open(dir.path()).unwrap();
    store.append(&[record(3, 0)]).unwrap();
    let records = store.reader().since(EventId::default(), usize::MAX).unwrap();
    assert_eq!(ids(&records), ["1.0", "3.0"]);
}

struct Running {
    sender: EventLogSender,
    hub: EventHub,
    end: crate::plane::runtime::shutdown::ShutdownSender,
    task: tokio::task::JoinHandle<()>,
}

/// Starts a writer after `before` had its way with the sender.
fn run(store: Option<EventStore>, before: impl FnOnce(&EventLogSender)) -> Running {
    let (sender, messages) = channel();
    let last = store.as_ref().map_or(EventId::default(), EventStore::last_id);
    let hub = EventHub::new(last);
    let clock = Arc::new(FakeClock::new(0));
    let writer = EventLogWriter::new(messages, store, hub.clone(), clock, last);
    before(&sender);
    let (end, token) = ShutdownToken::pair();
    let task = tokio::spawn(writer.run(Vec::new(), token));
    Running {
        sender,
        hub,
        end,
        task,
    }
}

fn on_disk(dir: &Path) -> Vec<EventRecord> {
    EventReader::new(dir.to_owned())
        .since(EventId::default(), usize::MAX)
        .unwrap()
}

#[tokio::test]
async fn without_a_store_nobody_waits_and_what_was_lost_is_told() {
    let more_than_fits = EVENTS_WAITING_MAX / EVENT_CHUNK_RECORDS + 5;
    let running = run(None, |sender| {
        for number in 0..more_than_fits as u64 {
            let chunk: Vec<_> = (0..EVENT_CHUNK_RECORDS as u32)
                .map(|part| record(number + 1, part))
                .collect();
            sender.applied(&chunk);
        }
    });
    running.sender.flush().await;
    let old = running.hub.since(EventId::default(), 1).unwrap_err();
    let shown = running.hub.since(old.up_to, usize::MAX).unwrap();
    let last = shown.last().unwrap();
    assert_eq!(last.event.kind, EventKind::Gap);
    let lost = 5 * EVENT_CHUNK_RECORDS;
    assert_eq!(
        last.event.message.as_deref(),
        Some(format!("{lost} events were not written").as_str())
    );
    drop(running.end);
    running.task.await.unwrap();
}

#[tokio::test]
async fn the_end_writes_what_was_sent_and_notes_have_their_place() {
    let dir = TempDir::new().unwrap();
    let store = EventStore::open(dir.path()).unwrap();
    let running = run(Some(store), |_| {});
    running.sender.applied(&[record(1, 0), record(1, 1)]);
    running.sender.note(Event::alarm("the leader is ill"));
    running.sender.applied(&[record(1, 1), record(2, 0)]);
    drop(running.end);
    running.task.await.unwrap();
    let records = on_disk(dir.path());
    assert_eq!(
        ids(&records),
        ["1.0", "1.1", "1.2", "2.0"],
        "what is repeated is left out"
    );
    assert_eq!(records[2].event.kind, EventKind::Alarm);
    let shown = running.hub.since(EventId::default(), usize::MAX).unwrap();
    assert_eq!(shown.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_events_need_not_wait_for_the_next_batch() {
    let began = tokio::time::Instant::now();
    let running = run(None, |_| {});
    for revision in 1..=5 {
        running.sender.applied(&[record(revision, 0)]);
        running.sender.settle().await;
        let shown = running.hub.since(EventId::default(), usize::MAX).unwrap();
        assert_eq!(shown.last().unwrap().revision, Revision(revision));
    }
    assert_eq!(
        began.elapsed(),
        std::time::Duration::ZERO,
        "on a clock that only sleepers move"
    );
    drop(running.end);
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_holds_nobody_up_and_has_a_note_of_the_gap() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("events");
    // Every append begins a new file, which fails while the directory is away.
    let store = EventStore::open_sized(&dir, 1).unwrap();
    let running = run(Some(store), |_| {});
    running.sender.applied(&[record(1, 0)]);
    running.sender.flush().await;
    std::fs::rename(&dir, parent.path().join("away")).unwrap();
    running.sender.applied(&[record(2, 0)]);
    running.sender.flush().await;
    running.sender.applied(&[record(3, 0), record(3, 1)]);
    running.sender.flush().await;
    assert_eq!(
        running.hub.since(EventId::default(), usize::MAX).unwrap().len(),
        4,
        "all are shown"
    );
    std::fs::rename(parent.path().join("away"), &dir).unwrap();
    running.sender.applied(&[record(4, 0)]);
    running.sender.flush().await;
    let records = on_disk(&dir);
    assert_eq!(ids(&records), ["1.0", "2.0", "4.0"]);
    assert_eq!(
        records[1].event.message.as_deref(),
        Some("3 events were not written")
    );
    drop(running.end);
    running.task.await.unwrap();
}
