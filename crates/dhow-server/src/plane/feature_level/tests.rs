//! The level rises when all members know the newer one, and not before.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{FEATURE_LEVEL_PATH, FeatureLevelAnswer, all_know, raise_feature_level};
use crate::clock::SystemClock;
use crate::net::peer_http::{Dialer, NoPeers, PeerHttp};
use crate::plane::cluster::{BarrierError, Cluster, Member, MembershipError, Newcomer, SingleNode};
use crate::plane::runtime;

/// Believes that whoever answers is the one that is meant.
struct InClear;

impl Dialer for InClear {
    fn dial(&self, _: NodeId, addr: SocketAddr) -> BoxFuture<'static, std::io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(addr).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

/// A cluster of this node, 1, and others at these addresses.
struct Others(Vec<SocketAddr>);

impl Cluster for Others {
    fn mode(&self) -> dhow_wire::ClusterModeName {
        dhow_wire::ClusterModeName::Raft
    }

    fn node_id(&self) -> NodeId {
        NodeId(1)
    }

    fn members(&self) -> Vec<Member> {
        let own = SocketAddr::from(([127, 0, 0, 1], 1));
        let all = std::iter::once(own).chain(self.0.iter().copied());
        let member = |(index, api_addr): (u64, SocketAddr)| Member {
            node: NodeId(index + 1),
            api_addr: Some(api_addr),
            raft_addr: None,
            is_voter: true,
            is_reachable: true,
        };
        (0..).zip(all).map(member).collect()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn add(&self, _: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::pending())
    }

    fn remove(&self, _: NodeId, _: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::pending())
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A server with these routes on loopback.
async fn serve(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    addr
}

fn knows(feature_level: u32) -> Router {
    let answer = move || async move {
        Json(FeatureLevelAnswer {
            feature_level,
            version: None,
        })
    };
    Router::new().route(FEATURE_LEVEL_PATH, get(answer))
}

#[tokio::test]
async fn every_member_has_to_know_the_level() {
    let peers = PeerHttp::new(Arc::new(InClear));
    let new = serve(knows(State::FEATURE_LEVEL)).await;
    let newer = serve(knows(State::FEATURE_LEVEL + 1)).await;
    let old = serve(Router::new()).await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(all_know(&Others(vec![]), &peers).await);
    assert!(all_know(&Others(vec![new, newer]), &peers).await);
    assert!(!all_know(&Others(vec![new, old]), &peers).await);
    assert!(!all_know(&Others(vec![gone, new]), &peers).await);
}

#[tokio::test]
async fn a_single_node_of_the_first_level_is_raised() {
    is_raised(State {
        feature_level: 1,
        cluster_id: Some("c-1".into()),
        ..State::default()
    })
    .await;
}

#[tokio::test]
async fn so_is_the_number_of_nodes_of_a_cluster_that_has_the_level_already() {
    is_raised(State {
        feature_level: State::FEATURE_LEVEL,
        cluster_id: Some("c-1".into()),
        ..State::default()
    })
    .await;
}

async fn is_raised(state: State) {
    let (cancel, end) = (CancellationToken::new(), CancellationToken::new());
    let runtime = runtime::spawn(cancel.clone(), state, Arc::new(SystemClock::new()));
    let cluster = Arc::new(SingleNode {
        node: NodeId(1),
        api_addr: None,
    });
    let view = runtime.view();
    let peers = PeerHttp::new(Arc::new(NoPeers));
    let raising = tokio::spawn(raise_feature_level(
        cluster,
        peers,
        runtime.input(),
        view.clone(),
        end.clone(),
    ));
    let mut states = view.states();
    let raised = states.wait_for(|state| {
        state.feature_level == State::FEATURE_LEVEL && state.nodes_max() == State::NODES_MAX
    });
    raised.await.unwrap();
    end.cancel();
    raising.await.unwrap();
    cancel.cancel();
}
