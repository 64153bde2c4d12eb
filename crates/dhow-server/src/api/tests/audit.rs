//! Everything that somebody did is told with who it was, to those who may know.

use axum::body::Body;
use axum::http::Method;
use dhow_wire::api::{EventDocument, TokenCreated};

use super::support::{SHOP, World, request};
use crate::net::identity::Peer;

async fn audit(world: &World) -> Vec<(String, String, String)> {
    let mut events = world.follow("/api/v1/events?audit=true").await;
    let all = events.rest().await;
    let told = all.iter().map(|sent| sent.json::<EventDocument>()).map(|event| {
        let author = event.author.expect("only what has an author is listed");
        (event.kind, author, event.message.unwrap_or_default())
    });
    told.collect()
}

#[tokio::test]
async fn changes_have_their_authors() {
    let world = World::new().await;
    let created = world
        .post("/api/v1/tokens", r#"{"role":"admin","name":"ci"}"#)
        .await;
    let admin = created.json::<TokenCreated>();
    let addr = "192.0.2.7:40000".parse().unwrap();
    let by_token = |method: Method, path: &str, kind: &str, body: &'static str| {
        let call = request(method, path)
            .extension(Peer::Tls { addr, identity: None })
            .header("authorization", format!("Bearer {}", admin.token))
            .header("content-type", kind);
        call.body(Body::from(body)).unwrap()
    };
    let deployed = by_token(Method::POST, "/api/v1/deployments", "application/yaml", SHOP);
    assert_eq!(world.send(deployed).await.status, 200);
    let kind = "application/octet-stream";
    let secret = by_token(Method::PUT, "/api/v1/secrets/db", kind, "hunter2");
    assert_eq!(world.send(secret).await.status, 200);
    assert_eq!(world.post("/api/v1/nodes/1/drain", "").await.status, 200);
    let backup = by_token(Method::GET, "/api/v1/cluster/backup", "application/json", "");
    assert_eq!(world.send(backup).await.status, 200);
    let told = audit(&world).await;
    let find = |kind: &str| {
        let found = told.iter().find(|(found, ..)| found == kind);
        found.unwrap_or_else(|| panic!("{kind} is missing in {told:?}"))
    };
    let ci = format!("token ci ({})", admin.id);
    assert_eq!(find("token_issued").1, "uid 0");
    assert_eq!(find("deployed").1, ci);
    assert_eq!(
        (find("secret_set").1.as_str(), find("secret_set").2.as_str()),
        (ci.as_str(), "db")
    );
    let drain = told.iter().find(|(kind, ..)| kind.starts_with("node_drain"));
    assert_eq!(drain.expect("the drain is told").1, "uid 0");
    assert_eq!(find("backed_up").1, ci);
    assert!(
        told.iter()
            .all(|(kind, ..)| kind != "replica_placed" && kind != "leader_changed")
    );
    let all = world.follow("/api/v1/events").await.rest().await;
    assert!(all.iter().all(|sent| !sent.data.contains("hunter2")));
}

#[tokio::test]
async fn a_reader_does_not_learn_who_did_what() {
    let world = World::new().await;
    let created = world.post("/api/v1/tokens", r#"{"role":"read"}"#).await;
    let token = created.json::<TokenCreated>().token;
    for (path, status) in [
        ("/api/v1/events", 200),
        ("/api/v1/events?audit=true", 403),
        ("/api/v1/events?%61udit=true", 403),
        ("/api/v1/events?since=0&audit=true", 403),
    ] {
        let call = request(Method::GET, path)
            .extension(Peer::Tcp("127.0.0.1:40000".parse().unwrap()))
            .header("authorization", format!("Bearer {token}"));
        let reply = world.send(call.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(!reply.text().contains("\"author\""), "{path}");
    }
}
