//! How it ends: in good order, by drop, or at the deadline.

use futures_util::FutureExt;
use tempfile::TempDir;

use super::support::{Server, deploy, phase, register, set_secret};
use crate::plane::runtime::{InboxError, RuntimeFailure, TaskName, WriteError};

#[tokio::test]
async fn a_drain_finishes_what_was_taken() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.gate.close();
    let input = server.handle.input();
    let mut writes: Vec<_> = (0..100)
        .map(|number| Box::pin(input.write(set_secret(number), None)))
        .collect();
    for write in &mut writes {
        // The first poll hands it in.
        assert!(write.as_mut().now_or_never().is_none());
    }
    server.gate.wait_until_held().await;
    server.cancel.cancel();
    let gate = server.gate.clone();
    let stop = tokio::spawn(server.stop());
    input.closed().await;
    let refused = input.write(deploy(1), None).await;
    assert!(matches!(refused, Err(WriteError::ShuttingDown)), "{refused:?}");
    gate.open();
    for write in writes {
        write.await.unwrap();
    }
    assert!(stop.await.unwrap().is_clean());
    let opened = super::support::open(dir.path(), &Default::default());
    assert_eq!(opened.state.secrets.len(), 100);
    assert_eq!(phase(&opened.state), None);
}

#[tokio::test]
async fn every_child_ends_when_the_reducer_is_dropped() {
    let server = Server::start_volatile(|_| {});
    server.write(set_secret(1)).await.unwrap();
    let input = server.handle.input();
    let mut tasks = server.handle.into_join_handles();
    let names: Vec<TaskName> = tasks.iter().map(|task| task.name).collect();
    assert_eq!(
        names,
        [
            TaskName::Applier,
            TaskName::Directory,
            TaskName::EventLogWriter,
            TaskName::PlanTick,
            TaskName::ManifestPoll,
            TaskName::Reducer
        ]
    );
    let reducer = tasks.pop().unwrap();
    reducer.handle.abort();
    assert!(reducer.handle.await.unwrap_err().is_cancelled());
    for task in tasks {
        task.handle.await.unwrap().unwrap();
    }
    let error = input.write(set_secret(2), None).await;
    assert!(matches!(error, Err(WriteError::ShuttingDown)), "{error:?}");
}

#[tokio::test]
async fn a_reducer_that_vanishes_is_told_as_a_failure() {
    let server = Server::start_volatile(|_| {});
    let reducer = server.handle.tasks.last().unwrap();
    reducer.handle.abort();
    let failure = server.handle.ended().await.unwrap_err();
    assert!(matches!(failure.as_ref(), RuntimeFailure::Reducer), "{failure:?}");
}

#[tokio::test]
async fn it_ends_when_nobody_can_send_any_more() {
    let server = Server::start_volatile(|_| {});
    server.write(set_secret(1)).await.unwrap();
    let view = server.handle.view();
    for task in server.handle.into_join_handles() {
        task.handle.await.unwrap().unwrap();
    }
    assert_eq!(view.state().secrets.len(), 1, "what was published stays readable");
}

#[tokio::test]
async fn after_the_end_inputs_are_refused() {
    let server = Server::start_volatile(|_| {});
    let input = server.handle.input();
    assert!(server.stop().await.is_clean());
    assert_eq!(input.read().await.unwrap_err(), InboxError::Closed);
    let error = input.write(deploy(1), None).await.unwrap_err();
    assert_eq!(error.code().as_str(), "shutting_down");
}
