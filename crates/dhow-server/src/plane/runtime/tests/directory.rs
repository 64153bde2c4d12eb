//! Nodes hear of services that concern them, once the changes of a moment are together, and of no others.

use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::directory::Directory;
use dhow_core::ids::{NodeId, Revision};
use tokio::sync::watch;

use super::agent::{Agent, start_events};
use super::support::{Server, WALL_UNIX_MS, register};
use crate::plane::runtime::limits::DIRECTORY_QUIET_MS;

fn deploy_internal() -> Command {
    let text = r#"{"version":"v1","deployment":"shop","services":{
        "web":{"image":"nginx:1.27","endpoints":[{"name":"http","protocol":"http","port":80}]}}}"#;
    Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(serde_json::from_str(text).unwrap()),
        author: "test".into(),
        wall_unix_secs: WALL_UNIX_MS / 1_000,
    })
}

fn ready(directory: &Directory) -> Vec<(String, usize)> {
    let services = directory.services.iter();
    services
        .map(|(key, listing)| (key.to_string(), listing.ready.len()))
        .collect()
}

/// Waits until the node is told of so many services with so many ready replicas. The clock goes on meanwhile: a change
/// may come in the middle of a pause.
async fn told(server: &Server, node: u64, wanted: &[(&str, usize)]) {
    let view = server.handle.view();
    let mut changes = view.directories().changes(NodeId(node));
    loop {
        changes.borrow_and_update();
        let found = ready(&view.directories().of(&server.state(), NodeId(node)));
        let found: Vec<_> = found.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        if found == wanted {
            return;
        }
        server.clock.advance(DIRECTORY_QUIET_MS);
        tokio::select! {
            changed = changes.changed() => changed.unwrap(),
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Waits until a node is woken. The clock goes on meanwhile.
async fn woken(server: &Server, changes: &mut watch::Receiver<Revision>) {
    while !changes.has_changed().unwrap() {
        server.clock.advance(DIRECTORY_QUIET_MS);
        tokio::task::yield_now().await;
    }
    changes.borrow_and_update();
}

#[tokio::test]
async fn a_ready_replica_is_told_to_those_whom_it_concerns() {
    let server = Server::start_volatile(|_| {});
    let mut other = server.handle.view().directories().changes(NodeId(2));
    for node in 1..=2 {
        server.write(register(node)).await.unwrap();
    }
    // Its own coming concerns the other node; after that nothing does.
    woken(&server, &mut other).await;
    server.write(deploy_internal()).await.unwrap();
    server.place("web", NodeId(1)).await;
    // Its name is there at once, although nothing is ready and nobody has waited for the index.
    let now = server.handle.view().directories().of(&server.state(), NodeId(1));
    assert_eq!(ready(&now), [("shop/web".to_owned(), 0)]);
    told(&server, 1, &[("shop/web", 0)]).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    for event in start_events() {
        agent.happens(&event);
    }
    agent.report_from(&server, 1).await.unwrap();
    told(&server, 1, &[("shop/web", 1)]).await;
    assert!(!other.has_changed().unwrap(), "the other node runs nothing of it");
    assert_eq!(
        ready(&server.handle.view().directories().of(&server.state(), NodeId(2))),
        []
    );
    server.stop().await;
}
