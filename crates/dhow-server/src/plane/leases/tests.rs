//! Leases with a clock that stands still until it is moved, over a real reducer.

pub(crate) mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dhow_core::ids::NodeId;
use dhow_core::lease::SessionId;

use super::PeerContact;
use super::losing::Losing;
use crate::plane::runtime::{EventKind, ReportBody};
use support::{OWN, TestServer};

const GRACE_MS: u64 = 10_000;
const TTL_MS: u64 = 10_000;
const FAILOVER_MS: u64 = 300_000;

/// A session with the server itself.
fn open(server: &TestServer, node: u64) -> SessionId {
    let opened = server.leases.session_opened(OWN, 7, NodeId(node));
    opened.expect("the server leads").0
}

fn broke(server: &TestServer, node: u64, session: SessionId, sign_ms: u64) {
    server.leases.session_broke(OWN, (NodeId(node), session), sign_ms);
}

fn lost(server: &TestServer) -> BTreeSet<u64> {
    let state = server.state();
    let lost = state.nodes.values().filter(|node| !node.is_ready());
    lost.map(|node| node.id.0).collect()
}

fn alarms(server: &TestServer) -> usize {
    let view = server.handle.view();
    let events = view.events().since(server.first_event, 10_000).unwrap();
    events
        .iter()
        .filter(|record| record.event.kind == EventKind::Alarm)
        .count()
}

/// Waits until so many alarms were raised: the event log is written by a task of its own.
async fn until_alarms(server: &TestServer, count: usize) {
    let mut newest = server.handle.view().events().newest();
    newest.wait_for(|_| alarms(server) >= count).await.unwrap();
    assert_eq!(alarms(server), count);
}

async fn until_lost(server: &TestServer, nodes: &[u64]) {
    server
        .wait_for(|state| {
            let lost = state.nodes.values().filter(|node| !node.is_ready());
            lost.map(|node| node.id.0).eq(nodes.iter().copied())
        })
        .await;
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_runs_out_and_is_written_once() {
    let server = TestServer::start(&[2, 3]).await;
    assert_eq!(server.leases.renew(NodeId(2)), Some(10));
    assert_eq!(server.leases.renew(NodeId(3)), Some(10));
    let began = server.state().revision;
    server.pass(TTL_MS).await;
    server.leases.renew(NodeId(3));
    server.pass(GRACE_MS).await;
    assert_eq!(
        server.leases.len(),
        2,
        "at exactly the end of the grace it still lives"
    );
    server.pass(500).await;
    until_lost(&server, &[2]).await;
    server.pass(5_000).await;
    assert_eq!(lost(&server), [2].into());
    assert_eq!(
        server.state().revision.0,
        began.0 + 1,
        "heartbeats write nothing, a loss one entry"
    );
}

#[tokio::test]
async fn evidence_ends_a_lease_at_its_grace_unless_the_node_is_heard() {
    let server = TestServer::start(&[2, 3, 4]).await;
    let ids: Vec<SessionId> = (2..5).map(|node| open(&server, node)).collect();
    server.pass(5_000).await;
    let sign_ms = server.clock_ms();
    broke(&server, 2, ids[0], sign_ms);
    broke(&server, 3, ids[1], sign_ms);
    server.pass(GRACE_MS - 500).await;
    open(&server, 3);
    server.leases.renew(NodeId(4));
    assert_eq!(lost(&server), BTreeSet::new());
    server.pass(1_000).await;
    until_lost(&server, &[2]).await;
    assert_eq!(alarms(&server), 0);
}

#[tokio::test]
async fn a_new_leader_waits_for_the_failover_time() {
    let server = TestServer::start(&[2, 3]).await;
    server.pass(FAILOVER_MS).await;
    server.leases.renew(NodeId(3));
    server.pass(GRACE_MS).await;
    assert_eq!(lost(&server), BTreeSet::new());
    server.pass(1_000).await;
    until_lost(&server, &[2]).await;
}

#[tokio::test]
async fn the_leaders_own_node_is_never_given_up() {
    let server = TestServer::start(&[OWN.0, 2]).await;
    assert_eq!(server.leases.len(), 1, "it needs no lease");
    assert_eq!(
        server.leases.renew(OWN),
        Some(10),
        "its agent is told a pace all the same"
    );
    let session = open(&server, OWN.0);
    broke(&server, OWN.0, session, 0);
    server.leases.peer_unreachable(OWN, 0);
    server.pass(FAILOVER_MS + GRACE_MS + 1_000).await;
    until_lost(&server, &[2]).await;
}

#[derive(Default)]
struct Contact(Mutex<Option<u64>>);

impl PeerContact for Contact {
    fn silent_since(&self, node: NodeId) -> Option<u64> {
        self.0.lock().unwrap().filter(|_| node == NodeId(2))
    }
}

#[tokio::test]
async fn a_server_that_its_peers_cannot_reach_is_given_up_within_the_grace() {
    let contact = Arc::new(Contact::default());
    let server = TestServer::start_with(&[2, 3], Some(Arc::clone(&contact) as Arc<dyn PeerContact>)).await;
    server.pass(2_000).await;
    // The old leader: its last sign is from before the election.
    *contact.0.lock().unwrap() = Some(0);
    server.pass(7_500).await;
    assert_eq!(lost(&server), BTreeSet::new());
    server.pass(1_500).await;
    until_lost(&server, &[2]).await;
}

#[tokio::test]
async fn half_of_twenty_falling_silent_is_the_leaders_own_trouble() {
    let nodes: Vec<u64> = (2..22).collect();
    let server = TestServer::start(&nodes).await;
    let ids: Vec<SessionId> = nodes.iter().map(|node| open(&server, *node)).collect();
    server.pass(1_000).await;
    let sign_ms = server.clock_ms();
    for (node, session) in nodes[..11].iter().zip(ids) {
        broke(&server, *node, session, sign_ms);
    }
    server.pass(GRACE_MS + 5_000).await;
    assert_eq!(lost(&server), BTreeSet::new());
    until_alarms(&server, 1).await;
    assert_eq!(server.leases.len(), 20);
}

#[tokio::test]
async fn a_leader_that_was_away_gives_up_nobody() {
    let server = TestServer::start(&[2, 3]).await;
    server.leases.renew(NodeId(2));
    server.leases.renew(NodeId(3));
    server.jump(TTL_MS + GRACE_MS + 1_000).await;
    server.pass(5_000).await;
    assert_eq!(lost(&server), BTreeSet::new());
    until_alarms(&server, 1).await;
    let deadline_ms = server.leases.deadline_ms(NodeId(2)).unwrap();
    assert!(deadline_ms >= server.clock_ms() + FAILOVER_MS);
}

#[tokio::test]
async fn a_step_of_the_wall_clock_changes_nothing() {
    let server = TestServer::start(&[2]).await;
    server.leases.renew(NodeId(2));
    server.clock.step_wall(1_000_000_000);
    server.pass(1_000).await;
    server.clock.step_wall(-2_000_000_000);
    server.pass(1_000).await;
    assert_eq!(lost(&server), BTreeSet::new());
}

#[tokio::test]
async fn who_does_not_lead_keeps_no_leases() {
    let server = TestServer::start_following(&[2, 3]).await;
    assert_eq!(server.leases.term(), None);
    assert_eq!(server.leases.renew(NodeId(2)), None);
    assert_eq!(server.leases.session_opened(OWN, 7, NodeId(2)), None);
    broke(&server, 2, SessionId::default(), 0);
    assert!(server.leases.is_empty());
}

#[tokio::test]
async fn a_removed_node_is_forgotten() {
    let server = TestServer::start(&[2]).await;
    server.leases.renew(NodeId(9));
    assert_eq!(server.leases.len(), 2);
    server.leases.forget(NodeId(9));
    assert_eq!(server.leases.len(), 1);
    // One that the state does not know runs out without a trace.
    server.leases.renew(NodeId(8));
    server.leases.renew(NodeId(2));
    let revision = server.state().revision;
    server.pass(TTL_MS + GRACE_MS - 500).await;
    server.leases.renew(NodeId(2));
    server.pass(2_000).await;
    assert_eq!(server.leases.len(), 1);
    assert_eq!(server.state().revision, revision);
}

#[tokio::test]
async fn a_loss_that_cannot_be_written_is_tried_again() {
    let server = TestServer::start(&[2]).await;
    let mut losing = Losing::default();
    losing.add([NodeId(2)]);
    server.log.hold();
    losing.go_on(&server.handle.input());
    server.log.refuse_held();
    losing.written().await;
    assert_eq!(lost(&server), BTreeSet::new());
    server.log.release();
    losing.go_on(&server.handle.input());
    losing.written().await;
    assert_eq!(lost(&server), [2].into());
}

/// Says what it has, as an agent does in its first words.
async fn reported(server: &TestServer, node: u64) {
    let body = ReportBody::Inventory {
        seq: 1,
        replicas: Vec::new(),
    };
    let input = server.handle.input();
    input.report(NodeId(node), None, 77, body).await.unwrap();
}

#[tokio::test]
async fn a_node_without_a_session_since_the_election_is_given_up_within_a_minute() {
    let server = TestServer::start(&[2, 3, 4]).await;
    for node in [2, 3] {
        reported(&server, node).await;
    }
    server.leases.renew(NodeId(3));
    for _ in 0..11 {
        server.pass(5_000).await;
        server.leases.renew(NodeId(3));
    }
    assert_eq!(lost(&server), BTreeSet::new());
    server.pass(1_000).await;
    until_lost(&server, &[2]).await;
    assert!(
        server.leases.deadline_ms(NodeId(4)).is_some(),
        "it never had a session"
    );
    assert_eq!(alarms(&server), 0);
}

#[tokio::test]
async fn a_new_leader_that_hears_hardly_anybody_gives_up_nobody() {
    let nodes: Vec<u64> = (2..22).collect();
    let server = TestServer::start(&nodes).await;
    for node in &nodes {
        reported(&server, *node).await;
    }
    server.pass(60_000).await;
    assert_eq!(lost(&server), BTreeSet::new());
    until_alarms(&server, 1).await;
    assert_eq!(server.leases.len(), 20);
}

/// Workers over HTTP have no session that could break: only their heartbeats stay away.
#[tokio::test]
async fn plain_silence_of_most_is_the_leaders_own_trouble() {
    let nodes: Vec<u64> = (2..42).collect();
    let server = TestServer::start(&nodes).await;
    for node in &nodes {
        server.leases.renew(NodeId(*node));
    }
    server.pass(TTL_MS + GRACE_MS + 5_000).await;
    assert_eq!(lost(&server), BTreeSet::new());
    until_alarms(&server, 1).await;
    assert_eq!(server.leases.len(), 40);
    server.pass(FAILOVER_MS + GRACE_MS).await;
    until_lost(&server, &nodes).await;
    assert_eq!(alarms(&server), 1, "they do not count again");
}
