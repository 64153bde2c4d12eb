//! What each role of a token gets of each route that there is.

use axum::body::Body;
use axum::http::{Method, Response};
use dhow_wire::api::TokenCreated;
use dhow_wire::{DeploymentStatus, ReplicaStatus};
use serde_json::Value;
use tower::ServiceExt;

use super::support::{SHOP, World, media_type, request};
use crate::api::{Access, document};
use crate::net::identity::Peer;

/// Who is let in: `admin`, `read`, `deploy` for a token of the deployment that is asked about; `any` for whoever comes.
/// Routes of workers look at their own tokens, and the hook of a source at a signature, so that the API asks nobody there.
const TABLE: &str = "\
DELETE /api/v1/cluster/members/{id}: admin
DELETE /api/v1/deployments/{name}: admin
DELETE /api/v1/images: admin
DELETE /api/v1/nodes/{id}: admin
DELETE /api/v1/notify/{name}: admin
DELETE /api/v1/registries/{host}: admin
DELETE /api/v1/secrets/{name}: admin
DELETE /api/v1/sources/{name}: admin
DELETE /api/v1/tokens/{id}: admin
DELETE /api/v1/volumes/{deployment}/{name}: admin
GET /api/v1/cluster: admin read
GET /api/v1/cluster/backup: admin
GET /api/v1/cluster/upgrade: admin read
GET /api/v1/crons: admin read
GET /api/v1/deployments: admin read deploy
GET /api/v1/deployments/{name}: admin read deploy
GET /api/v1/deployments/{name}/explain: admin read deploy
GET /api/v1/deployments/{name}/history: admin read deploy
GET /api/v1/deployments/{name}/net-check: admin read
GET /api/v1/deployments/{name}/progress: admin read deploy
GET /api/v1/events: admin read deploy
GET /api/v1/images: admin read
GET /api/v1/logs: admin read deploy
GET /api/v1/nodes: admin read
GET /api/v1/nodes/{id}: admin read
GET /api/v1/notify: admin read
GET /api/v1/openapi.json: admin read deploy
GET /api/v1/past: admin read deploy
GET /api/v1/past/at: admin read deploy
GET /api/v1/past/difference: admin read deploy
GET /api/v1/rebalance: admin read
GET /api/v1/registries: admin read
GET /api/v1/replicas: admin read deploy
GET /api/v1/rollouts: admin read deploy
GET /api/v1/secrets: admin read
GET /api/v1/sources: admin read
GET /api/v1/tokens: admin read
GET /api/v1/volumes: admin read
GET /api/v1/volumes/{deployment}/{name}/content: admin
GET /health: any
GET /metrics: admin read
GET /ready: any
POST /api/v1/cluster/members: admin
POST /api/v1/cluster/worker-ca/rotate: admin
POST /api/v1/deployments: admin deploy
POST /api/v1/deployments/{name}/replicas/{id}/exec: admin
POST /api/v1/deployments/{name}/restart: admin deploy
POST /api/v1/deployments/{name}/rollback: admin deploy
POST /api/v1/deployments/{name}/rollout: admin
POST /api/v1/deployments/{name}/runs: admin
POST /api/v1/deployments/{name}/scale: admin deploy
POST /api/v1/deployments/{name}/start: admin
POST /api/v1/deployments/{name}/stop: admin
POST /api/v1/images/import: admin
POST /api/v1/images/prune: admin
POST /api/v1/images/pull: admin
POST /api/v1/nodes/{id}/drain: admin
POST /api/v1/nodes/{id}/labels: admin
POST /api/v1/nodes/{id}/undrain: admin
POST /api/v1/notify/{name}/test: admin
POST /api/v1/plan: admin read deploy
POST /api/v1/rebalance: admin
POST /api/v1/sources/{name}/accept: admin
POST /api/v1/sources/{name}/retry: admin
POST /api/v1/sources/{name}/sync: admin
POST /api/v1/tokens: admin
POST /api/v1/tokens/workers: admin
POST /api/v1/volumes/{deployment}/{name}/home: admin
PUT /api/v1/notify/{name}: admin
PUT /api/v1/registries/{host}: admin
PUT /api/v1/secrets/{name}: admin
PUT /api/v1/sources/{name}: admin
PUT /api/v1/volumes/{deployment}/{name}/content: admin
";

struct Bearer<'a> {
    world: &'a World,
    token: Option<String>,
}

impl Bearer<'_> {
    async fn send(&self, method: Method, path: &str, body: &str) -> Response<Body> {
        let kind = media_type(path.split('?').next().unwrap_or_default(), body);
        let mut asked = request(method, path)
            .extension(Peer::Tls {
                addr: "192.0.2.7:40000".parse().unwrap(),
                identity: None,
            })
            .header("content-type", kind);
        if let Some(token) = &self.token {
            asked = asked.header("authorization", format!("Bearer {token}"));
        }
        let asked = asked.body(Body::from(body.to_owned())).unwrap();
        self.world.router.clone().oneshot(asked).await.unwrap()
    }

    async fn status(&self, method: Method, path: &str, body: &str) -> u16 {
        self.send(method, path, body).await.status().as_u16()
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        let response = self.send(Method::GET, path, "").await;
        assert_eq!(response.status(), 200, "{path}");
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }
}

async fn bearer<'a>(world: &'a World, body: &str) -> Bearer<'a> {
    let made: TokenCreated = world.post("/api/v1/tokens", body).await.json();
    Bearer {
        world,
        token: Some(made.token),
    }
}

/// The deployment of [`SHOP`] under another name.
fn other() -> String {
    SHOP.replace("deployment: shop", "deployment: other")
}

/// A route as a request for deployment `shop` that is as good as any.
fn asked(route: &str) -> (Method, String, &'static str) {
    let (method, path) = route.split_once(' ').unwrap();
    let path = path
        .replace("{name}", "shop")
        .replace("{host}", "ghcr.io")
        .replace("{id}", "1");
    let path = match path.as_str() {
        "/api/v1/logs" => "/api/v1/logs?deployment=shop".to_owned(),
        path if path.ends_with("/explain") => format!("{path}?name=web"),
        _ => path,
    };
    let body = match route {
        "POST /api/v1/deployments" | "POST /api/v1/plan" => SHOP,
        _ => "",
    };
    (method.parse().unwrap(), path, body)
}

#[tokio::test]
async fn every_route_says_whom_it_lets_in() {
    let document = serde_json::to_value(document()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item
            .as_object()
            .map(|item| item.keys().cloned().collect::<Vec<_>>());
        routes.extend(
            methods
                .unwrap()
                .iter()
                .map(|m| format!("{} {path}", m.to_uppercase())),
        );
    }
    // They look at a proof of their own.
    routes.retain(|route| !route.contains("/workers/") && !route.ends_with("/hook"));
    routes.sort();
    let mut world = World::new().await;
    world.deploy_shop().await;
    let roles = [
        (
            "deploy",
            bearer(&world, r#"{"role":"deploy","deployment":"shop"}"#).await,
        ),
        ("read", bearer(&world, r#"{"role":"read"}"#).await),
        ("admin", bearer(&world, r#"{"role":"admin"}"#).await),
    ];
    let nobody = Bearer {
        world: &world,
        token: None,
    };
    let mut table = String::new();
    for route in &routes {
        let (method, path, body) = asked(route);
        let mut admitted = Vec::new();
        if nobody.status(method.clone(), &path, body).await != 401 {
            admitted.push("any");
        }
        let asked_of = if admitted.is_empty() {
            roles.as_slice()
        } else {
            &[]
        };
        for (role, bearer) in asked_of {
            match bearer.status(method.clone(), &path, body).await {
                401 => panic!("{role} {route}"),
                403 => {}
                _ => admitted.insert(0, role),
            }
        }
        table += &format!("{route}: {}\n", admitted.join(" "));
    }
    assert_eq!(table, TABLE);
}

#[tokio::test]
async fn a_token_for_one_deployment_knows_of_no_other() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    assert_eq!(world.post("/api/v1/deployments", &other()).await.status, 200);
    world.wait_for_replicas(4).await;
    let ci = bearer(&world, r#"{"role":"deploy","deployment":"other","name":"ci"}"#).await;
    let names: Vec<DeploymentStatus> = ci.json("/api/v1/deployments").await;
    assert_eq!(names.len(), 1);
    assert_eq!(names[0].deployment, "other");
    let replicas: Vec<ReplicaStatus> = ci.json("/api/v1/replicas?all=true").await;
    assert!(!replicas.is_empty() && replicas.iter().all(|replica| replica.deployment == "other"));
    // A first version replaces nothing; of the other deployment nothing is told in any case.
    let rollouts = ci.json::<Value>("/api/v1/rollouts").await;
    assert!(!rollouts.to_string().contains("shop"), "{rollouts}");
    for (method, path, body) in [
        (Method::GET, "/api/v1/deployments/shop", ""),
        (Method::GET, "/api/v1/deployments/%73hop", ""),
        (Method::GET, "/api/v1/deployments/nowhere", ""),
        (Method::GET, "/api/v1/deployments/shop/history", ""),
        (Method::GET, "/api/v1/deployments/shop/explain?name=web", ""),
        (Method::GET, "/api/v1/deployments/shop/progress", ""),
        (Method::GET, "/api/v1/replicas?deployment=shop", ""),
        (Method::GET, "/api/v1/logs?deployment=shop", ""),
        (Method::POST, "/api/v1/deployments", SHOP),
        (Method::POST, "/api/v1/plan", SHOP),
        (Method::POST, "/api/v1/deployments/shop/restart", ""),
        (Method::POST, "/api/v1/deployments/shop/rollback", ""),
        (Method::GET, "/api/v1/events?audit=true", ""),
        (Method::GET, "/nowhere", ""),
        (Method::GET, "/api/v1/internal/anything", ""),
    ] {
        assert_eq!(
            ci.status(method.clone(), path, body).await,
            403,
            "{method} {path}"
        );
    }
    let events = ci.send(Method::GET, "/api/v1/events", "").await;
    let events = axum::body::to_bytes(events.into_body(), usize::MAX)
        .await
        .unwrap();
    let events = String::from_utf8(events.to_vec()).unwrap();
    assert!(events.contains(r#""deployment":"other""#), "{events}");
    assert!(!events.contains("shop") && !events.contains("author"), "{events}");
    assert_eq!(
        ci.status(Method::POST, "/api/v1/deployments", &other()).await,
        200
    );
    let kept = world.state();
    let shop = kept.deployments.keys().find(|name| name.as_str() == "shop");
    assert!(shop.is_some());
}

/// A server that passes a request on names the token: the one that answers looks at what it is for.
#[tokio::test]
async fn it_is_confined_also_where_a_server_speaks_for_it() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let ci = bearer(&world, r#"{"role":"deploy","deployment":"other"}"#).await;
    let token = dhow_wire::AccessToken::parse(ci.token.as_deref().unwrap()).unwrap();
    let passed_on = |path: &'static str| {
        let identity = crate::net::identity::Identity::Member(dhow_core::ids::NodeId(2));
        let asked = request(Method::GET, path)
            .extension(Peer::Tls {
                addr: "192.0.2.8:40000".parse().unwrap(),
                identity: Some(identity),
            })
            .header("x-dhow-principal", format!("token {}", token.id()));
        world.send(asked.body(Body::empty()).unwrap())
    };
    assert_eq!(passed_on("/api/v1/deployments/shop").await.status, 403);
    assert_eq!(passed_on("/api/v1/nodes").await.status, 403);
    let listed: Vec<DeploymentStatus> = passed_on("/api/v1/deployments").await.json();
    assert!(listed.is_empty());
}

/// It shows the whole cluster.
#[tokio::test]
async fn the_page_is_not_for_tokens_of_one_deployment() {
    let world = World::new().await;
    let access = Access::new(&world.api, None);
    for (body, is_let_in) in [
        (r#"{"role":"deploy","deployment":"shop"}"#, false),
        (r#"{"role":"read"}"#, true),
    ] {
        let bearer = bearer(&world, body).await;
        let asked = request(Method::GET, "/ui/")
            .extension(Peer::Tcp("127.0.0.1:40000".parse().unwrap()))
            .header("authorization", format!("Bearer {}", bearer.token.unwrap()));
        let mut asked = asked.body(Body::empty()).unwrap();
        let admitted = access.admit_page(&mut asked).await;
        assert_eq!(admitted.is_ok(), is_let_in, "{body}");
    }
}
