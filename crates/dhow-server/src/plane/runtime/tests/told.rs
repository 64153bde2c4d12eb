//! What the event log tells beyond the way of a deployment: reports that are not believed, sets of manifests, removals,
//! and a state that came as a whole.

use std::sync::Arc;

use dhow_core::command::{ApplyReason, ClusterCommand, Command, DeploymentCommand, ManifestSpec};
use dhow_core::ids::{DeploymentName, NodeId, Revision};
use dhow_core::replica::ReplicaEvent;
use dhow_core::state::ManifestVersion;
use tempfile::TempDir;

use super::agent::{Agent, start_events};
use super::support::{Gate, Server, deploy, open, register, set_secret, shop, spec};
use crate::plane::log::store::LogPosition;
use crate::plane::runtime::{EventId, EventKind, EventRecord};

/// The events so far, but for the first leader's.
async fn events(server: &Server) -> Vec<Arc<EventRecord>> {
    let view = server.handle.view();
    view.settle_events().await;
    view.events()
        .since(EventId::default(), usize::MAX)
        .or_else(|_| view.events().since(EventId::behind(Revision(0)), usize::MAX))
        .unwrap()
        .into_iter()
        .filter(|record| record.event.kind != EventKind::LeaderChanged)
        .collect()
}

fn kinds(events: &[Arc<EventRecord>]) -> Vec<EventKind> {
    events.iter().map(|record| record.event.kind).collect()
}

fn messages(events: &[Arc<EventRecord>], kind: EventKind) -> Vec<String> {
    let found = events.iter().filter(|record| record.event.kind == kind);
    found
        .map(|record| record.event.message.clone().unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn a_refused_report_is_told_once_a_minute() {
    let server = Server::start_volatile(|_| {});
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    server.place("web", NodeId(1)).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    start_events().iter().for_each(|event| agent.happens(event));
    for _ in 0..3 {
        agent.report_from(&server, 3).await.unwrap_err();
    }
    let stranger = Agent::new(9);
    stranger.inventory(&server).await.unwrap_err();
    agent.report_from(&server, 1).await.unwrap();
    server.clock.advance(60_000);
    agent.incarnation = 5;
    agent.report_from(&server, 1).await.unwrap_err();

    let events = events(&server).await;
    assert_eq!(
        messages(&events, EventKind::ReportRefused),
        [
            "events 1 to 3 of node 1 are missing; send them again from 0",
            "there is no node 9",
            "node 1 speaks as incarnation 5, known is 0; it should send all it has (2 more reports since the last time)",
        ]
    );
    let nodes: Vec<_> = events
        .iter()
        .filter(|record| record.event.kind == EventKind::ReportRefused)
        .map(|record| record.event.node_id)
        .collect();
    assert_eq!(nodes, [Some(NodeId(1)), Some(NodeId(9)), Some(NodeId(1))]);
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn the_first_word_of_a_new_node_is_no_doubt() {
    let server = Server::start_volatile(|_| {});
    server.write(register(2)).await.unwrap();
    let body = crate::plane::runtime::ReportBody::Events {
        first_seq: 1,
        events: Vec::new(),
    };
    let input = server.handle.input();
    input.report(NodeId(2), None, 78, body).await.unwrap_err();
    let kinds = kinds(&events(&server).await);
    assert!(!kinds.contains(&EventKind::ReportRefused), "{kinds:?}");
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn what_cannot_have_happened_is_told_as_that_and_not_as_if_it_had() {
    let server = Server::start_volatile(|_| {});
    server.write(register(1)).await.unwrap();
    server.write(deploy(1)).await.unwrap();
    server.place("web", NodeId(1)).await;
    let mut agent = Agent::new(1);
    agent.follow(&server.state());
    agent.happens(&ReplicaEvent::PullBegan);
    let (name, _) = agent.ledger[0].clone();
    agent
        .ledger
        .push((name.clone(), ReplicaEvent::Started { pid: 7 }));
    agent.ledger.push((name, ReplicaEvent::BecameHealthy));
    let ack = agent.report_from(&server, 1).await.unwrap();
    assert!(ack.inventory_wanted);
    agent.incarnation = 1;
    // In the same minute the refusal is counted and not told.
    agent.report_from(&server, 1).await.unwrap_err();
    let events = events(&server).await;
    assert_eq!(
        kinds(&events),
        [
            EventKind::NodeJoined,
            EventKind::Deployed,
            EventKind::ReplicaPlaced,
            EventKind::ReplicaPulling,
            EventKind::ReportDiverged,
        ]
    );
    assert_eq!(
        messages(&events, EventKind::ReportDiverged),
        [
            "2 events do not fit what the cluster knows, the first of shop/web-default-0, which is pulling here; the node \
             is asked for all that it has"
        ]
    );
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_set_of_manifests_is_told_with_what_it_deploys_and_removes() {
    let server = Server::start_volatile(|_| {});
    let set = |version, specs: Vec<ManifestSpec>, why| {
        Command::Deployment(DeploymentCommand::ApplyManifests {
            version: ManifestVersion {
                version,
                created_unix_secs: 0,
                index_hash: [0; 32],
            },
            specs,
            wall_unix_secs: 0,
            source: None,
            commit: (version == 2).then(|| "1a2b3c".into()),
            why,
        })
    };
    let shop_spec = ManifestSpec(Arc::new(spec(0, "nginx:1.27")));
    let mut blog = spec(0, "nginx:1.27");
    blog.deployment = DeploymentName::new("blog").unwrap();
    let blog = ManifestSpec(Arc::new(blog));
    let newer = ApplyReason::Newer;
    server
        .write(set(1, vec![shop_spec.clone()], newer))
        .await
        .unwrap();
    server.write(set(2, vec![shop_spec], newer)).await.unwrap();
    server
        .write(set(3, vec![blog], ApplyReason::Accepted))
        .await
        .unwrap();
    let events = events(&server).await;
    let told: Vec<_> = events
        .iter()
        .map(|record| (record.event.kind, record.event.message.as_deref().unwrap_or("")))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::Deployed, "revision 1 by manifests 1"),
            (EventKind::ManifestsTaken, "version 1, 1 deployment"),
            (EventKind::ManifestsTaken, "version 2 at 1a2b3c, 1 deployment"),
            (EventKind::Deployed, "revision 1 by manifests 3"),
            (EventKind::RemovalAsked, ""),
            (EventKind::ManifestsTaken, "version 3, 1 deployment"),
        ],
        "what a set does not change is not told"
    );
    assert_eq!(events[4].event.deployment, Some(shop()));
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_level_that_the_cluster_has_already_is_no_news() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    let raise = |level| {
        let nodes_limit = None;
        Command::Cluster(ClusterCommand::RaiseFeatureLevel { level, nodes_limit })
    };
    server.write(raise(1)).await.unwrap();
    server.write(raise(1)).await.unwrap();
    let events = events(&server).await;
    assert_eq!(kinds(&events), [EventKind::FeatureLevelRaised]);
    assert!(server.stop().await.is_clean());
}

/// The state of a server with a node that has a replica.
async fn theirs() -> Arc<dhow_core::state::State> {
    let other = Server::start_volatile(|_| {});
    other.write(register(7)).await.unwrap();
    other.write(deploy(1)).await.unwrap();
    other.place("web", NodeId(7)).await;
    let state = other.state();
    assert!(other.stop().await.is_clean());
    state
}

#[tokio::test]
async fn a_state_that_came_as_a_whole_is_told_behind_a_gap_and_wakes_whom_it_concerns() {
    let theirs = theirs().await;
    // This one is at a higher revision: the losing half of a divided cluster.
    let dir = TempDir::new().unwrap();
    let gate = Gate::default();
    let opened = open(dir.path(), &gate);
    let log = Arc::clone(&opened.options.log.as_ref().unwrap().log);
    let server = Server::run(opened.state, opened.options, gate);
    for number in 0..6 {
        server.write(set_secret(number % 2)).await.unwrap();
    }
    let told_before = events(&server).await.len();
    let woken = server.handle.view().node_changes(NodeId(7));
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
    let mut changes = woken.clone();
    changes.changed().await.unwrap();
    server.write(set_secret(8)).await.unwrap();
    let events = events(&server).await;
    let places: Vec<EventId> = events.iter().map(|record| record.id()).collect();
    assert!(
        places.is_sorted_by(|a, b| a < b),
        "every event has a place behind the one before: {places:?}"
    );
    let found = &events[told_before..];
    assert_eq!(
        kinds(found),
        [
            EventKind::Gap,
            EventKind::FeatureLevelRaised,
            EventKind::SecretRemoved,
            EventKind::SecretRemoved,
            EventKind::NodeJoined,
            EventKind::Deployed,
            EventKind::ReplicaPlaced,
            EventKind::SecretSet,
        ]
    );
    assert_eq!(
        found[0].event.message.as_deref(),
        Some(
            "the state of another server, at revision 4, took the place of this one's, at revision 7: what happened in \
             between is not known; 6 differences follow"
        )
    );
    assert_eq!(found[6].event.replica.as_deref(), Some("web-default-0"));
    assert!(server.stop().await.is_clean());
}
