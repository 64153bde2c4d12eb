//! The whole way: a deployment is asked for, placed, started, reported healthy and marked stable; and what readers,
//! nodes and followers of events see of it.

use std::sync::Arc;

use dhow_core::command::{Command, NodeCommand, Outcome};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::plan::plan_next;
use dhow_core::state::{Phase, State};
use tempfile::TempDir;

use super::agent::{Agent, start_events};
use super::support::{Server, deploy, mark_stable, phase, register};
use crate::plane::runtime::{EventId, EventKind, ReportAck};

#[tokio::test]
async fn from_a_deployment_to_stable() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.write(register(2)).await.unwrap();
    let first = server.handle.view().node_changes(NodeId(1));
    let second = server.handle.view().node_changes(NodeId(2));

    let deployed = server.write(deploy(2)).await.unwrap();
    assert!(matches!(
        deployed.outcome,
        Outcome::Deployed { changed: true, .. }
    ));
    assert_eq!(phase(&server.state()), Some(Phase::Deploying));
    assert!(matches!(
        server.place("web", NodeId(1)).await,
        Outcome::Placed { placed: 2, .. }
    ));

    let mut woken = first.clone();
    woken.changed().await.unwrap();
    assert_eq!(*woken.borrow(), server.state().revision);
    assert!(
        !second.has_changed().unwrap(),
        "the other node has nothing new to do"
    );

    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    assert_eq!(agent.machines.len(), 2);
    for (number, event) in (0u64..).zip(start_events()) {
        agent.happens(&event);
        let ack = agent.report_from(&server, number * 2 + 1).await.unwrap();
        let durable_seq = number * 2 + 2;
        assert_eq!(
            ack,
            ReportAck {
                durable_seq,
                inventory_wanted: false
            }
        );
        let digest = agent.beat(&server, Some("shop@1"), Some(agent.digest())).await;
        assert_eq!(
            digest.unwrap().replay_from,
            None,
            "the mirror moved as the agent did"
        );
    }
    let state = server.state();
    assert!(state.replicas.values().all(|replica| replica.is_healthy()));
    server.write(mark_stable()).await.unwrap();
    assert_eq!(phase(&server.state()), Some(Phase::Stable));

    let hash = server.state().hash();
    assert!(server.stop().await.is_clean());
    let opened = super::support::open(dir.path(), &Default::default());
    assert_eq!(opened.state.hash(), hash);
}

#[tokio::test]
async fn followers_see_what_happened_and_resume() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    server.place("web", NodeId(1)).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    for event in start_events() {
        agent.happens(&event);
    }
    agent.report_from(&server, 1).await.unwrap();
    let last = server.write(mark_stable()).await.unwrap().revision;

    let view = server.handle.view();
    let mut newest = view.events().newest();
    newest.wait_for(|id| id.revision == last).await.unwrap();
    let events = view.events().since(EventId::default(), usize::MAX).unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|record| record.event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::LeaderChanged,
            EventKind::NodeJoined,
            EventKind::Deployed,
            EventKind::ReplicaPlaced,
            EventKind::ReplicaPulling,
            EventKind::ReplicaStarting,
            EventKind::ReplicaStarted,
            EventKind::ReplicaHealthy,
            EventKind::Stable,
        ]
    );
    let middle = events[5].id();
    assert_eq!(middle.part, 1, "the second event of its report");
    let rest = view.events().since(middle, usize::MAX).unwrap();
    assert_eq!(rest.len(), 3);
    let on_disk = view.event_reader().unwrap().since(middle, usize::MAX).unwrap();
    let shown: Vec<_> = rest.iter().map(|record| record.as_ref().clone()).collect();
    assert_eq!(on_disk, shown);
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_late_event_of_a_moved_replica_is_no_news_and_no_fault() {
    let server = Server::start_volatile(|options| options.planner = Arc::new(plan_next));
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    let state = server.wait_for(|state| !state.replicas.is_empty()).await;
    let mut agent = Agent::new(1);
    agent.follow(&state);
    agent.happens(&start_events()[0]);
    agent.happens(&start_events()[1]);
    agent.report_from(&server, 1).await.unwrap();

    let lost = Command::Node(NodeCommand::Lost { node: NodeId(1) });
    server.write(lost).await.unwrap();
    server.write(register(2)).await.unwrap();
    let has_moved = |state: &State| {
        let nodes: Vec<NodeId> = state.replicas.values().map(|replica| replica.node).collect();
        nodes == [NodeId(2)]
    };
    server.wait_for(has_moved).await;
    agent.happens(&start_events()[2]);
    let ack = agent.report_from(&server, 3).await.unwrap();
    assert_eq!(
        ack,
        ReportAck {
            durable_seq: 3,
            inventory_wanted: false
        },
        "counted, so that the agent forgets it"
    );
    let state = server.state();
    let replica = state.replicas.values().next().unwrap();
    assert_eq!(replica.node, NodeId(2));
    assert_eq!(
        replica.machine,
        Default::default(),
        "the new replica is untouched"
    );

    let mut unknown = agent.ledger[0].0.clone();
    unknown.index = 77;
    agent.ledger.push((unknown, start_events()[0].clone()));
    let ack = agent.report_from(&server, 4).await.unwrap();
    assert_eq!(
        ack.durable_seq, 4,
        "a replica that nobody knows keeps its place in the count"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_refused_write_says_why_and_an_acknowledged_one_can_be_read_at_once() {
    let server = Server::start_volatile(|_| {});
    let error = server.write(mark_stable()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no deployment `shop`");
    assert_eq!(error.code().status(), 404);
    let applied = server.write(deploy(1)).await.unwrap();
    let read = server.handle.input().read().await.unwrap();
    assert!(read.revision >= applied.revision && phase(&read).is_some());
    assert_eq!(
        applied.revision,
        Revision(3),
        "the term, the refusal, the deployment"
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_retried_write_is_done_once() {
    use dhow_core::command::RequestId;
    use dhow_core::state::Request;

    let server = Server::start_volatile(|_| {});
    let request = |hash: u8| RequestId {
        request: Request {
            principal: "operator".into(),
            key: "k-1".into(),
        },
        body_hash: [hash; 32],
    };
    let first = server.write_once(deploy(1), request(1)).await.unwrap();
    let again = server.write_once(deploy(1), request(1)).await.unwrap();
    assert_eq!(first.outcome, again.outcome);
    assert_eq!(server.state().deployments.len(), 1);
    let other = server.write_once(deploy(2), request(2)).await.unwrap_err();
    assert_eq!(other.code().as_str(), "idempotency_mismatch");
    let mut newest = server.handle.view().events().newest();
    newest.wait_for(|id| id.revision >= first.revision).await.unwrap();
    let events = server
        .handle
        .view()
        .events()
        .since(EventId::behind(Revision(0)), 100)
        .unwrap();
    let deployed = events
        .iter()
        .filter(|record| record.event.kind == EventKind::Deployed);
    assert_eq!(deployed.count(), 1);
    assert!(server.stop().await.is_clean());
}
