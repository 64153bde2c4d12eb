//! What fails is told with its cause, and nothing hangs.

use std::sync::Arc;

use dhow_core::plan::Plan;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::support::{DEADLINE_MS, Gate, Server, deploy, open, register, set_secret};
use crate::log::store::{Entry, LogPosition};
use crate::log::{Leadership, Log, LogEvent};
use crate::runtime::{RuntimeFailure, RuntimeLog, VolatileLog, WriteError, drain};

#[tokio::test]
async fn a_planner_that_panics_stops_the_server_with_the_cause() {
    let server = Server::start_volatile(|options| {
        options.planner = Arc::new(|state, _, _| {
            assert!(state.secrets.is_empty(), "no plan for a state with secrets");
            Plan::default()
        });
    });
    server.write(set_secret(1)).await.unwrap();
    let failure = server.handle.ended().await.unwrap_err();
    let RuntimeFailure::Planner { message } = failure.as_ref() else {
        panic!("{failure:?}");
    };
    assert_eq!(message, "no plan for a state with secrets");
    let drained = drain(server.handle.into_join_handles(), &server.clock, DEADLINE_MS).await;
    assert!(drained.aborted.is_empty() && drained.panicked.is_empty());
    assert!(matches!(
        drained.failure.as_deref(),
        Some(RuntimeFailure::Planner { .. })
    ));
}

#[tokio::test]
async fn a_disk_that_fails_stops_the_server_and_acknowledges_nothing() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    let hash = server.state().hash();
    server.gate.break_disk();
    let error = server.write(deploy(1)).await.unwrap_err();
    assert!(matches!(error, WriteError::Unknown), "{error}");
    let failure = server.handle.ended().await.unwrap_err();
    assert!(matches!(failure.as_ref(), RuntimeFailure::Log(_)), "{failure:?}");
    assert_eq!(
        server.state().hash(),
        hash,
        "nothing that is not durable was applied"
    );
    let drained = drain(server.handle.into_join_handles(), &server.clock, DEADLINE_MS).await;
    assert!(drained.aborted.is_empty() && drained.panicked.is_empty());
    // Whether the last write is there is not known; that the acknowledged one is, is.
    let opened = open(dir.path(), &Gate::default());
    assert!(opened.state.nodes.contains_key(&dhow_core::ids::NodeId(1)));
}

#[tokio::test]
async fn a_write_that_is_too_large_is_refused_and_the_rest_goes_on() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    let large = dhow_core::command::Command::Cluster(dhow_core::command::ClusterCommand::SetSecret {
        name: "large".into(),
        sealed: vec![0; 20 * 1024].into(),
    });
    let error = server.write(large).await.unwrap_err();
    assert_eq!(error.code().status(), 413, "{error}");
    server.write(set_secret(1)).await.unwrap();
    assert!(server.stop().await.is_clean());
}

/// A log under the test's control.
fn scripted() -> (mpsc::Sender<LogEvent>, RuntimeLog) {
    let (log, _) = VolatileLog::new(0);
    let (sender, events) = mpsc::channel(16);
    let log = RuntimeLog {
        log: Arc::new(log) as Arc<dyn Log>,
        events,
        applied: LogPosition::default(),
        since_snapshot: 0,
    };
    (sender, log)
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_the_server() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    let entries = vec![Entry {
        index: 1,
        term: 1,
        payload: vec![99, 1, 2].into(),
    }];
    let committed = LogEvent::Committed {
        proposal: None,
        entries,
    };
    events.send(committed).await.unwrap();
    let failure = server.handle.ended().await.unwrap_err();
    assert!(
        matches!(failure.as_ref(), RuntimeFailure::Entry { index: 1, .. }),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_log_that_ends_stops_the_server() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    drop(events);
    let failure = server.handle.ended().await.unwrap_err();
    assert!(
        matches!(failure.as_ref(), RuntimeFailure::LogEnded),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_lead_says_who_does() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    let error = server.write(set_secret(1)).await.unwrap_err();
    assert!(matches!(error, WriteError::NotLeader { leader: None }), "{error}");
    assert_eq!(error.retry_after_secs(), Some(1));
    let elsewhere = Leadership {
        term: 3,
        leader: Some(2),
        is_here: false,
    };
    events.send(LogEvent::Leadership(elsewhere)).await.unwrap();
    let mut leaderships = server.handle.view().leaderships();
    leaderships.wait_for(|now| now.leader == Some(2)).await.unwrap();
    let error = server.write(set_secret(1)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this server does not lead the cluster, node 2 does; send it there"
    );
    assert!(server.stop().await.is_clean());
}
