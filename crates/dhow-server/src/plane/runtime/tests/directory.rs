//! Nodes hear of services that concern them, once the changes of a moment are together, and of no others.

use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::directory::{Directory, Interest, WordOfInterest};
use dhow_core::ids::{DeploymentName, NodeId, ServiceKey};
use futures_util::FutureExt as _;

use super::agent::{Agent, start_events};
use super::support::{Server, WALL_UNIX_MS, register};
use crate::plane::runtime::DirectoryFollower;
use crate::plane::runtime::limits::DIRECTORY_QUIET_MS;

fn deploy_internal() -> Command {
    deploy("shop", "")
}

fn deploy(deployment: &str, expose: &str) -> Command {
    let text = format!(
        r#"{{"version":"v1","deployment":"{deployment}","services":{{
        "web":{{"image":"nginx:1.27","endpoints":[{{"name":"http","protocol":"http","port":80{expose}}}]}}}}}}"#
    );
    Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(serde_json::from_str(&text).unwrap()),
        author: "test".into(),
        wall_unix_secs: WALL_UNIX_MS / 1_000,
        force: false,
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
    let mut follower = view.directories().follow(NodeId(node), 7, Interest::default());
    loop {
        follower.look(&server.state());
        let found = ready(&view.directories().of(&server.state(), NodeId(node)));
        let found: Vec<_> = found.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        if found == wanted {
            return;
        }
        server.clock.advance(DIRECTORY_QUIET_MS);
        tokio::select! {
            changed = follower.changed() => assert!(changed),
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Waits until a node is woken. The clock goes on meanwhile.
async fn woken(server: &Server, follower: &mut DirectoryFollower) {
    loop {
        tokio::select! {
            biased;
            changed = follower.changed() => return assert!(changed),
            () = tokio::task::yield_now() => server.clock.advance(DIRECTORY_QUIET_MS),
        }
    }
}

#[tokio::test]
async fn a_ready_replica_is_told_to_those_whom_it_concerns() {
    let server = Server::start_volatile(|_| {});
    let directories = server.handle.view().directories().clone();
    let mut other = directories.follow(NodeId(2), 7, Interest::default());
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
    let unheard = other.changed().now_or_never();
    assert_eq!(unheard, None, "the other node runs nothing of it");
    assert_eq!(
        ready(&server.handle.view().directories().of(&server.state(), NodeId(2))),
        []
    );
    server.stop().await;
}

#[tokio::test]
async fn what_is_open_is_told_once_a_node_asks_for_it() {
    let server = Server::start_volatile(|_| {});
    let directories = server.handle.view().directories().clone();
    for node in 1..=2 {
        server.write(register(node)).await.unwrap();
    }
    server
        .write(deploy("shop", r#","expose":"cluster""#))
        .await
        .unwrap();
    server.place("web", NodeId(1)).await;
    told(&server, 1, &[("shop/web", 0)]).await;
    let key: ServiceKey = server.state().services.values().next().unwrap().key.clone();
    let mut other = directories.follow(NodeId(2), 7, Interest::default());
    assert_eq!(other.look(&server.state()).services.len(), 0);
    let missing = ServiceKey {
        deployment: DeploymentName::new("com").unwrap(),
        ..key.clone()
    };
    let word = |number| WordOfInterest { opening: 7, number };
    assert!(directories.want(NodeId(2), word(1), Interest::In([key.clone(), missing].into())));
    assert!(other.changed().await);
    let change = other.look(&server.state());
    assert!(change.services.contains_key(&key), "{change:?}");
    assert_eq!(change.absent.unwrap().deployments.len(), 1);
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    for event in start_events() {
        agent.happens(&event);
    }
    agent.report_from(&server, 1).await.unwrap();
    // The refresh after the placement may still be on its way: it wakes the node too, and brings nothing new.
    loop {
        woken(&server, &mut other).await;
        if other.look(&server.state()).services.contains_key(&key) {
            break;
        }
    }
    drop(other);
    assert!(
        !directories.want(NodeId(2), word(2), Interest::default()),
        "it follows no more"
    );
    server.stop().await;
}
