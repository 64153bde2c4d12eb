//! Which routes need the leader, and which every server answers for itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use dhow_core::ids::NodeId;
use dhow_wire::Problem;
use dhow_wire::token::CaFingerprint;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use utoipa::openapi::OpenApi;

use super::support::{FixedCluster, World};
use crate::api::router::{described, groups};
use crate::api::{Access, barrier, router};
use crate::net::identity::{Identity, Peer};

/// A server of a raft cluster that took itself for the leader and whom nobody confirms that.
fn deposed(world: &World) -> Router {
    let mut api = world.api.clone();
    api.cluster = Arc::new(FixedCluster {
        members: Vec::new(),
        leads: false,
    });
    let access = Access::new(&api, Some(CaFingerprint([9; 32])));
    router(api, access, CancellationToken::new())
}

/// Asks as a server does that passes a request on: it is told at once that there is no leader.
async fn needs_leader(router: &Router, path: &str) -> bool {
    let peer = Peer::Tls {
        addr: "10.0.0.2:40000".parse().unwrap(),
        identity: Some(Identity::Member(NodeId(2))),
    };
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header("x-dhow-forwarded", "1")
        .extension(peer)
        .body(Body::empty());
    let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
    if answer.status() != 503 {
        return false;
    }
    let body = axum::body::to_bytes(answer.into_body(), 64 * 1024).await.unwrap();
    serde_json::from_slice::<Problem>(&body).unwrap().code == "no_leader"
}

fn calls(document: OpenApi) -> BTreeSet<String> {
    let document = serde_json::to_value(document).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let calls = paths.flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(move |method| format!("{method} {path}"))
    });
    calls.collect()
}

#[tokio::test]
async fn reads_are_the_leaders_but_for_those_that_every_server_answers() {
    let world = World::new().await;
    let router = deposed(&world);
    let mut here = BTreeSet::new();
    let all = calls(described().into_openapi());
    for path in all.iter().filter_map(|call| call.strip_prefix("get ")) {
        let asked = path.replace("{name}", "shop").replace("{id}", "1");
        if !needs_leader(&router, &asked).await {
            here.insert(path);
        }
    }
    let expected = [
        "/api/v1/cluster",
        "/api/v1/events",
        "/api/v1/images",
        "/api/v1/logs",
        "/api/v1/openapi.json",
        "/api/v1/past",
        "/api/v1/past/at",
        "/api/v1/past/difference",
        "/api/v1/volumes/{deployment}/{name}/content",
        "/health",
        "/metrics",
        "/ready",
    ];
    assert_eq!(here, BTreeSet::from(expected));
    // Where another server asks how far the leader is, nobody else may answer.
    assert!(needs_leader(&router, barrier::PATH).await);
    // Whoever is content with what this server knows is told it.
    assert!(needs_leader(&router, "/api/v1/nodes").await);
    assert!(!needs_leader(&router, "/api/v1/nodes?consistency=stale").await);
}

#[test]
fn changes_are_the_leaders_but_for_those_that_a_node_makes() {
    let here = groups().into_iter().filter(|group| group.of_leader.is_none());
    let here: BTreeSet<String> = here
        .flat_map(|group| calls(group.routes.into_openapi()))
        .collect();
    let here: BTreeSet<&str> = here
        .iter()
        .map(String::as_str)
        .filter(|call| !call.starts_with("get "))
        .collect();
    let expected = [
        "delete /api/v1/images",
        "post /api/v1/deployments/{name}/replicas/{id}/exec",
        "post /api/v1/images/import",
        "post /api/v1/images/prune",
        "post /api/v1/images/pull",
        "put /api/v1/volumes/{deployment}/{name}/content",
    ];
    assert_eq!(here, BTreeSet::from(expected));
}
