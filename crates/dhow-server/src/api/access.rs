//! Who may call. A Unix socket is guarded by its mode; on loopback without TLS any program of this host may call, but
//! no web page through its browser. Over TLS a certificate of the cluster says who calls, and everybody else brings a
//! token.

mod browser;
mod principal;

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use dhow_core::state::ApiRole;
use dhow_wire::token::CaFingerprint;
use dhow_wire::{AccessToken, ProblemCode};

use super::barrier::Barrier;
use super::context::Api;
use super::problem::ApiProblem;
use crate::identity::Identity;
use crate::services::ServiceManager;

pub use principal::{AUTHOR_HEADER, PRINCIPAL_HEADER, Principal};

/// Asked by load balancers and other servers before they know anybody.
const HEALTH: &str = "/health";

/// What servers ask each other.
const INTERNAL: &str = "/api/v1/internal/";

/// What workers ask. These check by themselves who calls: by the certificate, or by the token in the request.
const OF_WORKERS: [&str; 2] = ["/api/v1/workers/", "/dhow.v1.Nodes/"];

/// Decides who is let in.
#[derive(Clone)]
pub struct Access {
    manager: ServiceManager,
    /// Of the cluster's CA, where there is a cluster key.
    ca: Option<CaFingerprint>,
    barrier: Barrier,
}

/// Where a request came from. Each one that is served carries it; one without it is treated as from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Unix {
        uid: u32,
    },
    Tcp(SocketAddr),
    /// Over TLS; with an identity where it showed a certificate of this cluster.
    Tls {
        addr: SocketAddr,
        identity: Option<Identity>,
    },
}

impl Access {
    pub fn new(api: &Api, ca: Option<CaFingerprint>) -> Self {
        let manager = api.manager.clone();
        let barrier = Barrier::new(api);
        Self { manager, ca, barrier }
    }

    pub(super) fn ca(&self) -> Option<CaFingerprint> {
        self.ca
    }

    /// The same as [`Self::check`], but never from what may be old: a token that this server does not know may just
    /// have been made, and one with which a command is to run in a replica may just have been revoked.
    pub(super) async fn admit(&self, request: &mut Request) -> Result<Principal, ApiProblem> {
        let checked = self.check(request);
        let is_unsure = match &checked {
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

    /// Whether it was refused for a token of which this server knows nothing.
    fn shows_unknown_token(&self, request: &Request) -> bool {
        let token = shown(request.headers());
        token.is_some_and(|token| !self.manager.state().api_tokens.contains_key(token.id()))
    }

    /// Lets a request in and says whose it is, or why not. Who speaks for others is decided here alone: the headers
    /// that say so are taken off.
    pub(super) fn check(&self, request: &mut Request) -> Result<Principal, ApiProblem> {
        let principal = self.principal(request);
        let headers = request.headers_mut();
        headers.remove(PRINCIPAL_HEADER);
        headers.remove(AUTHOR_HEADER);
        principal
    }

    fn principal(&self, request: &Request) -> Result<Principal, ApiProblem> {
        let path = request.uri().path();
        let is_internal = path.starts_with(INTERNAL);
        let is_of_workers = OF_WORKERS.iter().any(|prefix| path.starts_with(prefix));
        let local = match request.extensions().get::<Peer>() {
            Some(Peer::Unix { uid }) => Principal::User { uid: *uid },
            Some(Peer::Tcp(_)) | None => {
                browser::check(request)?;
                // Without a cluster key everything on loopback is believed, the other servers among it.
                match self.ca {
                    Some(_) => Principal::Local,
                    None => Principal::forwarded(request.headers())?.unwrap_or(Principal::Local),
                }
            }
            Some(Peer::Tls { identity, .. }) => {
                return match identity {
                    Some(Identity::Member(node)) => Principal::of_member(*node, request.headers()),
                    Some(Identity::Worker(node)) if is_of_workers => Ok(Principal::Worker(*node)),
                    Some(Identity::Worker(_)) | None if path == HEALTH => Ok(Principal::Unknown),
                    Some(Identity::Worker(_)) => Err(forbidden("a worker may only ask for its own work")),
                    None if is_of_workers => Ok(Principal::Unknown),
                    None => self.bearer(request, is_internal),
                };
            }
        };
        if is_internal && self.ca.is_some() {
            return Err(members_only());
        }
        Ok(local)
    }

    fn bearer(&self, request: &Request, is_internal: bool) -> Result<Principal, ApiProblem> {
        let principal = self.token(request.headers())?;
        if is_internal {
            return Err(members_only());
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match principal {
            Principal::Token {
                role: ApiRole::Read, ..
            } if !is_read => Err(forbidden(
                "this token may only read; a change needs one that `dhow token create --role admin` made",
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
                "no token came with the request: put one into DHOW_TOKEN; `dhow token create` on a server makes it",
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
            name: known.name.clone(),
            role: known.role,
        })
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
fn is_exec(path: &str) -> bool {
    path.starts_with("/api/v1/deployments/") && path.ends_with("/exec")
}

fn forbidden(detail: &str) -> ApiProblem {
    ApiProblem::new(ProblemCode::Forbidden, detail)
}

fn members_only() -> ApiProblem {
    forbidden("only servers of the cluster may ask this, with their certificates")
}
