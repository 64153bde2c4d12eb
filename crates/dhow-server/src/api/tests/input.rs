//! Bad input of every kind is a problem, and never a 5xx.

use axum::body::Body;
use axum::http::Method;
use dhow_wire::ProblemCode;

use super::support::{SHOP, World, request};

#[tokio::test]
async fn unknown_addresses_methods_and_kinds() {
    let world = World::new().await;
    assert_eq!(world.get("/api/v1/none").await.problem(404).code, "not_found");
    // It is described, and is there in another mode.
    let joining = world.post("/api/v1/workers/register", "{}").await;
    assert_eq!(joining.problem(409).code, "wrong_mode");
    world.get("/").await.problem(404);
    world.get("/api/v1/deployments/").await.problem(404);
    let reply = world.call(Method::DELETE, "/api/v1/deployments", "").await;
    assert_eq!(reply.problem(405).code, "method_not_allowed");
    let allow = reply.headers["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    world
        .call(Method::OPTIONS, "/api/v1/nodes", "")
        .await
        .problem(405);
    for (path, kind) in [
        ("/api/v1/deployments", "image/png"),
        ("/api/v1/plan", "multipart/form-data"),
        ("/api/v1/deployments/shop/scale", "text/plain"),
        ("/api/v1/images/pull", "application/xml; charset=utf-8"),
    ] {
        let call = request(Method::POST, path).header("content-type", kind);
        let problem = world.send(call.body(Body::from("x")).unwrap()).await.problem(415);
        assert_eq!(problem.known_code(), Some(ProblemCode::UnsupportedMediaType));
    }
}

#[tokio::test]
async fn bodies_that_are_too_long_or_no_text() {
    let world = World::new().await;
    let long = format!("{SHOP}#{}", "x".repeat(3 * 1024 * 1024));
    assert_eq!(
        world.post("/api/v1/deployments", &long).await.problem(413).code,
        "too_large"
    );
    let announced = request(Method::POST, "/api/v1/plan").header("content-length", "99999999999");
    world
        .send(announced.body(Body::empty()).unwrap())
        .await
        .problem(413);
    let kind = ("content-type", "application/octet-stream");
    let call = request(Method::PUT, "/api/v1/secrets/a").header(kind.0, kind.1);
    world
        .send(call.body(Body::from(vec![0; 64 * 1024 + 1])).unwrap())
        .await
        .problem(413);
    let call = request(Method::POST, "/api/v1/deployments").header("content-type", "application/yaml");
    let problem = world
        .send(call.body(Body::from(vec![b'a', 0xff])).unwrap())
        .await
        .problem(400);
    assert!(problem.detail.contains("byte 1"), "{}", problem.detail);
    let broken = futures_util::stream::iter([Err::<&[u8], _>(std::io::Error::other("cut"))]);
    let call = request(Method::POST, "/api/v1/deployments").header("content-type", "application/yaml");
    world
        .send(call.body(Body::from_stream(broken)).unwrap())
        .await
        .problem(400);
    for body in [
        "",
        "{",
        "[]",
        "null",
        "a: b: c",
        "\u{0}",
        "version: v1",
        "{\"version\":\"v1\"}",
    ] {
        let status = world.post("/api/v1/deployments", body).await.problem(422).status;
        assert_eq!(status, 422, "{body:?}");
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_read() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    for path in [
        "/api/v1/replicas?all=maybe",
        "/api/v1/replicas?all=true&all=false",
        "/api/v1/events?since=x",
        "/api/v1/events?since=-1",
        "/api/v1/events?follow=1",
        "/api/v1/logs",
        "/api/v1/logs?deployment=shop&tail=-1",
        "/api/v1/logs?deployment=shop&since_unix_us=yesterday",
        "/api/v1/logs?deployment=shop&follow=true&until_unix_us=1",
        "/api/v1/logs?deployment=shop&tail=99999999999999999999",
        "/api/v1/deployments/shop/progress?timeout_secs=86401",
        "/api/v1/deployments/shop/progress?revision=x",
        "/api/v1/deployments/%FF",
        "/api/v1/nodes/99999999999999999999999",
    ] {
        let problem = world.get(path).await.problem(400);
        assert_eq!(problem.code, "bad_request", "{path}");
    }
    let named = request(Method::GET, "/api/v1/events").header("last-event-id", "seventeen");
    world.send(named.body(Body::empty()).unwrap()).await.problem(400);
    world.get("/api/v1/logs?deployment=none").await.problem(404);
    world
        .get("/api/v1/logs?deployment=shop&name=none")
        .await
        .problem(404);
    world
        .get("/api/v1/deployments/shop/progress?revision=9")
        .await
        .problem(404);
    world.get("/api/v1/deployments/none/progress").await.problem(404);
}

#[tokio::test]
async fn web_pages_are_kept_out() {
    let world = World::new().await;
    let created = world.post("/api/v1/tokens", r#"{"role":"admin"}"#).await;
    let token = created.json::<dhow_wire::api::TokenCreated>().token;
    let call = |host: &str| {
        axum::http::Request::builder()
            .uri("/api/v1/nodes")
            .header("host", host)
            .header("authorization", format!("Bearer {token}"))
    };
    for host in ["example.com", "192.0.2.1:3669", ""] {
        let reply = world.send(call(host).body(Body::empty()).unwrap()).await;
        assert_eq!(reply.problem(403).code, "forbidden", "{host}");
    }
    let reply = world
        .send(call("127.0.0.1:3669").body(Body::empty()).unwrap())
        .await;
    assert_eq!(reply.status, 200);
    for origin in ["http://localhost:3669", "null", "https://example.com"] {
        let call = call("localhost").header("origin", origin);
        world.send(call.body(Body::empty()).unwrap()).await.problem(403);
    }
}
