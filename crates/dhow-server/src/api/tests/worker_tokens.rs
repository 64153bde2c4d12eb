//! Tokens of workers, and their CA: made, counted, listed, taken back, and only where there is a tier of them.

use axum::body::Body;
use axum::http::Method;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::WorkerBootstrapToken;
use dhow_wire::api::{TokenCreated, TokenInfo, TokenKind, WorkerCaRotated};
use dhow_wire::token::CaFingerprint;
use ed25519_dalek::SigningKey;
use tokio_util::sync::CancellationToken;

use super::support::{Reply, WALL_UNIX_SECS, World, request};
use crate::api::{Access, router};

const CA: CaFingerprint = CaFingerprint([9; 32]);

/// A server of a worker tier.
async fn tier() -> (World, SigningKey) {
    let mut world = World::new().await;
    let bootstrap = ClusterCommand::Bootstrap {
        cluster_id: "harbour".into(),
        feature_level: State::FEATURE_LEVEL,
        nodes_limit: Some(State::NODES_LIMIT),
    };
    let input = world.handle.input();
    input.write(Command::Cluster(bootstrap), None).await.unwrap();
    let key = SigningKey::from_bytes(&[5; 32]);
    world.api.worker_tokens = Some(key.clone());
    let access = Access::new(&world.api, Some(CA));
    world.router = router(world.api.clone(), access, CancellationToken::new());
    (world, key)
}

async fn create(world: &World, body: &str, key: Option<&str>) -> Reply {
    let mut asked =
        request(Method::POST, "/api/v1/tokens/workers").header("content-type", "application/json");
    if let Some(key) = key {
        asked = asked.header("idempotency-key", key);
    }
    world.send(asked.body(Body::from(body.to_owned())).unwrap()).await
}

async fn listed(world: &World) -> Vec<TokenInfo> {
    world.get("/api/v1/tokens").await.json()
}

#[tokio::test]
async fn a_token_is_signed_counted_listed_and_revoked() {
    let (world, key) = tier().await;
    let created: TokenCreated = create(&world, "{}", None).await.json();
    let token = WorkerBootstrapToken::parse(&created.token).unwrap();
    assert_eq!((token.ca_fingerprint(), token.cluster_id()), (CA, "harbour"));
    let token = token.verify(&key.verifying_key(), "harbour", WALL_UNIX_SECS + 3_599);
    let token = token.unwrap();
    assert_eq!(token.nonce().to_string(), created.id);
    let [info] = &listed(&world).await[..] else {
        panic!("one token is listed");
    };
    assert_eq!(
        (info.role, info.uses, info.uses_left),
        (TokenKind::Worker, Some(1), Some(1))
    );
    assert_eq!(info.expires_unix_secs, Some(WALL_UNIX_SECS + 3_600));
    assert!(!info.revoked && !info.expired);
    let path = format!("/api/v1/tokens/{}", created.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, 200);
    assert!(listed(&world).await[0].revoked);
}

#[tokio::test]
async fn a_retried_request_is_one_token() {
    let (world, _) = tier().await;
    let body = r#"{"uses":3,"ttl_secs":60,"allowed_labels":{"zone":["a","b"],"disk":[]}}"#;
    let first: TokenCreated = create(&world, body, Some("k-1")).await.json();
    let again: TokenCreated = create(&world, body, Some("k-1")).await.json();
    assert!(first == again);
    let other: TokenCreated = create(&world, body, Some("k-2")).await.json();
    assert_ne!(first.id, other.id);
    assert_eq!(world.state().tokens.len(), 2);
}

#[tokio::test]
async fn what_makes_no_token_is_refused() {
    let (world, _) = tier().await;
    for body in [
        r#"{"uses":0}"#,
        r#"{"uses":40001}"#,
        r#"{"ttl_secs":0}"#,
        r#"{"ttl_secs":2592001}"#,
        r#"{"allowed_labels":{"no good":[]}}"#,
        r#"{"role":"worker"}"#,
    ] {
        create(&world, body, None).await.problem(422);
    }
    assert!(world.state().tokens.is_empty());
}

#[tokio::test]
async fn the_ca_is_replaced_and_the_old_one_believed_for_a_while() {
    let (world, _) = tier().await;
    let rotated: WorkerCaRotated = world.post("/api/v1/cluster/worker-ca/rotate", "").await.json();
    assert_eq!(rotated.generation, 2);
    let state = world.state();
    assert_eq!(state.worker_cas.newest(), 2);
    let until = rotated.believed_until_unix_secs;
    assert_eq!(state.worker_cas.older(until - 1), [1]);
    assert!(
        until > WALL_UNIX_SECS + 24 * 3_600,
        "longer than any certificate of it"
    );
}

#[tokio::test]
async fn without_a_tier_there_is_nothing_of_it() {
    let world = World::new().await;
    create(&world, "{}", None).await.problem(409);
    world
        .post("/api/v1/cluster/worker-ca/rotate", "")
        .await
        .problem(409);
}

#[tokio::test]
async fn a_token_names_no_id_that_a_worker_cannot_have_and_no_label_of_the_clusters() {
    let (world, _) = tier().await;
    let keep = ClusterCommand::KeepServerIds {
        nodes: vec![NodeId(1), NodeId(3)],
    };
    world
        .handle
        .input()
        .write(Command::Cluster(keep), None)
        .await
        .unwrap();
    for (ids, status, why) in [
        ("[3]", 409, "is a server's"),
        ("[40, 1]", 409, "is a server's"),
        ("[0]", 422, "from 1 to 9007199254740992"),
        ("[9007199254740993]", 422, "from 1 to 9007199254740992"),
        ("[40]", 200, ""),
    ] {
        let reply = create(&world, &format!(r#"{{"node_ids":{ids}}}"#), None).await;
        assert_eq!(reply.status, status, "{ids}: {}", reply.text());
        assert!(reply.text().contains(why), "{ids}: {}", reply.text());
    }
    let reply = create(&world, r#"{"allowed_labels":{"dhow.replicas":["true"]}}"#, None).await;
    assert_eq!(reply.status, 422, "{}", reply.text());
}
