//! What is acknowledged is on disk; what is on disk comes back.

use std::path::Path;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::time::ClusterTime;
use tempfile::TempDir;

use super::agent::{Agent, start_events};
use super::support::{Gate, Server, deploy, open, phase, register, set_secret};
use crate::plane::log::Log;
use crate::plane::log::store::LogPosition;
use crate::plane::runtime::{EventId, EventKind, RuntimeOptions, SnapshotPolicy, TaskName, WriteError};

#[tokio::test]
async fn a_write_is_answered_only_when_it_is_durable() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.gate.close();
    let input = server.handle.input();
    let mut write = tokio::spawn(async move { input.write(deploy(1), None).await });
    server.gate.wait_until_held().await;

    let agent = Agent::new(1);
    let beat = agent.beat(&server, None, None).await.unwrap();
    assert!(
        beat.bootstrap_rollouts.is_empty(),
        "the reducer goes on, and has not applied it"
    );
    assert_eq!(phase(&server.handle.input().read().await.unwrap()), None);
    tokio::select! {
        biased;
        answer = &mut write => panic!("answered before it was durable: {answer:?}"),
        () = std::future::ready(()) => {}
    }
    server.gate.open();
    write.await.unwrap().unwrap();
    assert!(phase(&server.state()).is_some());
    assert!(server.stop().await.is_clean());
}

/// The disk as a crash at this moment would leave it.
fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test]
async fn what_was_appended_and_not_applied_is_there_after_a_crash() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.gate.close();
    let input = server.handle.input();
    let write = tokio::spawn(async move { input.write(deploy(1), None).await });
    server.gate.wait_until_held().await;

    assert_eq!(phase(&server.state()), None, "written, and not applied");
    let crashed = TempDir::new().unwrap();
    copy_dir(dir.path(), crashed.path());
    let opened = open(crashed.path(), &Gate::default());
    assert!(phase(&opened.state).is_some(), "nobody was told, and it happened");

    server.gate.open();
    write.await.unwrap().unwrap();
    assert_eq!(
        opened.state.hash(),
        server.state().hash(),
        "as it would have been without the crash"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_restart_makes_the_same_state_from_snapshot_and_log() {
    let dir = TempDir::new().unwrap();
    let policy = |options: &mut RuntimeOptions| {
        options.snapshots = SnapshotPolicy {
            entries: 7,
            log_bytes: u64::MAX,
        };
    };
    let mut hash = None;
    for round in 0..4usize {
        let server = Server::start_changed(&dir, policy);
        if let Some(hash) = hash {
            assert_eq!(server.state().hash(), hash, "round {round}");
        }
        for number in 0..11 {
            server.write(set_secret(round * 100 + number)).await.unwrap();
        }
        server.write(register(round as u64 + 1)).await.unwrap();
        hash = Some(server.state().hash());
        assert!(server.stop().await.is_clean());
    }
    let opened = open(dir.path(), &Gate::default());
    assert_eq!(Some(opened.state.hash()), hash);
    let log = opened.options.log.unwrap();
    let snapshot = log.log.newest_snapshot().unwrap().expect("a snapshot was made");
    assert!(snapshot.position().index > 7);
    assert!(
        log.since_snapshot < 14,
        "the rest is short: {}",
        log.since_snapshot
    );
    assert!(log.log.status().first_index > 1, "the log was compacted");
}

#[tokio::test]
async fn a_large_log_is_compacted_by_its_bytes_too() {
    let dir = TempDir::new().unwrap();
    let server = Server::start_changed(&dir, |options| {
        options.snapshots = SnapshotPolicy {
            entries: u64::MAX,
            log_bytes: 200,
        };
    });
    for number in 0..20 {
        server.write(set_secret(number)).await.unwrap();
    }
    assert!(server.stop().await.is_clean());
    let log = open(dir.path(), &Gate::default()).options.log.unwrap();
    assert!(log.log.newest_snapshot().unwrap().is_some());
}

#[tokio::test]
async fn cluster_time_runs_on_monotonic_time_and_survives_a_restart() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(set_secret(1)).await.unwrap();
    assert_eq!(server.state().time, ClusterTime(0));
    server.clock.step_wall(-86_400_000);
    server.clock.step_monotonic(1_500);
    server.write(set_secret(2)).await.unwrap();
    assert_eq!(server.state().time, ClusterTime(1_500));
    server.clock.step_wall(7 * 86_400_000);
    server.write(set_secret(3)).await.unwrap();
    assert_eq!(
        server.state().time,
        ClusterTime(1_500),
        "a step of the wall clock is no time"
    );
    assert!(server.stop().await.is_clean());

    let server = Server::start(&dir);
    assert_eq!(server.state().time, ClusterTime(1_500));
    server.clock.step_monotonic(250);
    server.write(set_secret(4)).await.unwrap();
    assert_eq!(server.state().time, ClusterTime(1_750));
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn events_that_the_event_log_missed_are_told_again_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    server.place("web", NodeId(1)).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    agent.happens(&start_events()[0]);
    agent.report_from(&server, 1).await.unwrap();
    let last = server.state().revision;
    assert!(server.stop().await.is_clean());

    let events = dir.path().join("events");
    let reader = crate::plane::runtime::EventReader::new(events.clone());
    let all = reader.since(EventId::default(), usize::MAX).unwrap();
    assert_eq!(all.last().unwrap().event.kind, EventKind::ReplicaPulling);
    for file in std::fs::read_dir(&events).unwrap() {
        // As after a power failure: the end is missing, in the middle of a line.
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let cut = text.lines().take(2).map(|line| line.len() + 1).sum::<usize>() + 5;
        std::fs::write(&path, &text[..cut]).unwrap();
    }
    let server = Server::start(&dir);
    let mut newest = server.handle.view().events().newest();
    newest.wait_for(|id| id.revision > last).await.unwrap();
    let again = reader.since(EventId::default(), usize::MAX).unwrap();
    let kinds = |records: &[crate::plane::runtime::EventRecord]| -> Vec<_> {
        records
            .iter()
            .map(|record| (record.id(), record.event.clone()))
            .collect()
    };
    assert_eq!(kinds(&again[..all.len()]), kinds(&all));
    assert_eq!(again.len(), all.len() + 1, "and the new term");
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_disk_that_hangs_ends_nothing_for_ever() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.gate.close();
    let input = server.handle.input();
    let write = tokio::spawn(async move { input.write(deploy(1), None).await });
    server.gate.wait_until_held().await;
    server.cancel.cancel();
    let (clock, tasks) = (server.clock.clone(), server.handle.into_join_handles());
    let drain = {
        let clock = clock.clone();
        tokio::spawn(async move { crate::plane::runtime::drain(tasks, &clock, 5_000).await })
    };
    // The plan tick, the directory, which gathers what has changed, and the drain.
    clock.wait_for_sleepers(3).await;
    clock.advance(5_000);
    let drained = drain.await.unwrap();
    assert_eq!(drained.aborted, [TaskName::Reducer]);
    assert!(matches!(write.await.unwrap(), Err(WriteError::Unknown)));
    server.gate.open();
}

#[tokio::test]
async fn a_volatile_log_keeps_nothing_and_says_so() {
    let (log, _events) = crate::plane::runtime::VolatileLog::new(0);
    let log: Arc<dyn Log> = Arc::new(log);
    assert!(log.newest_snapshot().unwrap().is_none());
    assert!(log.begin_snapshot(Default::default()).is_err());
    assert!(crate::plane::log::recover(log.as_ref()).unwrap().state == Default::default());
}

#[tokio::test]
async fn a_snapshot_of_another_server_takes_the_place_of_the_state() {
    let dir = TempDir::new().unwrap();
    let gate = Gate::default();
    let opened = open(dir.path(), &gate);
    let log = Arc::clone(&opened.options.log.as_ref().unwrap().log);
    let server = Server::run(opened.state, opened.options, gate);
    server.write(set_secret(1)).await.unwrap();

    let other = Server::start_volatile(|_| {});
    other.write(register(7)).await.unwrap();
    let theirs = other.state();
    assert!(other.stop().await.is_clean());
    let at = LogPosition { index: 100, term: 1 };
    let snapshot_of = Arc::clone(&theirs);
    tokio::task::spawn_blocking(move || {
        let mut snapshot = log.begin_snapshot(at).unwrap();
        dhow_wire::log_form::encode_snapshot(&snapshot_of, &mut snapshot).unwrap();
        log.install(snapshot).unwrap();
    })
    .await
    .unwrap();
    server.wait_for(|state| state.hash() == theirs.hash()).await;
    let applied = server.write(set_secret(2)).await.unwrap();
    assert_eq!(applied.revision, theirs.revision.next(), "it goes on from there");
    let hash = server.state().hash();
    assert!(server.stop().await.is_clean());
    assert_eq!(open(dir.path(), &Gate::default()).state.hash(), hash);
}
