//! Nobody is turned away, and no command is run, because of what this server only believes: the leader is asked first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, StatusCode};
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::ids::NodeId;
use dhow_core::state::{ApiRole, ApiToken};
use dhow_wire::token::CaFingerprint;
use dhow_wire::{AccessToken, ClusterModeName};
use futures_util::future::{BoxFuture, join_all};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::support::{World, request};
use crate::api::{Access, Api, router};
use crate::net::identity::{Identity, Peer};
use crate::plane::cluster::{BarrierError, Cluster, Member, MembershipError, Newcomer};
use crate::plane::runtime::InputSender;

const CA: CaFingerprint = CaFingerprint([9; 32]);

/// A cluster whose other servers know something that this one hears of when it asks.
struct Lagging {
    input: InputSender,
    news: Mutex<Vec<Command>>,
    rounds: AtomicUsize,
    has_leader: bool,
}

impl Cluster for Lagging {
    fn mode(&self) -> ClusterModeName {
        ClusterModeName::SingleNode
    }

    fn node_id(&self) -> NodeId {
        NodeId(1)
    }

    fn members(&self) -> Vec<Member> {
        Vec::new()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        Box::pin(async {
            self.rounds.fetch_add(1, Ordering::SeqCst);
            // The others take a moment to answer.
            tokio::task::yield_now().await;
            if !self.has_leader {
                return Err(BarrierError::Ended);
            }
            let news = std::mem::take(&mut *self.news.lock().unwrap());
            for command in news {
                self.input.write(command, None).await.unwrap();
            }
            Ok(())
        })
    }

    fn add(&self, _: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(MembershipError::NotLeader)))
    }

    fn remove(&self, _: NodeId, _: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(MembershipError::NotLeader)))
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

fn token() -> AccessToken {
    AccessToken::new([3; 8], [4; 32], Some(CA))
}

fn issued() -> Command {
    let token = token();
    Command::Cluster(ClusterCommand::IssueApiToken {
        id: token.id().into(),
        token: Arc::new(ApiToken {
            hash: token.secret_hash(),
            role: ApiRole::Admin,
            name: "ci".into(),
            created_unix_secs: 0,
            expires_unix_secs: None,
        }),
    })
}

fn revoked() -> Command {
    let id = token().id().into();
    Command::Cluster(ClusterCommand::RevokeApiToken { id })
}

fn lagging(world: &World, news: Vec<Command>, has_leader: bool) -> (Arc<Lagging>, Router) {
    let cluster = Arc::new(Lagging {
        input: world.handle.input(),
        news: Mutex::new(news),
        rounds: AtomicUsize::new(0),
        has_leader,
    });
    let api = Api {
        cluster: Arc::clone(&cluster) as Arc<dyn Cluster>,
        ..world.api.clone()
    };
    let access = Access::new(&api, Some(CA));
    (cluster, router(api, access, CancellationToken::new()))
}

async fn status(router: &Router, method: Method, path: &str, bearer: &str) -> StatusCode {
    let request = request(method, path)
        .extension(Peer::Tls {
            addr: ([192, 0, 2, 7], 40_000).into(),
            identity: None,
        })
        .header("authorization", format!("Bearer {bearer}"));
    let request = request.body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn a_token_that_was_just_made_elsewhere_is_good_here() {
    let world = World::new().await;
    let (cluster, router) = lagging(&world, vec![issued()], true);
    let word = token().reveal();
    assert_eq!(status(&router, Method::GET, "/api/v1/nodes", &word).await, 200);
    assert_eq!(status(&router, Method::GET, "/api/v1/nodes", &word).await, 200);
    assert_eq!(
        cluster.rounds.load(Ordering::SeqCst),
        1,
        "one that is known costs nothing"
    );
}

#[tokio::test]
async fn an_unknown_token_is_refused_by_the_leader_alone_and_a_malformed_one_by_anybody() {
    let world = World::new().await;
    let word = token().reveal();
    let (cluster, router) = lagging(&world, Vec::new(), true);
    assert_eq!(status(&router, Method::GET, "/api/v1/nodes", &word).await, 401);
    assert_eq!(cluster.rounds.load(Ordering::SeqCst), 1);
    assert_eq!(
        status(&router, Method::GET, "/api/v1/nodes", "nonsense").await,
        401
    );
    assert_eq!(cluster.rounds.load(Ordering::SeqCst), 1);
    tokio::time::pause();
    let (_, router) = lagging(&world, Vec::new(), false);
    assert_eq!(status(&router, Method::GET, "/api/v1/nodes", &word).await, 503);
}

#[tokio::test]
async fn one_round_serves_all_who_wait() {
    let world = World::new().await;
    let word = token().reveal();
    let (cluster, router) = lagging(&world, Vec::new(), true);
    let asked = (0..100).map(|_| status(&router, Method::GET, "/api/v1/nodes", &word));
    assert!(join_all(asked).await.into_iter().all(|status| status == 401));
    let rounds = cluster.rounds.load(Ordering::SeqCst);
    assert!(rounds <= 2, "{rounds} rounds for a hundred callers");
}

#[tokio::test]
async fn no_command_runs_with_a_token_that_was_just_revoked() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.handle.input().write(issued(), None).await.unwrap();
    let word = token().reveal();
    let path = "/api/v1/deployments/shop/replicas/web-default-0/exec?command=sh";
    let (cluster, router) = lagging(&world, vec![revoked()], true);
    assert_eq!(status(&router, Method::POST, path, &word).await, 401);
    assert_eq!(cluster.rounds.load(Ordering::SeqCst), 1);
    world.handle.input().write(issued(), None).await.unwrap();
    tokio::time::pause();
    let (_, router) = lagging(&world, Vec::new(), false);
    assert_eq!(
        status(&router, Method::POST, path, &word).await,
        503,
        "nor without a leader"
    );
}

#[tokio::test]
async fn nothing_is_changed_or_handed_out_with_a_token_that_was_just_revoked() {
    let world = World::new().await;
    let word = token().reveal();
    for (method, path) in [
        (Method::POST, "/api/v1/tokens"),
        (Method::DELETE, "/api/v1/deployments/shop"),
        (Method::PUT, "/api/v1/secrets/db"),
        (Method::GET, "/api/v1/cluster/backup"),
        (Method::GET, "/api/v1/events?audit=true"),
        (Method::GET, "/api/v1/events?since=0&follow=true&audit=true"),
    ] {
        world.handle.input().write(issued(), None).await.unwrap();
        let (cluster, router) = lagging(&world, vec![revoked()], true);
        assert_eq!(status(&router, method, path, &word).await, 401, "{path}");
        assert_eq!(cluster.rounds.load(Ordering::SeqCst), 1, "{path}");
    }
}

#[tokio::test]
async fn a_server_that_was_paused_speaks_for_no_token_that_was_revoked_meanwhile() {
    let world = World::new().await;
    let asks = async |router: &Router| {
        let request = request(Method::GET, "/api/v1/nodes")
            .extension(Peer::Tls {
                addr: ([192, 0, 2, 2], 40_000).into(),
                identity: Some(Identity::Member(NodeId(2))),
            })
            .header("x-dhow-principal", format!("token {}", token().id()))
            .header("x-dhow-author", "token ci");
        let request = request.body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    };
    world.handle.input().write(issued(), None).await.unwrap();
    let (cluster, router) = lagging(&world, Vec::new(), true);
    assert_eq!(asks(&router).await, 200);
    assert_eq!(
        cluster.rounds.load(Ordering::SeqCst),
        0,
        "what is known costs nothing"
    );
    world.handle.input().write(revoked(), None).await.unwrap();
    assert_eq!(asks(&router).await, 401);
    let (_, router) = lagging(&world, vec![issued()], true);
    assert_eq!(asks(&router).await, 200, "one that was just made is good");
}

#[tokio::test]
async fn a_stream_ends_with_the_token_that_it_was_opened_with() {
    let world = World::new().await;
    world.handle.input().write(issued(), None).await.unwrap();
    let (_, router) = lagging(&world, Vec::new(), true);
    let request = request(Method::GET, "/api/v1/events?follow=true")
        .extension(Peer::Tls {
            addr: ([192, 0, 2, 7], 40_000).into(),
            identity: None,
        })
        .header("authorization", format!("Bearer {}", token().reveal()));
    let response = router
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    world.handle.input().write(revoked(), None).await.unwrap();
    // Without an end this would wait for ever.
    response.into_body().collect().await.unwrap();
}
