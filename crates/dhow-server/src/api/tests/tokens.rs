//! Tokens of the API: made once, listed without their secrets, taken back.

use axum::body::Body;
use axum::http::Method;
use dhow_core::state::{ApiRole, State};
use dhow_wire::AccessToken;
use dhow_wire::api::{TokenCreated, TokenInfo, TokenKind, WriteDone};
use dhow_wire::token::CaFingerprint;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::support::{Reply, WALL_UNIX_SECS, World, request};
use crate::api::{Access, router};

async fn create(world: &World, body: &str, key: Option<&str>) -> Reply {
    let mut asked = request(Method::POST, "/api/v1/tokens").header("content-type", "application/json");
    if let Some(key) = key {
        asked = asked.header("idempotency-key", key);
    }
    world.send(asked.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn a_token_is_made_listed_and_revoked() {
    let world = World::new().await;
    let body = r#"{"role":"read","name":"ci","ttl_secs":3600}"#;
    let created: TokenCreated = create(&world, body, None).await.json();
    let token = AccessToken::parse(&created.token).unwrap();
    assert_eq!((token.id(), token.fingerprint()), (created.id.as_str(), None));
    let state = world.state();
    let kept = &state.api_tokens[created.id.as_str()];
    assert_eq!(kept.role, ApiRole::Read);
    assert!(token.is_of(&kept.hash));
    let listed = world.get("/api/v1/tokens").await;
    let secret = created.token.split('.').nth(2).unwrap();
    assert!(!listed.text().contains(secret));
    let expected = TokenInfo {
        id: created.id.clone(),
        name: "ci".into(),
        role: TokenKind::Read,
        deployment: None,
        created_unix_secs: Some(WALL_UNIX_SECS),
        expires_unix_secs: Some(WALL_UNIX_SECS + 3_600),
        expired: false,
        uses: None,
        uses_left: None,
        revoked: false,
    };
    assert_eq!(listed.json::<Vec<TokenInfo>>(), [expected]);
    world.clock.advance(3_600_000);
    assert!(world.get("/api/v1/tokens").await.json::<Vec<TokenInfo>>()[0].expired);
    let path = format!("/api/v1/tokens/{}", created.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, 200);
    world.call(Method::DELETE, &path, "").await.problem(404);
    assert!(world.state().api_tokens.is_empty());
    assert!(!format!("{created:?}").contains(secret));
}

#[tokio::test]
async fn with_a_cluster_key_it_names_the_ca() {
    let world = World::new().await;
    let ca = CaFingerprint([9; 32]);
    let router = router(
        world.api.clone(),
        Access::new(&world.api, Some(ca)),
        CancellationToken::new(),
    );
    let asked = request(Method::POST, "/api/v1/tokens")
        .header("content-type", "application/json")
        .body(Body::from(r#"{"role":"admin"}"#))
        .unwrap();
    let response = router.oneshot(asked).await.unwrap();
    let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    let created: TokenCreated = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        AccessToken::parse(&created.token).unwrap().fingerprint(),
        Some(ca)
    );
}

/// An answer that was lost on its way comes again, and there is one token.
#[tokio::test]
async fn a_retried_request_gets_the_same_token() {
    let world = World::new().await;
    let body = r#"{"role":"admin"}"#;
    let first: TokenCreated = create(&world, body, Some("k-1")).await.json();
    let again: TokenCreated = create(&world, body, Some("k-1")).await.json();
    assert!(first == again);
    assert_eq!(world.state().api_tokens.len(), 1);
    create(&world, r#"{"role":"read"}"#, Some("k-1"))
        .await
        .problem(409);
    let other: TokenCreated = create(&world, body, Some("k-2")).await.json();
    assert!(first.token != other.token && first.id != other.id);
    let (one, two): (TokenCreated, TokenCreated) = (
        create(&world, body, None).await.json(),
        create(&world, body, None).await.json(),
    );
    assert!(one.token != two.token && one.id != two.id);
    assert_eq!(world.state().api_tokens.len(), 4);
}

/// The answer to a revocation was lost: asking again with the same key is answered as the first time.
#[tokio::test]
async fn a_retried_revocation_is_no_error() {
    let world = World::new().await;
    let made: TokenCreated = create(&world, r#"{"role":"read"}"#, None).await.json();
    let path = format!("/api/v1/tokens/{}", made.id);
    let revoke = |key: &'static str| {
        let asked = request(Method::DELETE, &path).header("idempotency-key", key);
        world.send(asked.body(Body::empty()).unwrap())
    };
    revoke("k-1").await.json::<WriteDone>();
    revoke("k-1").await.json::<WriteDone>();
    revoke("k-2").await.problem(404);
    world.call(Method::DELETE, &path, "").await.problem(404);
}

#[tokio::test]
async fn what_makes_no_token_is_refused() {
    let world = World::new().await;
    let long = format!(r#"{{"role":"read","name":"{}"}}"#, "x".repeat(64));
    for body in [
        "{}",
        r#"{"role":"root"}"#,
        r#"{"role":"read","name":""}"#,
        r#"{"role":"read","name":"a b"}"#,
        r#"{"role":"read","name":"-x"}"#,
        r#"{"role":"read","ttl_secs":0}"#,
        r#"{"role":"read","ttl_secs":3153600001}"#,
        r#"{"role":"read","ttl":5}"#,
        r#"{"role":"deploy"}"#,
        r#"{"role":"deploy","deployment":"Not A Name"}"#,
        r#"{"role":"read","deployment":"shop"}"#,
        &long,
    ] {
        create(&world, body, None).await.problem(422);
    }
    create(&world, "{", None).await.problem(400);
    let odd = format!("/api/v1/tokens/{}", "x".repeat(300));
    world.call(Method::DELETE, &odd, "").await.problem(404);
    assert!(world.state().api_tokens.is_empty());
}

#[tokio::test]
async fn there_are_only_so_many() {
    let world = World::new().await;
    let mut last = create(&world, r#"{"role":"read"}"#, None).await;
    for _ in 1..State::API_TOKENS_MAX {
        last = create(&world, r#"{"role":"read"}"#, None).await;
    }
    last.json::<TokenCreated>();
    let refused = create(&world, r#"{"role":"read"}"#, None).await.problem(409);
    assert!(refused.detail.contains("dhow token revoke"), "{}", refused.detail);
}
