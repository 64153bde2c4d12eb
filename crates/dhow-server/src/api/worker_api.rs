//! What a worker answers: the door to its replicas for servers of its cluster, and on its own socket how it is and
//! which images it has.
//!
//! Everything else is asked of a server: a worker knows only its own part, and its certificate lets it do nothing for
//! others. Served by the worker's daemon; it must never answer a caller whose certificate is no server's.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dhow_core::ids::NodeId;
use dhow_wire::ProblemCode;
use dhow_wire::api::HealthDocument;
use tokio_util::sync::CancellationToken;

use super::access::check_site;
use super::body;
use super::internal::{DoorContext, door_routes};
use super::problem::{Answer, ApiProblem};
use super::serve::{Bound, serve_router};
use super::{disk, health, images};
use crate::clock::Clock;
use crate::net::identity::{Identity, Peer};
use crate::net::lobby::Visit;
use crate::net::node_door::NodeDoor;
use crate::net::refused_log::RefusedLog;
use crate::plane::runtime::WriteError;
use crate::plane::storage::Storage;

/// Who gets an answer of a route; declared where the route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    Anybody,
    /// Servers of the cluster, with their certificates.
    Servers,
    /// Users of the worker's socket.
    Users,
    ServersAndUsers,
}

impl Callers {
    /// Why such a caller gets none, where it does not.
    fn refused(self, is_server: bool, is_user: bool) -> Option<&'static str> {
        match self {
            Self::Servers if !is_server => {
                Some("only servers of the cluster may ask this, with their certificates")
            }
            Self::Users if !is_user => Some("a worker's images are for the users of its Unix socket"),
            Self::ServersAndUsers if !is_server && !is_user => Some(
                "a worker answers servers of its cluster, with their certificates, and users of its Unix socket",
            ),
            Self::Anybody | Self::Servers | Self::Users | Self::ServersAndUsers => None,
        }
    }
}

/// How the worker stands with its cluster: what is wrong, where something is.
pub type WorkerStanding = dyn Fn() -> Option<String> + Send + Sync;

/// What a worker's API stands on.
#[derive(Clone)]
pub struct WorkerApi {
    pub node: NodeId,
    pub door: Arc<dyn NodeDoor>,
    pub standing: Arc<WorkerStanding>,
    /// Whether its data directory is still there.
    pub storage: Storage,
    /// Where its servers are, for those who ask the wrong one.
    pub servers: Arc<str>,
    /// Where its ledger is kept: its disk must have room.
    pub data_dir: Option<PathBuf>,
    /// Takes a line for each caller that the worker refuses.
    pub refused: RefusedLog,
}

/// Serves until `cancel`, as the API of a server does.
pub async fn serve_worker(api: WorkerApi, clock: Arc<dyn Clock>, bound: Bound, cancel: CancellationToken) {
    let refused = api.refused.clone();
    let router = router(api, cancel.clone());
    serve_router(router, clock, refused, bound, cancel).await;
}

fn router(api: WorkerApi, end: CancellationToken) -> Router {
    let door = DoorContext {
        door: Arc::clone(&api.door),
        node: api.node,
        end,
    };
    let guarded = |callers| middleware::from_fn_with_state((api.clone(), callers), guard);
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .layer(guarded(Callers::Anybody))
        .fallback(elsewhere.layer(guarded(Callers::ServersAndUsers)))
        .with_state(api.clone())
        .merge(
            door_routes()
                .with_state(door.clone())
                .layer(guarded(Callers::Servers)),
        )
        .merge(image_routes().with_state(door).layer(guarded(Callers::Users)))
}

/// The process answers.
async fn health() -> Json<HealthDocument> {
    Json(HealthDocument::ok())
}

/// The worker's own images: it may have no registry to pull from.
fn image_routes() -> Router<DoorContext> {
    Router::new()
        .route("/api/v1/images", get(images::list).delete(images::remove))
        .route("/api/v1/images/pull", post(images::pull))
        .route("/api/v1/images/import", post(images::import))
        .route("/api/v1/images/prune", post(images::prune))
}

/// A worker is ready where it has a session with a server, and no replica here waits for a server to confirm it.
async fn ready(State(api): State<WorkerApi>) -> Answer<Json<HealthDocument>> {
    if api.storage.is_gone() {
        return Err(WriteError::StorageGone.into());
    }
    disk::check(api.data_dir.as_ref()).await?;
    let waiting = health::waiting(&*api.door, api.node).await;
    match (api.standing)()
        .into_iter()
        .chain(waiting)
        .reduce(|a, b| format!("{a}; {b}"))
    {
        None => Ok(Json(HealthDocument::ok())),
        Some(why) => Err(ApiProblem::new(ProblemCode::NoLeader, why)),
    }
}

async fn elsewhere(State(api): State<WorkerApi>) -> ApiProblem {
    let mut detail = format!(
        "node {} is a worker, which knows only its own part: ask a server of the cluster with --host or DHOW_HOST; \
         workers connect to {}",
        api.node, api.servers
    );
    if let Some(waiting) = health::waiting(&*api.door, api.node).await {
        detail = format!("{detail}. On this one: {waiting}");
    }
    ApiProblem::new(ProblemCode::WrongMode, detail)
}

async fn guard(State((api, callers)): State<(WorkerApi, Callers)>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    if let Err(problem) = check_site(request.headers()).and_then(|()| body::check_kind(&request)) {
        return problem.into_response();
    }
    let (is_server, is_user) = match peer {
        Some(Peer::Tls { identity, .. }) => (matches!(identity, Some(Identity::Member(_))), false),
        Some(Peer::Unix { .. }) => (false, true),
        Some(Peer::Tcp(_) | Peer::OwnAgent(_)) | None => (false, false),
    };
    let Some(refused) = callers.refused(is_server, is_user) else {
        if let (true, Some(visit)) = (is_user, request.extensions().get::<Visit>()) {
            visit.prove(Some(&"user".into()));
        }
        let request = match is_server {
            true => request,
            false => body::in_time(request),
        };
        return next.run(request).await;
    };
    if let Some(Peer::Tls { addr, .. } | Peer::Tcp(addr)) = peer {
        api.refused.tell(addr.ip(), refused);
    }
    ApiProblem::new(ProblemCode::Forbidden, refused).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Method;
    use tower::ServiceExt;

    use super::*;
    use crate::net::node_door::ScriptedDoor;

    fn worker(standing: Option<&'static str>) -> WorkerApi {
        WorkerApi {
            node: NodeId(7),
            door: Arc::new(ScriptedDoor::default()),
            standing: Arc::new(move || standing.map(str::to_owned)),
            storage: Storage::default(),
            servers: "10.0.0.1:3670".into(),
            data_dir: None,
            refused: RefusedLog::new(None, Arc::new(crate::clock::SystemClock::new())),
        }
    }

    async fn status(peer: Option<Peer>, method: Method, path: &str, standing: Option<&'static str>) -> u16 {
        let api = worker(standing);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let answered = router(api, CancellationToken::new()).oneshot(request).await;
        answered.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_worker_without_its_directory_says_that_and_not_that_nobody_leads() {
        let api = worker(None);
        api.storage.set_gone(true);
        let mut request = Request::builder().uri("/ready").body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::Unix { uid: 0 });
        let answered = router(api, CancellationToken::new())
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(answered.status(), 503);
        let body = axum::body::to_bytes(answered.into_body(), 10_000).await.unwrap();
        let problem: dhow_wire::Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, "storage_gone");
    }

    #[tokio::test]
    async fn each_caller_gets_what_is_for_it() {
        let addr = ([127, 0, 0, 1], 1).into();
        let tls = |identity| Some(Peer::Tls { addr, identity });
        let server = tls(Some(Identity::Member(NodeId(1))));
        let unix = Some(Peer::Unix { uid: 0 });
        let others = [
            tls(None),
            tls(Some(Identity::Worker(NodeId(8)))),
            Some(Peer::Tcp(addr)),
            None,
        ];
        const PULLS: &str = "/api/v1/internal/door/pulls";
        const IMAGES: &str = "/api/v1/images";
        assert_eq!(status(server, Method::GET, PULLS, None).await, 200);
        assert_eq!(status(unix, Method::GET, IMAGES, None).await, 200);
        for other in others {
            assert_eq!(status(other, Method::GET, PULLS, None).await, 403);
            assert_eq!(status(other, Method::GET, IMAGES, None).await, 403);
            assert_eq!(status(other, Method::GET, "/api/v1/nodes", None).await, 403);
            assert_eq!(status(other, Method::GET, "/health", None).await, 200);
            assert_eq!(status(other, Method::GET, "/ready", None).await, 200);
        }
        assert_eq!(status(unix, Method::GET, PULLS, None).await, 403);
        assert_eq!(status(server, Method::GET, IMAGES, None).await, 403);
        assert_eq!(status(unix, Method::GET, "/ready", None).await, 200);
        assert_eq!(status(unix, Method::GET, "/ready", Some("no server")).await, 503);
        assert_eq!(status(unix, Method::GET, "/health", Some("no server")).await, 200);
        assert_eq!(status(unix, Method::POST, "/api/v1/deployments", None).await, 409);
    }
}
