//! A full inbox is told at once, loses nothing, and costs no lease.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::support::{Server, set_secret};
use crate::plane::runtime::limits::INBOX_MAX;
use crate::plane::runtime::{
    HeartbeatIngest, HeartbeatReply, InboxError, ReducerInput, WriteError, WriteRequest,
};

fn write_request(
    number: usize,
) -> (
    ReducerInput,
    oneshot::Receiver<Result<crate::plane::runtime::Applied, WriteError>>,
) {
    let (reply, answer) = oneshot::channel();
    let input = ReducerInput::Write(WriteRequest {
        command: set_secret(number),
        request: None,
        reply,
    });
    (input, answer)
}

/// Fills the inbox: on one thread the reducer does not run before this test waits.
fn fill(server: &Server) -> Vec<oneshot::Receiver<Result<crate::plane::runtime::Applied, WriteError>>> {
    let input = server.handle.input();
    let fill = |number| {
        let (write, answer) = write_request(number);
        input.try_send(write).unwrap();
        answer
    };
    (0..INBOX_MAX).map(fill).collect()
}

#[tokio::test]
async fn a_full_inbox_answers_at_once_and_loses_nothing() {
    let server = Server::start_volatile(|_| {});
    let answers = fill(&server);
    let (one_more, _) = write_request(INBOX_MAX);
    assert_eq!(server.handle.input().try_send(one_more), Err(InboxError::Full));
    let error = server.write(set_secret(INBOX_MAX)).await.unwrap_err();
    assert!(matches!(error, WriteError::Busy), "{error}");
    assert_eq!((error.code().status(), error.retry_after_secs()), (503, Some(1)));
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(server.state().secrets.len(), INBOX_MAX);
    server.write(set_secret(INBOX_MAX)).await.unwrap();
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_full_inbox_holds_no_heartbeat_up() {
    let server = Server::start_volatile(|_| {});
    let ingest = HeartbeatIngest::new(server.handle.input(), Arc::new(server.clock.clone()));
    let answers = fill(&server);
    let (one_more, _) = write_request(INBOX_MAX);
    assert_eq!(server.handle.input().try_send(one_more), Err(InboxError::Full));
    let reply = ingest.beat(NodeId(7), None, Some("something else".into())).await;
    assert_eq!(
        reply,
        HeartbeatReply::default(),
        "answered, and looked at next time"
    );
    drop(answers);
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_reducer_that_is_busy_holds_no_heartbeat_up() {
    let server = Server::start_volatile(|_| {});
    let clock = server.clock.clone();
    // A sender whose reducer never looks.
    let (inbox, _kept) = tokio::sync::mpsc::channel(1);
    let input = crate::plane::runtime::inbox::InputSender::new(inbox);
    let ingest = HeartbeatIngest::new(input, Arc::new(clock.clone()));
    let beat = tokio::spawn(async move { ingest.beat(NodeId(1), None, None).await });
    // The plan tick sleeps too.
    clock.wait_for_sleepers(2).await;
    clock.advance(2_000);
    assert_eq!(beat.await.unwrap(), HeartbeatReply::default());
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_full_inbox_and_a_full_log_are_worked_off_together() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(set_secret(0)).await.unwrap();
    server.gate.close();
    let input = server.handle.input();
    let mut answers = Vec::new();
    // As much as the log's proposals and the inbox hold, until neither takes one more.
    let mut is_full = false;
    while !is_full {
        is_full = true;
        for _ in 0..=INBOX_MAX {
            let (write, answer) = write_request(answers.len() + 1);
            if input.try_send(write).is_err() {
                break;
            }
            is_full = false;
            answers.push(answer);
        }
        tokio::task::yield_now().await;
    }
    assert!(answers.len() > INBOX_MAX, "some are on their way through the log");
    server.gate.open();
    for answer in &mut answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(server.state().secrets.len(), answers.len() + 1);
    assert!(server.stop().await.is_clean());
}
