//! What a heartbeat finds out: lost reports, a lost memory.

use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::replica::ReplicaEvent;

use super::agent::{Agent, start_events};
use super::support::{Gate, Server, deploy, mark_stable, open, register};
use crate::plane::runtime::limits::HEARTBEAT_STALE_MS;
use crate::plane::runtime::{EventId, EventKind, HeartbeatReply, ReducerInput, WriteError};

/// A node with one replica of which the control plane has heard the first two events, and two more have happened.
async fn agent_ahead(server: &Server) -> Agent {
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    server.place("web", NodeId(1)).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    let events = start_events();
    agent.happens(&events[0]);
    agent.happens(&events[1]);
    agent.report_from(server, 1).await.unwrap();
    agent.happens(&events[2]);
    agent.happens(&events[3]);
    agent
}

#[tokio::test]
async fn a_difference_is_asked_for_from_the_last_known_event_on() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    let reply = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(
        reply,
        HeartbeatReply {
            replay_from: Some(2),
            bootstrap_rollouts: Vec::new()
        }
    );
    let ack = agent.report_from(&server, 2).await.unwrap();
    assert_eq!(ack.durable_seq, 4, "the one that was known counts once");
    assert!(!ack.inventory_wanted);
    let reply = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(reply, HeartbeatReply::default());
    let silent = agent.beat(&server, Some("shop@1"), None).await.unwrap();
    assert_eq!(
        silent,
        HeartbeatReply::default(),
        "an old agent that says nothing is left alone"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_gap_is_refused_with_the_number_to_go_on_from() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    let error = agent.report_from(&server, 4).await.unwrap_err();
    let refused = error.to_string();
    assert_eq!(
        refused,
        "events 3 to 4 of node 1 are missing; send them again from 2"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_lost_memory_is_handed_its_open_rollouts_and_told_all_by_an_inventory() {
    let server = Server::start_volatile(|_| {});
    let mut agent = agent_ahead(&server).await;
    agent.report_from(&server, 3).await.unwrap();
    // The agent's disk is gone: a new life that runs nothing and knows nothing.
    agent.machines.clear();
    agent.ledger.clear();
    agent.incarnation = 1;
    let reply = agent.beat(&server, None, Some(agent.digest())).await.unwrap();
    assert_eq!(reply.replay_from, Some(4));
    let [rollout] = reply.bootstrap_rollouts.as_slice() else {
        panic!("one rollout is open: {reply:?}");
    };
    assert_eq!(
        (rollout.id.to_string().as_str(), rollout.service.as_str()),
        ("shop@1", "web")
    );

    let error = agent.report_from(&server, 1).await;
    assert!(
        matches!(error, Err(WriteError::Refused(_))),
        "another life has other numbers: {error:?}"
    );
    agent.inventory(&server).await.unwrap();
    let replica = server.state().replicas.values().next().cloned().unwrap();
    assert_eq!(replica.machine.restarts, 1, "it begins again on its node");
    let named = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(named, HeartbeatReply::default());
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_node_is_handed_the_rollouts_that_it_does_not_name_with_what_they_run() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    agent.report_from(&server, 3).await.unwrap();
    let reply = agent
        .beat(&server, Some("shop@7"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(reply.replay_from, None);
    let [open] = reply.bootstrap_rollouts.as_slice() else {
        panic!("one is open: {reply:?}");
    };
    assert_eq!(open.id.to_string(), "shop@1");
    let images: Vec<_> = open.specs.iter().filter_map(|spec| spec.image.as_ref()).collect();
    assert_eq!(
        images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(),
        ["nginx:1.27"]
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn events_carry_their_rollout() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    agent.report_from(&server, 3).await.unwrap();
    server.write(mark_stable()).await.unwrap();
    let mut later = agent;
    later.happens(&ReplicaEvent::BecameUnhealthy { message: "no".into() });
    later.report_from(&server, 5).await.unwrap();
    let view = server.handle.view();
    view.settle_events().await;
    let events = view.events().since(EventId::behind(Revision(0)), 1_000).unwrap();
    let rollout = |kind| {
        let found = events.iter().find(|record| record.event.kind == kind);
        found
            .unwrap_or_else(|| panic!("no {kind:?}"))
            .event
            .rollout
            .clone()
    };
    for kind in [
        EventKind::Deployed,
        EventKind::ReplicaPlaced,
        EventKind::ReplicaPulling,
        EventKind::ReplicaHealthy,
        EventKind::Stable,
    ] {
        assert_eq!(rollout(kind).as_deref(), Some("shop@1"), "{kind:?}");
    }
    assert_eq!(rollout(EventKind::NodeJoined), None);
    assert_eq!(rollout(EventKind::ReplicaUnhealthy), None, "the rollout is over");
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_stable_deployment_is_no_open_rollout() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    agent.report_from(&server, 3).await.unwrap();
    server.write(mark_stable()).await.unwrap();
    let reply = agent.beat(&server, None, Some(agent.digest())).await.unwrap();
    assert_eq!(reply, HeartbeatReply::default());
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_node_that_was_lost_differs_until_it_has_told_what_it_has() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    agent.report_from(&server, 3).await.unwrap();
    let lost = Command::Node(NodeCommand::Lost { node: NodeId(1) });
    server.write(lost).await.unwrap();
    let reply = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(reply.replay_from, Some(4));
    agent.report_from(&server, 4).await.unwrap();
    agent.inventory(&server).await.unwrap();
    let reply = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(reply, HeartbeatReply::default());
    assert!(
        server
            .state()
            .replicas
            .values()
            .all(|replica| replica.is_healthy()),
        "and never restarted"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_node_whose_report_is_on_its_way_is_not_asked_for_it() {
    let dir = tempfile::TempDir::new().unwrap();
    let gate = Gate::default();
    let opened = open(dir.path(), &gate);
    let server = Server::run(opened.state, opened.options, gate);
    let agent = agent_ahead(&server).await;
    server.gate.close();
    let input = server.handle.input();
    let body = crate::plane::runtime::ReportBody::Events {
        first_seq: 3,
        events: agent.ledger[2..].to_vec(),
    };
    let report = tokio::spawn(async move { input.report(NodeId(1), None, 0, body).await });
    server.gate.wait_until_held().await;
    let reply = agent
        .beat(&server, Some("shop@1"), Some(agent.digest()))
        .await
        .unwrap();
    assert_eq!(reply.replay_from, None);
    server.gate.open();
    report.await.unwrap().unwrap();
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn an_old_heartbeat_and_an_unknown_node_are_answered_without_a_look() {
    let server = Server::start_volatile(|_| {});
    let agent = agent_ahead(&server).await;
    let (reply, answer) = tokio::sync::oneshot::channel();
    server.clock.advance(HEARTBEAT_STALE_MS + 1);
    let old = ReducerInput::HeartbeatReceived {
        host: NodeId(1),
        rollout_id: None,
        current_digest: Some(agent.digest()),
        at: 0,
        reply,
    };
    server.handle.input().try_send(old).unwrap();
    assert_eq!(answer.await.unwrap(), HeartbeatReply::default());
    let stranger = Agent::new(99)
        .beat(&server, None, Some("x".into()))
        .await
        .unwrap();
    assert_eq!(stranger, HeartbeatReply::default());
    assert!(server.stop().await.is_clean());
}
