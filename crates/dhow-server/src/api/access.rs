//! Who may call. A Unix socket is guarded by its mode. Over TCP, on loopback as anywhere, a certificate of the cluster
//! says who calls, and everybody else brings a token; nobody is believed for where they come from, and nothing that a
//! stranger writes into a header says anything about them.

mod browser;
mod principal;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use dhow_core::state::ApiRole;
use dhow_wire::token::CaFingerprint;
use dhow_wire::{AccessToken, ProblemCode};
use hyper::body::Body as _;

use super::barrier::Barrier;
use super::body::Until;
use super::context::Api;
use super::problem::ApiProblem;
use crate::net::identity::{Identity, Peer};
use crate::net::refused_log::RefusedLog;
use crate::plane::runtime::{Event, EventLogSender};
use crate::plane::services::ServiceManager;

pub(super) use browser::check_site;
pub use principal::{AUTHOR_HEADER, PRINCIPAL_HEADER, Principal};

/// Asked by load balancers and other servers before they know anybody.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// What servers ask each other.
const INTERNAL: &str = "/api/v1/internal/";

/// What workers ask. These check by themselves who calls: by the certificate, or by the token in the request.
const OF_WORKERS: [&str; 2] = ["/api/v1/workers/", "/dhow.v1.Nodes/"];

/// A read, though a file comes with it.
const PLAN: &str = "/api/v1/plan";

/// Everything that the cluster keeps, values of environments in clear among it.
const BACKUP: &str = "/api/v1/cluster/backup";

/// Headers that servers write for each other; of anybody else none is heard.
const OWN_HEADERS: &str = "x-dhow-";

/// The one that is shown instead of taken on trust: what proves a worker that cannot do gRPC.
const WORKER_TOKEN_HEADER: &str = "x-dhow-internal-token";

/// For so long a server that hears of no leader lets tokens read what it has: long enough to look at a cluster that has
/// just lost its majority, and no longer, because it hears of no revocation. The socket stays open.
const ALONE_MS_MAX: u64 = 5 * 60 * 1_000;

/// Decides who is let in.
#[derive(Clone)]
pub struct Access {
    manager: ServiceManager,
    /// Of the cluster's CA, where there is a cluster key.
    ca: Option<CaFingerprint>,
    barrier: Barrier,
    event_log: EventLogSender,
    refused: RefusedLog,
}

impl Access {
    pub fn new(api: &Api, ca: Option<CaFingerprint>) -> Self {
        let manager = api.manager.clone();
        let barrier = Barrier::new(api);
        Self {
            manager,
            ca,
            barrier,
            event_log: api.event_log.clone(),
            refused: api.refused.clone(),
        }
    }

    /// Something was done that stands in no entry of the log.
    pub(super) async fn tell(&self, deed: Event, principal: &Principal) {
        let author = Some(principal.recorded().await);
        self.event_log.note(Event { author, ..deed });
    }

    /// Notes that a caller was refused for the credential that it showed, or for showing none.
    pub(super) fn tell_refused(&self, peer: Option<Peer>, reason: &str) {
        let addr = match peer {
            Some(Peer::Tcp(addr) | Peer::Tls { addr, .. }) => addr,
            // Users of the socket are known by the kernel.
            Some(Peer::Unix { .. }) | None => return,
        };
        self.refused.tell(addr.ip(), reason);
    }

    /// The answer, which ends with the token that it is given to: a stream outlives no right to it.
    pub(super) fn while_good(&self, principal: &Principal, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() || !matches!(principal, Principal::Token { .. }) {
            return response;
        }
        let ended = Box::pin(right_ended(self.manager.clone(), principal.clone()));
        response.map(|inner| Body::new(Until { inner, ended }))
    }

    pub(super) fn ca(&self) -> Option<CaFingerprint> {
        self.ca
    }

    /// The same as [`Self::check`], but never from what may be old: a token that this server does not know may just
    /// have been made, and one that changes or takes away something may just have been revoked.
    pub(super) async fn admit(&self, request: &mut Request) -> Result<Principal, ApiProblem> {
        let checked = self.check(request);
        let is_unsure = match &checked {
            Ok(Principal::Token { .. }) => needs_latest(request) || self.is_left_alone(),
            Ok(_) => is_exec(request.uri().path()),
            Err(_) => self.shows_unknown_token(request),
        };
        if !is_unsure {
            return checked;
        }
        self.barrier.wait().await?;
        match checked {
            Err(_) | Ok(Principal::Token { .. }) => self.check(request),
            Ok(principal) => Ok(principal),
        }
    }

    /// Whether no leader was heard of for so long that tokens may have been revoked without this server hearing of it.
    fn is_left_alone(&self) -> bool {
        let now_ms = self.manager.clock().monotonic_ms();
        self.manager.view().leaderless_ms(now_ms) > ALONE_MS_MAX
    }

    /// Whether it was refused for a token of which this server knows nothing.
    fn shows_unknown_token(&self, request: &Request) -> bool {
        let token = shown(request.headers());
        token.is_some_and(|token| !self.manager.state().api_tokens.contains_key(token.id()))
    }

    /// Lets a request in and says whose it is, or why not. Who speaks for others is decided here alone: the headers
    /// that say so are taken off.
    pub(super) fn check(&self, request: &mut Request) -> Result<Principal, ApiProblem> {
        let principal = self.principal(request);
        let is_member = matches!(
            request.extensions().get::<Peer>(),
            Some(Peer::Tls {
                identity: Some(Identity::Member(_)),
                ..
            })
        );
        let headers = request.headers_mut();
        match is_member {
            true => {
                headers.remove(PRINCIPAL_HEADER);
                headers.remove(AUTHOR_HEADER);
            }
            false => strip(headers),
        }
        principal
    }

    fn principal(&self, request: &Request) -> Result<Principal, ApiProblem> {
        let path = request.uri().path();
        let is_internal = path.starts_with(INTERNAL);
        let is_open = OPEN.contains(&path);
        let is_of_workers = is_of_workers(path);
        browser::check_site(request.headers())?;
        match request.extensions().get::<Peer>() {
            Some(Peer::Unix { .. }) if is_internal && self.ca.is_some() => Err(members_only()),
            Some(Peer::Unix { uid }) => Ok(Principal::User { uid: *uid }),
            Some(Peer::Tls { identity, .. }) => match identity {
                Some(Identity::Member(node)) => Principal::of_member(*node, request.headers()),
                Some(Identity::Worker(node)) if is_of_workers => Ok(Principal::Worker(*node)),
                Some(Identity::Worker(_)) if is_open => Ok(Principal::Unknown),
                Some(Identity::Worker(_)) => Err(forbidden("a worker may only ask for its own work")),
                None if is_open || is_of_workers => Ok(Principal::Unknown),
                None => self.bearer(request, is_internal),
            },
            Some(Peer::Tcp(_)) | None => {
                browser::check(request)?;
                match is_open || is_of_workers {
                    true => Ok(Principal::Unknown),
                    false => self.bearer(request, is_internal),
                }
            }
        }
    }

    fn bearer(&self, request: &Request, is_internal: bool) -> Result<Principal, ApiProblem> {
        let principal = self.token(request.headers())?;
        if is_internal {
            return Err(members_only());
        }
        match principal {
            Principal::Token {
                role: ApiRole::Read, ..
            } => match refused_to_readers(request) {
                Some(why) => Err(forbidden(why)),
                None => Ok(principal),
            },
            principal => Ok(principal),
        }
    }

    fn token(&self, headers: &HeaderMap) -> Result<Principal, ApiProblem> {
        let refused = |detail: &str| Err(ApiProblem::new(ProblemCode::Unauthorized, detail));
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let Some((scheme, word)) = shown.and_then(|value| value.split_once(' ')) else {
            return refused(
                "no token came with the request: use the Unix socket, or put a token into DHOW_TOKEN (`Authorization: \
                 Bearer …`); `dhow token create` on a server makes one",
            );
        };
        let token = AccessToken::parse(word).ok();
        let token = token.filter(|_| scheme.eq_ignore_ascii_case("bearer"));
        let Some(token) = token else {
            return refused("the token is malformed: use the whole word that `dhow token create` printed");
        };
        let state = self.manager.state();
        let known = state.api_tokens.get(token.id());
        let Some(known) = known.filter(|known| token.is_of(&known.hash)) else {
            return refused("this cluster does not know the token: it was revoked, or is another cluster's");
        };
        if known.is_expired(self.manager.clock().wall_unix_ms().div_euclid(1_000)) {
            return refused("the token has expired; `dhow token create` makes a new one");
        }
        Ok(Principal::Token {
            id: token.id().into(),
            name: known.name.clone(),
            role: known.role,
        })
    }
}

/// Resolves when the caller's token was revoked or has expired; never for whoever needs none.
pub(super) async fn right_ended(manager: ServiceManager, principal: Principal) {
    let Principal::Token { id, .. } = principal else {
        return std::future::pending().await;
    };
    let clock = manager.clock();
    let known = manager.state().api_tokens.get(&id).cloned();
    let expires = known.and_then(|token| token.expires_unix_secs);
    let expired = async {
        let Some(end) = expires else {
            return std::future::pending().await;
        };
        let left_ms = end.saturating_mul(1_000).saturating_sub(clock.wall_unix_ms());
        let left_ms = u64::try_from(left_ms).unwrap_or(0);
        clock
            .sleep_until_monotonic(clock.monotonic_ms().saturating_add(left_ms))
            .await;
    };
    let mut states = manager.view().states();
    // Where the states end, so does the server.
    let revoked = states.wait_for(|state| !state.api_tokens.contains_key(&id));
    tokio::select! {
        _ = revoked => {}
        () = expired => {}
    }
}

/// The token of a request, where it has one that is well formed.
fn shown(headers: &HeaderMap) -> Option<AccessToken> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, word) = value.split_once(' ')?;
    let token = AccessToken::parse(word).ok();
    token.filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

/// What runs a command in a replica does not go through the log, where a state that is old would be found out.
/// Whether a token must be good at this very moment: for all that changes something, runs something or hands out
/// everything.
fn needs_latest(request: &Request) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    !is_read || is_exec(path) || path == BACKUP
}

fn is_exec(path: &str) -> bool {
    path.starts_with("/api/v1/deployments/") && path.ends_with("/exec")
}

/// Why a token that may only read does not get this, where it does not.
fn refused_to_readers(request: &Request) -> Option<&'static str> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if path == BACKUP {
        return Some(
            "a backup holds everything, values of environments among it: it needs a token that `dhow token create \
             --role admin` made",
        );
    }
    let changes = "this token may only read; a change needs one that `dhow token create --role admin` made";
    let is_plan = *request.method() == Method::POST && path == PLAN;
    (!is_read && !is_plan).then_some(changes)
}

fn strip(headers: &mut HeaderMap) {
    let own = headers.keys().filter(|name| {
        let name = name.as_str();
        name.starts_with(OWN_HEADERS) && name != WORKER_TOKEN_HEADER
    });
    let own: Vec<_> = own.cloned().collect();
    for name in own {
        headers.remove(name);
    }
}

/// Routes that look by themselves who calls.
pub(super) fn is_of_workers(path: &str) -> bool {
    OF_WORKERS.iter().any(|prefix| path.starts_with(prefix))
}

fn forbidden(detail: &str) -> ApiProblem {
    ApiProblem::new(ProblemCode::Forbidden, detail)
}

fn members_only() -> ApiProblem {
    forbidden("only servers of the cluster may ask this, with their certificates")
}
