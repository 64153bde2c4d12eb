//! A server that was paused still believes that it leads: it ends nobody's work and gives nothing away before the
//! others have confirmed it. And a node that has followed a later leader is known by it.

use dhow_core::command::ClusterCommand;

use super::*;
use crate::plane::runtime::EventKind;

/// Never the address of the one that the old leader would name: it does not know.
fn is_sent_on(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NotLeader { leader: None })
}

#[tokio::test]
async fn an_ex_leader_calls_nobody_unknown() {
    let door = Door::open(&[7]).await;
    door.server.log.depose();
    for peer in [worker(8), member(8)] {
        let refused = door.report(peer, beat(8)).await.unwrap_err();
        assert!(is_sent_on(&refused), "{refused}");
    }
    let refused = door.session(worker(8), hello(8)).await.err().unwrap();
    assert!(is_sent_on(&refused), "{refused}");
    assert_eq!(door.server.leases.deadline_ms(NodeId(8)), None);
}

#[tokio::test]
async fn an_ex_leader_opens_no_session() {
    let door = Door::open(&[7, 8]).await;
    door.make_worker(7).await;
    door.server.log.depose();
    for (peer, node) in [(worker(7), 7), (member(8), 8)] {
        let refused = door.session(peer, hello(node)).await.err().unwrap();
        assert!(is_sent_on(&refused), "{refused}");
    }
    assert!(
        door.report(worker(7), beat(7)).await.is_ok(),
        "that it lives may be said"
    );
}

#[tokio::test]
async fn an_ex_leader_gives_no_secret() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    let asked = || from(worker(7), proto::SecretsRequest::default());
    assert!(door.gateway.secrets(asked()).await.is_ok());
    door.server.log.depose();
    let refused = refusal(door.gateway.secrets(asked()).await.unwrap_err());
    assert!(is_sent_on(&refused), "{refused}");
}

#[tokio::test]
async fn that_a_node_was_removed_is_confirmed_before_its_session_is_told() {
    let door = Door::open(&[7, 8]).await;
    door.make_worker(7).await;
    door.make_worker(8).await;
    let mut events = door.session(worker(7), hello(7)).await.unwrap();
    let mut others = door.session(worker(8), hello(8)).await.unwrap();
    greeted(&mut events).await;
    greeted(&mut others).await;
    let remove = |node| Command::Node(NodeCommand::Remove { node: NodeId(node) });
    door.server.write(remove(7)).await;
    assert_eq!(ended(&mut events).await, Refusal::UnknownNode);
    door.server.log.depose();
    door.server.write(remove(8)).await;
    assert!(is_sent_on(&ended(&mut others).await));
}

#[tokio::test]
async fn a_node_that_has_followed_a_higher_term_is_told_of_and_not_served() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    door.server
        .write(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "one".into(),
            feature_level: 1,
            nodes_limit: None,
        }))
        .await;
    let term = door.server.state().term.0;
    let shows = |highest_term, cluster: &str| SessionRequest {
        highest_term,
        highest_cluster: cluster.to_owned(),
        ..hello(7)
    };
    assert!(door.session(worker(7), shows(term, "one")).await.is_ok());
    assert!(door.session(worker(7), shows(term + 1, "other")).await.is_ok());
    for _ in 0..3 {
        let refused = door
            .session(worker(7), shows(term + 1, "one"))
            .await
            .err()
            .unwrap();
        assert!(is_sent_on(&refused), "{refused}");
    }
    let view = door.server.handle.view();
    view.settle_events().await;
    let told = view.events().since(door.server.first_event, 100).unwrap();
    let alarms = told.iter().filter(|record| record.event.kind == EventKind::Alarm);
    assert_eq!(alarms.count(), 1, "it is said once, however often they come");
}

#[tokio::test]
async fn assignments_carry_the_term_of_their_state() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    let mut events = door.session(worker(7), hello(7)).await.unwrap();
    let Some(Event::Opened(opened)) = next(&mut events).await else {
        panic!("it is not opened");
    };
    let Some(Event::Assignment(assignment)) = next(&mut events).await else {
        panic!("nothing is assigned");
    };
    assert_eq!(assignment.term, door.server.state().term.0);
    assert_eq!((assignment.term, opened.term), (1, 1));
}
