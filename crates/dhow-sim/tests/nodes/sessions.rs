//! What a session carries, and what it survives.

use dhow_agent::{Heartbeat, HeartbeatAnswer};
use dhow_core::command::{ClusterCommand, Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::replica::ReplicaState;
use dhow_core::state::{Drain, State};

use crate::cluster::Cluster;
use crate::node::{Node, service, until};

fn running(state: &State) -> usize {
    let running = |state| state == ReplicaState::Running;
    state
        .replicas
        .values()
        .filter(|replica| running(replica.machine.state))
        .count()
}

#[tokio::test]
async fn a_deployment_reaches_its_nodes_and_their_word_comes_back() {
    let cluster = Cluster::start(1).await;
    let (first, second) = (
        Node::start(&cluster, 11, "a").await,
        Node::start(&cluster, 12, "b").await,
    );
    cluster
        .until("both are registered", |state| state.nodes.len() == 2)
        .await;
    cluster.deploy(&[("web", service(6, &[]))]).await;
    let state = cluster.until("all run", |state| running(state) == 6).await;
    assert_eq!(first.host.names().len(), 3);
    assert_eq!(second.host.names().len(), 3);
    assert_eq!(state.node(NodeId(11)).unwrap().info.labels["zone"], "a");
    let mut fewer = service(2, &[]);
    fewer.env.insert("OTHER".into(), "value".into());
    cluster.deploy(&[("api", fewer)]).await;
    let gone = |state: &State| running(state) == 2 && state.replicas.len() == 2;
    cluster.until("web is gone and api runs", gone).await;
    assert_eq!(cluster.servers[0].gateway.sessions(), 2);
}

#[tokio::test]
async fn a_broken_connection_loses_nothing() {
    let cluster = Cluster::start(1).await;
    let node = Node::start(&cluster, 11, "a").await;
    cluster.deploy(&[("web", service(2, &[]))]).await;
    cluster.until("both run", |state| running(state) == 2).await;
    for more in 3..6 {
        node.relay.cut();
        cluster.deploy(&[("web", service(more, &[]))]).await;
        cluster
            .until("more run", |state| running(state) == more as usize)
            .await;
    }
    assert_eq!(node.host.starts(), 5, "nothing was started twice");
    assert!(node.relay.made() >= 4);
}

#[tokio::test]
async fn replicas_run_on_while_no_server_answers() {
    let cluster = Cluster::start(1).await;
    let node = Node::start(&cluster, 11, "a").await;
    cluster.deploy(&[("web", service(2, &[]))]).await;
    cluster.until("both run", |state| running(state) == 2).await;
    node.relay.set_down(true);
    node.relay.cut();
    node.stands(|standing| standing.to_string().contains("the relay is down"))
        .await;
    let ended = node.host.names()[0].clone();
    node.host.end(&ended, dhow_driver::driver::Exit::code(7));
    // It is started again after its pause, with nobody to ask.
    while node.host.starts() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(running(&cluster.state()), 2, "nobody has heard of it");
    node.relay.set_down(false);
    let restarted = |state: &State| {
        state
            .replicas
            .values()
            .any(|replica| replica.machine.restarts == 1)
    };
    cluster
        .until("the history is told", |state| {
            restarted(state) && running(state) == 2
        })
        .await;
}

#[tokio::test]
async fn a_node_gets_the_secrets_of_its_replicas_and_no_others() {
    let cluster = Cluster::start(1).await;
    let server = &cluster.servers[0];
    for name in ["mine", "other"] {
        let sealed = server.secrets.seal(name, b"its value").unwrap();
        let set = ClusterCommand::SetSecret {
            name: name.into(),
            sealed: sealed.into(),
        };
        cluster.write(Command::Cluster(set)).await;
    }
    let node = Node::start(&cluster, 11, "a").await;
    cluster
        .deploy(&[("web", service(1, &[("KEY", "$S:mine")]))])
        .await;
    cluster.until("it runs", |state| running(state) == 1).await;
    let session: &dyn dhow_agent::Session = node.session.as_ref();
    let values = session.secrets(&["mine".to_owned()]).await.unwrap();
    assert_eq!(values["mine"], "its value");
    let refused = session.secrets(&["other".to_owned()]).await.unwrap_err();
    assert!(
        matches!(&refused, dhow_agent::SessionError::Refused(why) if why.contains("other")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_node_is_told_to_drain_and_end() {
    let cluster = Cluster::start(1).await;
    let node = Node::start(&cluster, 11, "a").await;
    node.is_open().await;
    assert!(!*node.session.drains().borrow());
    let drain = NodeCommand::SetDrain {
        node: node.id,
        drain: Drain::Draining { shutdown: true },
    };
    cluster.write(Command::Node(drain)).await;
    until(node.session.drains(), |drains| *drains).await;
}

#[tokio::test]
async fn a_second_process_of_a_node_takes_over() {
    let cluster = Cluster::start(1).await;
    let first = Node::start(&cluster, 11, "a").await;
    first.is_open().await;
    let _second = Node::start(&cluster, 11, "a").await;
    first
        .stands(|standing| standing.to_string().contains("newer session"))
        .await;
    assert!(cluster.servers[0].leases.len() == 1);
}

#[tokio::test]
async fn heartbeats_follow_the_leaders_pace_and_write_nothing() {
    let cluster = Cluster::start(1).await;
    let node = Node::start(&cluster, 11, "a").await;
    let session: &dyn dhow_agent::Session = node.session.as_ref();
    let pace = until(session.pace(), |pace| pace.ttl_secs > 0).await;
    assert_eq!((pace.ttl_secs, pace.session), (10, 1));
    let known = |state: &State| {
        state
            .node(NodeId(11))
            .is_some_and(|node| node.session.incarnation != 0)
    };
    let before = cluster.until("it has told all", known).await;
    let empty = dhow_core::mirror::digest(&before, node.id);
    let beat = |digest: &str| Heartbeat {
        digest: digest.to_owned(),
        rollouts: Vec::new(),
    };
    for _ in 0..20 {
        let answer = session.heartbeat(beat(&empty)).await.unwrap();
        assert_eq!(answer, HeartbeatAnswer::default(), "both believe the same");
    }
    let answer = session.heartbeat(beat("something else")).await.unwrap();
    let seq = before.node(node.id).unwrap().session.seq;
    assert_eq!(answer.replay_from, Some(seq));
    assert_eq!(cluster.state().revision, before.revision);
}
