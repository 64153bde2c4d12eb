//! Who may call. A Unix socket is guarded by its mode. Over TCP, on loopback as anywhere, a certificate of the cluster
//! says who calls, and everybody else brings a token; nobody is believed for where they come from, and nothing that a
//! stranger writes into a header says anything about them.

mod browser;
mod principal;
mod scope;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use dhow_core::state::ApiRole;
use dhow_wire::token::CaFingerprint;
use dhow_wire::{AccessToken, Problem, ProblemCode};
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
pub(super) use scope::{Reach, Scope};

/// Who may call a route; declared where the route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Load balancers and other servers, which ask before they know anybody.
    Anybody,
    /// What servers ask each other.
    Members,
    /// What nodes ask. These routes look by themselves who calls: by the certificate, or by the token in the request.
    Nodes,
    /// People and their programs. A token that may only read gets what changes nothing.
    Users,
    /// The same for a read that a file comes with.
    Readers,
    /// What happened. Who did what is told to administrators alone.
    Events,
    /// Everything that the cluster keeps, values of environments in clear among it: no token that may only read.
    Admins,
    /// What runs a command in a replica. It does not go through the log, where a state that is old would be found out.
    Commands,
    /// The page for browsers. Whatever is done there goes on to the routes of the API, which look again.
    Pages,
}

impl Rights {
    /// Whether a token must be good at this very moment: for all that changes something, runs something or hands out
    /// what is for administrators alone.
    fn needs_latest(self, request: &Request) -> bool {
        let changes = !is_read(request.method());
        match self {
            Self::Admins | Self::Commands => true,
            Self::Events => changes || request.uri().query().is_some_and(|query| query.contains("audit")),
            Self::Anybody | Self::Members | Self::Nodes | Self::Users | Self::Readers => changes,
            Self::Pages => false,
        }
    }

    /// Why a token that may only read does not get this, where it does not.
    fn refused_to_readers(self, method: &Method) -> Option<&'static str> {
        let changes =
            "this token may only read; a change needs one that `dhow token create --role admin` made";
        match self {
            Self::Admins => Some(
                "a backup holds everything, values of environments among it: it needs a token that `dhow token create \
                 --role admin` made",
            ),
            Self::Readers if *method == Method::POST => None,
            Self::Pages => None,
            Self::Anybody
            | Self::Members
            | Self::Nodes
            | Self::Users
            | Self::Readers
            | Self::Events
            | Self::Commands => (!is_read(method)).then_some(changes),
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Headers that servers write for each other; of anybody else none is heard.
const OWN_HEADERS: &str = "x-dhow-";

/// The one that is shown instead of taken on trust: what proves a worker that cannot do gRPC.
const WORKER_TOKEN_HEADER: &str = "x-dhow-internal-token";

const UNKNOWN_TOKEN: &str = "this cluster does not know the token: it was revoked, or is another cluster's";

const SESSION_ENDED: &str =
    "the session is over: the token that it was opened with was revoked, or has expired";

/// For so long a server that hears of no leader lets tokens read what it has: long enough to look at a cluster that has
/// just lost its majority, and no longer, because it hears of no revocation. The socket stays open.
const ALONE_MS_MAX: u64 = 5 * 60 * 1_000;

/// Goes with a request of somebody who is known by a session of the page: the id of the token that it was opened with.
/// Nothing that comes over a connection has it.
#[derive(Clone, Debug)]
pub(crate) struct OfSession(pub Arc<str>);

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

    /// Before who looks at the page is asked: a name of another site that leads to this host is not answered. Over TLS the
    /// certificate sees to that.
    pub(crate) fn check_page(request: &Request) -> Result<(), Box<Problem>> {
        match request.extensions().get::<Peer>() {
            Some(Peer::Unix { .. } | Peer::Tls { .. }) => Ok(()),
            Some(Peer::Tcp(_) | Peer::OwnAgent(_)) | None => {
                browser::check_host(request).map_err(|problem| problem.0)
            }
        }
    }

    /// Who looks at the page: by the connection or a token, or by the session that was found for it.
    pub(crate) async fn admit_page(&self, request: &mut Request) -> Result<Principal, Box<Problem>> {
        let admitted = self.admit(request, Rights::Pages).await;
        admitted.map_err(|problem| problem.0)
    }

    /// Something was done that stands in no entry of the log.
    pub(super) async fn tell(&self, deed: Event, principal: &Principal) {
        let author = Some(principal.recorded().await);
        self.event_log.note(Event { author, ..deed });
    }

    /// Notes that a caller was refused for the credential that it showed, or for showing none.
    pub(crate) fn tell_refused(&self, peer: Option<Peer>, reason: &str) {
        let addr = match peer {
            Some(Peer::Tcp(addr) | Peer::Tls { addr, .. }) => addr,
            // Users of the socket are known by the kernel.
            Some(Peer::Unix { .. } | Peer::OwnAgent(_)) | None => return,
        };
        self.refused.tell(addr.ip(), reason);
    }

    /// The answer, which ends with the token that it is given to: a stream outlives no right to it.
    pub(crate) fn while_good(&self, principal: &Principal, response: Response) -> Response {
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
    pub(super) async fn admit(&self, request: &mut Request, rights: Rights) -> Result<Principal, ApiProblem> {
        let checked = self.check(request, rights);
        let is_unsure = match &checked {
            Ok(Principal::Token { .. }) => rights.needs_latest(request) || self.is_left_alone(),
            Ok(principal) => rights == Rights::Commands || !self.may_speak_still(principal),
            Err(_) => self.shows_unknown_token(request),
        };
        if !is_unsure {
            return checked;
        }
        self.barrier.wait().await?;
        match checked {
            Err(_) | Ok(Principal::Token { .. }) => self.check(request, rights),
            Ok(principal) if self.may_speak_still(&principal) => Ok(principal),
            Ok(_) => Err(ApiProblem::new(ProblemCode::Unauthorized, UNKNOWN_TOKEN)),
        }
    }

    /// Whether the one that a server speaks for has the token that it was let in with there: a server that was paused
    /// may not have heard that it was revoked.
    fn may_speak_still(&self, principal: &Principal) -> bool {
        let id = principal.forwarded_token();
        id.is_none_or(|id| self.manager.state().api_tokens.contains_key(id))
    }

    /// What the caller may know of, also where a server speaks for it: the token that it showed there says so. One that was
    /// revoked just now may know of nothing.
    pub(super) fn scope(&self, principal: &Principal) -> Result<Scope, ApiProblem> {
        let deployment = match principal {
            Principal::Token { role, .. } => role.deployment().cloned(),
            Principal::Forwarded { .. } => match principal.forwarded_token() {
                Some(id) => match self.manager.state().api_tokens.get(id) {
                    Some(token) => token.role.deployment().cloned(),
                    None => return Err(ApiProblem::new(ProblemCode::Unauthorized, UNKNOWN_TOKEN)),
                },
                None => None,
            },
            Principal::User { .. } | Principal::Member(_) | Principal::Worker(_) | Principal::Unknown => None,
        };
        Ok(deployment.map_or(Scope::Whole, Scope::One))
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
    fn check(&self, request: &mut Request, rights: Rights) -> Result<Principal, ApiProblem> {
        let principal = self.principal(request, rights);
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

    fn principal(&self, request: &Request, rights: Rights) -> Result<Principal, ApiProblem> {
        let is_internal = rights == Rights::Members;
        let is_open = rights == Rights::Anybody;
        let is_of_nodes = rights == Rights::Nodes;
        if let Some(OfSession(id)) = request.extensions().get() {
            return self.of_token(id, rights, request.method());
        }
        // A page is one's own, which looks at the rest by itself.
        if rights != Rights::Pages {
            browser::check_site(request.headers())?;
        }
        match request.extensions().get::<Peer>() {
            Some(Peer::Unix { .. }) if is_internal && self.ca.is_some() => Err(members_only()),
            Some(Peer::Unix { uid }) => Ok(Principal::User { uid: *uid }),
            Some(Peer::Tls { identity, .. }) => match identity {
                Some(Identity::Member(node)) => Principal::of_member(*node, request.headers()),
                Some(Identity::Worker(node)) if is_of_nodes => Ok(Principal::Worker(*node)),
                Some(Identity::Worker(_)) if is_open => Ok(Principal::Unknown),
                Some(Identity::Worker(_)) => Err(forbidden("a worker may only ask for its own work")),
                None if is_open || is_of_nodes => Ok(Principal::Unknown),
                None => self.bearer(request, rights),
            },
            // An agent asks the gateway of its process, and nothing of the API.
            Some(Peer::Tcp(_) | Peer::OwnAgent(_)) | None => {
                if rights != Rights::Pages {
                    browser::check(request)?;
                }
                match is_open || is_of_nodes {
                    true => Ok(Principal::Unknown),
                    false => self.bearer(request, rights),
                }
            }
        }
    }

    fn bearer(&self, request: &Request, rights: Rights) -> Result<Principal, ApiProblem> {
        let principal = self.token(request.headers())?;
        Self::within(principal, rights, request.method())
    }

    /// Whoever opened a session with this token, for as long as it is good.
    fn of_token(&self, id: &Arc<str>, rights: Rights, method: &Method) -> Result<Principal, ApiProblem> {
        let state = self.manager.state();
        let known = state.api_tokens.get(id);
        let known = known.filter(|known| !known.is_expired(self.now_unix_secs()));
        let Some(known) = known else {
            return Err(ApiProblem::new(ProblemCode::Unauthorized, SESSION_ENDED));
        };
        let principal = Principal::Token {
            id: Arc::clone(id),
            name: known.name.clone(),
            role: known.role.clone(),
        };
        Self::within(principal, rights, method)
    }

    fn now_unix_secs(&self) -> i64 {
        self.manager.clock().wall_unix_ms().div_euclid(1_000)
    }

    /// What a token does not allow is refused.
    fn within(principal: Principal, rights: Rights, method: &Method) -> Result<Principal, ApiProblem> {
        if rights == Rights::Members {
            return Err(members_only());
        }
        match principal {
            Principal::Token {
                role: ApiRole::Read, ..
            } => match rights.refused_to_readers(method) {
                Some(why) => Err(forbidden(why)),
                None => Ok(principal),
            },
            // What it gets of the API is looked at where the route is known.
            Principal::Token {
                role: ApiRole::Deploy(_),
                ..
            } if rights == Rights::Pages => Err(forbidden(
                "the page shows the whole cluster, and this token is for one deployment",
            )),
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
            return refused(UNKNOWN_TOKEN);
        };
        if known.is_expired(self.now_unix_secs()) {
            return refused("the token has expired; `dhow token create` makes a new one");
        }
        Ok(Principal::Token {
            id: token.id().into(),
            name: known.name.clone(),
            role: known.role.clone(),
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

fn forbidden(detail: &str) -> ApiProblem {
    ApiProblem::new(ProblemCode::Forbidden, detail)
}

fn members_only() -> ApiProblem {
    forbidden("only servers of the cluster may ask this, with their certificates")
}
