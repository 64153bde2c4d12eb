//! Who may do what, by where a request came from and what it shows.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::routing::any;
use dhow_core::ids::NodeId;
use dhow_wire::api::{HistoryEntry, TokenCreated};
use dhow_wire::token::CaFingerprint;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::support::{SHOP, World, media_type, request};
use crate::api::{Access, Beside, router_with};
use crate::net::identity::{Identity, Peer};
use crate::net::lobby::{Lobby, LobbyLimits};

const CA: CaFingerprint = CaFingerprint([9; 32]);

fn tls(identity: Option<Identity>) -> Peer {
    let addr = "192.0.2.7:40000".parse().unwrap();
    Peer::Tls { addr, identity }
}

fn stranger() -> Peer {
    tls(None)
}

fn member() -> Peer {
    tls(Some(Identity::Member(NodeId(2))))
}

fn worker() -> Peer {
    tls(Some(Identity::Worker(NodeId(40))))
}

fn local() -> Peer {
    Peer::Tcp("127.0.0.1:40000".parse().unwrap())
}

fn beside(nodes: Router) -> Beside {
    Beside {
        nodes,
        ..Beside::default()
    }
}

/// The API with a cluster key or without, and routes that others bring.
fn router(world: &World, ca: Option<CaFingerprint>) -> Router {
    let answers = any(|| async { "answered" });
    let members = Router::new().route("/api/v1/internal/anything", answers.clone());
    let nodes = Router::new()
        .route("/api/v1/workers/poll", answers.clone())
        .route("/dhow.v1.Nodes/Session", answers);
    let access = Access::new(&world.api, ca);
    let beside = Beside {
        members,
        ..beside(nodes)
    };
    router_with(world.api.clone(), beside, access, CancellationToken::new())
}

struct Caller<'a> {
    router: &'a Router,
    peer: Peer,
    headers: Vec<(&'a str, String)>,
}

impl Caller<'_> {
    async fn send(&self, method: Method, path: &str, body: &str) -> axum::http::Response<Body> {
        let kind = media_type(path, body);
        let mut request = request(method, path)
            .extension(self.peer)
            .header("content-type", kind);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request: Request<Body> = request.body(Body::from(body.to_owned())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn status(&self, method: Method, path: &str) -> u16 {
        let body = match path {
            "/api/v1/deployments" | "/api/v1/plan" => SHOP,
            _ => "",
        };
        self.send(method, path, body).await.status().as_u16()
    }
}

fn caller(router: &Router, peer: Peer) -> Caller<'_> {
    Caller {
        router,
        peer,
        headers: Vec::new(),
    }
}

fn bearer<'a>(router: &'a Router, token: &str) -> Caller<'a> {
    let mut caller = caller(router, stranger());
    caller.headers.push(("authorization", format!("Bearer {token}")));
    caller
}

async fn token(world: &World, body: &str) -> TokenCreated {
    let mut created = request(Method::POST, "/api/v1/tokens");
    created = created.header("content-type", "application/json");
    let reply = world
        .send(created.body(Body::from(body.to_owned())).unwrap())
        .await;
    reply.json()
}

/// Whether with TLS or in clear on loopback, with a cluster key or without: where a caller comes from proves nothing.
#[tokio::test]
async fn without_a_certificate_a_token_is_needed_everywhere_but_for_health() {
    let world = World::new().await;
    for (ca, peer) in [(Some(CA), stranger()), (Some(CA), local()), (None, local())] {
        let router = router(&world, ca);
        let nobody = caller(&router, peer);
        for path in ["/health", "/ready"] {
            assert_eq!(nobody.status(Method::GET, path).await, 200, "{path}");
        }
        for path in [
            "/metrics",
            "/api/v1/openapi.json",
            "/api/v1/nodes",
            "/api/v1/cluster/backup",
            "/api/v1/internal/anything",
            "/nowhere",
            "/health/",
        ] {
            let refused = nobody.send(Method::GET, path, "").await;
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(refused.headers()["www-authenticate"], "Bearer");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            assert_eq!(nobody.status(method, "/api/v1/deployments").await, 401);
        }
    }
    assert!(world.state().deployments.is_empty());
}

/// The same token, in clear on loopback.
#[tokio::test]
async fn a_token_opens_plain_loopback() {
    let world = World::new().await;
    let router = router(&world, None);
    let reader = token(&world, r#"{"role":"read"}"#).await;
    let mut local = bearer(&router, &reader.token);
    local.peer = self::local();
    for path in ["/metrics", "/api/v1/nodes", "/api/v1/openapi.json"] {
        assert_eq!(local.status(Method::GET, path).await, 200, "{path}");
    }
    assert_eq!(local.status(Method::POST, "/api/v1/deployments").await, 403);
    assert_eq!(local.status(Method::GET, "/api/v1/internal/anything").await, 403);
    local.headers.push(("origin", "https://example.com".into()));
    assert_eq!(local.status(Method::GET, "/api/v1/nodes").await, 403);
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_at_every_door() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let admin = token(&world, r#"{"role":"admin"}"#).await;
    for peer in [stranger(), local(), Peer::Unix { uid: 0 }, member()] {
        for (site, status) in [
            ("cross-site", 403),
            ("same-site", 403),
            ("same-origin", 200),
            ("none", 200),
        ] {
            let mut page = bearer(&router, &admin.token);
            page.peer = peer;
            page.headers.push(("sec-fetch-site", site.to_owned()));
            for path in ["/health", "/api/v1/nodes"] {
                assert_eq!(
                    page.status(Method::GET, path).await,
                    status,
                    "{peer:?} {site} {path}"
                );
            }
        }
    }
}

/// What a page can send without being asked has no kind, or one of these.
#[tokio::test]
async fn a_body_says_what_it_is() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let send = |path: &'static str, kind: Option<&'static str>, body: &'static str| {
        let mut call = request(Method::POST, path);
        if let Some(kind) = kind {
            call = call.header("content-type", kind);
        }
        let call = call.body(Body::from(body)).unwrap();
        let router = router.clone();
        async move { router.oneshot(call).await.unwrap().status().as_u16() }
    };
    const DEPLOY: &str = "/api/v1/deployments";
    for kind in [
        None,
        Some(""),
        Some("text/plain"),
        Some("multipart/form-data"),
        Some("application/x-www-form-urlencoded"),
        Some("application/octet-stream"),
    ] {
        assert_eq!(send(DEPLOY, kind, SHOP).await, 415, "{kind:?}");
        assert_eq!(
            send("/api/v1/tokens", kind, r#"{"role":"admin"}"#).await,
            415,
            "{kind:?}"
        );
        assert_eq!(send("/api/v1/nodes/1/drain", kind, "{}").await, 415, "{kind:?}");
    }
    // Also where a route takes none.
    assert_eq!(send("/api/v1/nodes/1/undrain", None, "x").await, 415);
    assert_eq!(send("/api/v1/workers/poll", None, "{}").await, 415);
    assert!(world.state().deployments.is_empty() && world.state().api_tokens.is_empty());
    assert_eq!(
        send(DEPLOY, Some("application/yaml; charset=utf-8"), SHOP).await,
        200
    );
    assert_eq!(send("/api/v1/nodes/1/undrain", None, "").await, 200);
}

#[tokio::test]
async fn an_admin_changes_things_and_a_reader_does_not() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let admin = token(&world, r#"{"role":"admin","name":"alice@laptop"}"#).await;
    let reader = token(&world, r#"{"role":"read"}"#).await;
    let reading = bearer(&router, &reader.token);
    let changing = bearer(&router, &admin.token);
    for path in ["/api/v1/nodes", "/ready", "/api/v1/secrets", "/api/v1/tokens"] {
        assert_eq!(reading.status(Method::GET, path).await, 200, "{path}");
        assert_eq!(changing.status(Method::GET, path).await, 200, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/api/v1/deployments"),
        (Method::PUT, "/api/v1/secrets/db"),
        (Method::DELETE, "/api/v1/secrets/db"),
        (Method::POST, "/api/v1/tokens"),
        (
            Method::POST,
            "/api/v1/deployments/shop/replicas/web-default-0/exec",
        ),
        (Method::POST, "/api/v1/plan/"),
        (Method::PUT, "/api/v1/plan"),
        (Method::POST, "/api/v1/nowhere"),
        (Method::GET, "/api/v1/cluster/backup"),
        (Method::HEAD, "/api/v1/cluster/backup"),
    ] {
        assert_eq!(reading.status(method.clone(), path).await, 403, "{method} {path}");
    }
    assert!(world.state().deployments.is_empty() && world.state().api_tokens.len() == 2);
    assert_eq!(reading.status(Method::POST, "/api/v1/plan").await, 200);
    assert!(world.state().deployments.is_empty());
    assert_eq!(changing.status(Method::GET, "/api/v1/cluster/backup").await, 200);
    assert_eq!(changing.status(Method::POST, "/api/v1/deployments").await, 200);
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    assert_eq!(history[0].author, "token alice@laptop");
    assert_eq!(
        changing.status(Method::GET, "/api/v1/internal/anything").await,
        403
    );
}

#[tokio::test]
async fn tokens_that_are_not_good_are_refused() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let status = |token: String| {
        let router = router.clone();
        async move { bearer(&router, &token).status(Method::GET, "/api/v1/nodes").await }
    };
    let created = token(&world, r#"{"role":"admin","ttl_secs":60}"#).await;
    assert_eq!(status(created.token.clone()).await, 200);
    // One character of its secret is another.
    let mut other = created.token.clone().into_bytes();
    let place = "dhow1.".len() + created.id.len() + 2;
    other[place] = if other[place] == b'A' { b'B' } else { b'A' };
    assert_eq!(status(String::from_utf8(other).unwrap()).await, 401);
    assert_eq!(
        status(created.token.replace(&created.id, "0000000000000000")).await,
        401
    );
    for text in ["", "x", "dhow1", &created.id, &"x".repeat(5_000)] {
        assert_eq!(status(text.to_owned()).await, 401, "{text}");
    }
    let mut basic = caller(&router, stranger());
    basic
        .headers
        .push(("authorization", format!("Basic {}", created.token)));
    assert_eq!(basic.status(Method::GET, "/api/v1/nodes").await, 401);
    world.clock.advance(59_000);
    assert_eq!(status(created.token.clone()).await, 200);
    world.clock.advance(1_000);
    assert_eq!(status(created.token.clone()).await, 401, "it has expired");
    let revoked = token(&world, r#"{"role":"admin"}"#).await;
    assert_eq!(status(revoked.token.clone()).await, 200);
    let path = format!("/api/v1/tokens/{}", revoked.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, StatusCode::OK);
    assert_eq!(status(revoked.token).await, 401, "it is revoked");
}

#[tokio::test]
async fn a_worker_gets_its_own_work_and_nothing_else() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let worker = caller(&router, worker());
    for path in ["/api/v1/workers/poll", "/dhow.v1.Nodes/Session"] {
        assert_eq!(worker.status(Method::POST, path).await, 200);
    }
    for path in [
        "/api/v1/nodes",
        "/api/v1/internal/anything",
        "/metrics",
        "/api/v1/workers",
    ] {
        assert_eq!(worker.status(Method::GET, path).await, 403, "{path}");
    }
    assert_eq!(worker.status(Method::GET, "/health").await, 200);
    // One that registers has no certificate yet: those routes look at its token themselves.
    let registering = caller(&router, stranger());
    assert_eq!(
        registering.status(Method::POST, "/api/v1/workers/poll").await,
        200
    );
    // Nor does a token help a worker out of its routes.
    let admin = token(&world, r#"{"role":"admin"}"#).await;
    let mut both = caller(&router, self::worker());
    both.headers
        .push(("authorization", format!("Bearer {}", admin.token)));
    assert_eq!(both.status(Method::GET, "/api/v1/nodes").await, 403);
}

#[tokio::test]
async fn internal_routes_are_for_members() {
    let world = World::new().await;
    let path = "/api/v1/internal/anything";
    let with_key = router(&world, Some(CA));
    assert_eq!(caller(&with_key, member()).status(Method::POST, path).await, 200);
    for peer in [Peer::Unix { uid: 0 }, worker()] {
        assert_eq!(
            caller(&with_key, peer).status(Method::POST, path).await,
            403,
            "{peer:?}"
        );
    }
    for peer in [stranger(), local()] {
        assert_eq!(
            caller(&with_key, peer).status(Method::POST, path).await,
            401,
            "{peer:?}"
        );
    }
    let without = router(&world, None);
    let root = caller(&without, Peer::Unix { uid: 0 });
    assert_eq!(root.status(Method::POST, path).await, 200);
}

#[tokio::test]
async fn a_member_speaks_for_others_and_nobody_else_does() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let deploy = |peer: Peer, image: &'static str, headers: Vec<(&'static str, String)>| {
        let caller = Caller {
            router: &router,
            peer,
            headers,
        };
        async move {
            let body = SHOP.replace("nginx:1.27", image);
            caller
                .send(Method::POST, "/api/v1/deployments", &body)
                .await
                .status()
        }
    };
    let named = || {
        vec![
            ("x-dhow-principal", "uid 1000".to_owned()),
            ("x-dhow-author", "alice".to_owned()),
        ]
    };
    let admin = token(&world, r#"{"role":"admin","name":"bob"}"#).await;
    let with_token = [
        named(),
        vec![("authorization", format!("Bearer {}", admin.token))],
    ]
    .concat();
    assert_eq!(deploy(member(), "nginx:1.27", named()).await, 200);
    assert_eq!(deploy(stranger(), "nginx:1.28", with_token).await, 200);
    assert_eq!(deploy(Peer::Unix { uid: 0 }, "nginx:1.27", named()).await, 200);
    assert_eq!(deploy(member(), "nginx:1.28", Vec::new()).await, 200);
    let only_principal = vec![("x-dhow-principal", "token carol".to_owned())];
    assert_eq!(deploy(member(), "nginx:1.27", only_principal).await, 200);
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    let mut authors: Vec<_> = history
        .iter()
        .map(|entry| (entry.revision, entry.author.as_str()))
        .collect();
    authors.sort_unstable();
    let expected = [
        (1, "alice"),
        (2, "token bob"),
        (3, "user root"),
        (4, "node 2"),
        (5, "token carol"),
    ];
    assert_eq!(authors, expected);
    let endless = vec![("x-dhow-principal", "x".repeat(200))];
    assert_eq!(deploy(member(), "nginx:1.27", endless).await, 400);
}

/// A retry that comes through another server is still the same request.
#[tokio::test]
async fn a_forwarded_request_is_known_by_its_first_caller() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let admin = token(&world, r#"{"role":"admin","name":"bob"}"#).await;
    let key = ("idempotency-key", "k-1".to_owned());
    let mut straight = bearer(&router, &admin.token);
    straight.headers.push(key.clone());
    assert_eq!(straight.status(Method::POST, "/api/v1/deployments").await, 200);
    let revision = world.state().deployments.values().next().unwrap().revision;
    let mut passed_on = caller(&router, member());
    passed_on.headers = vec![key, ("x-dhow-principal", format!("token {}", admin.id))];
    let other = SHOP.replace("1.27", "1.28");
    let refused = passed_on.send(Method::POST, "/api/v1/deployments", &other).await;
    assert_eq!(
        refused.status(),
        StatusCode::CONFLICT,
        "the key was used for another body"
    );
    assert_eq!(
        world.state().deployments.values().next().unwrap().revision,
        revision
    );
}

/// Two tokens of one name are two callers, and a name says nothing about who somebody is.
#[tokio::test]
async fn a_token_is_known_by_its_id_and_shown_with_its_kind() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    let key = ("idempotency-key", "k-1".to_owned());
    let mut revisions = Vec::new();
    for image in ["nginx:1.27", "nginx:1.28"] {
        let admin = token(&world, r#"{"role":"admin","name":"revert"}"#).await;
        let mut caller = bearer(&router, &admin.token);
        caller.headers.push(key.clone());
        let body = SHOP.replace("nginx:1.27", image);
        let answer = caller.send(Method::POST, "/api/v1/deployments", &body).await;
        assert_eq!(answer.status(), 200, "{image}");
        revisions.push(world.state().deployments.values().next().unwrap().revision.0);
    }
    assert_eq!(revisions, [1, 2]);
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    assert!(history.iter().all(|entry| entry.author == "token revert"));
}

/// A stranger's word about itself never reaches a handler; a worker's proof does, and a server's word.
#[tokio::test]
async fn headers_of_servers_are_taken_off_strangers() {
    let world = World::new().await;
    let echo = any(|headers: axum::http::HeaderMap| async move {
        let own = headers.keys().map(|name| name.as_str().to_owned());
        let mut own: Vec<_> = own.filter(|name| name.starts_with("x-dhow-")).collect();
        own.sort();
        own.join(" ")
    });
    let more = Router::new().route("/api/v1/workers/echo", echo);
    let access = Access::new(&world.api, Some(CA));
    let router = router_with(world.api.clone(), beside(more), access, CancellationToken::new());
    let heard = async |peer: Peer| {
        let mut caller = caller(&router, peer);
        for name in [
            "x-dhow-node",
            "x-dhow-forwarded",
            "x-dhow-principal",
            "x-dhow-anything",
            "x-dhow-internal-token",
        ] {
            caller.headers.push((name, "1".to_owned()));
        }
        let answer = caller.send(Method::POST, "/api/v1/workers/echo", "").await;
        let bytes = axum::body::to_bytes(answer.into_body(), 1_000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    for peer in [stranger(), local(), worker(), Peer::Unix { uid: 0 }] {
        assert_eq!(heard(peer).await, "x-dhow-internal-token", "{peer:?}");
    }
    let all = "x-dhow-anything x-dhow-forwarded x-dhow-internal-token x-dhow-node";
    assert_eq!(heard(member()).await, all);
}

/// Over HTTP every answer of gRPC is a success: nobody leaves the strangers' account by being refused in it.
#[tokio::test]
async fn a_node_that_grpc_refuses_stays_a_stranger() {
    let world = World::new().await;
    let answer = any(|headers: axum::http::HeaderMap| async move {
        let status = headers.get("wanted").cloned();
        let status = status.map(|status| [("grpc-status", status)]);
        (status.unwrap_or([("grpc-status", "0".parse().unwrap())]), "")
    });
    let more = Router::new().route("/dhow.v1.Nodes/Register", answer);
    let access = Access::new(&world.api, Some(CA));
    let router = router_with(world.api.clone(), beside(more), access, CancellationToken::new());
    let limits = LobbyLimits {
        guests: 8,
        per_address: 8,
        per_known: 1,
        callers: usize::MAX,
    };
    // Unauthenticated, denied and unimplemented; then a worker that has joined.
    for (status, guests, told) in [("12", 1, 0), ("16", 1, 1), ("7", 1, 1), ("0", 0, 1)] {
        let lobby = Lobby::new(limits);
        let visit = lobby.enter("10.0.0.9:1".parse().unwrap()).await.unwrap();
        let call = request(Method::POST, "/dhow.v1.Nodes/Register")
            .extension(stranger())
            .extension(visit.clone())
            .header("wanted", status);
        let answer = router.clone().oneshot(call.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.unwrap().status(), 200);
        assert_eq!(lobby.guests(), guests, "{status}");
        assert_eq!(world.api.refused.told(), told, "{status}");
        drop(visit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new().await;
    let router = router(&world, Some(CA));
    for path in ["/api/v1/deployments", "/api/v1/tokens", "/api/v1/nodes/1/labels"] {
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>("version: v1\n")]);
        let body = Body::from_stream(first.chain(futures_util::stream::pending()));
        let call = request(Method::POST, path).header("content-type", media_type(path, ""));
        let answer = router.clone().oneshot(call.body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT, "{path}");
    }
}
