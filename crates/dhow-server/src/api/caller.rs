//! Who makes a write, and how a retry of it is known.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dhow_core::command::RequestId;
use dhow_core::state::Request;

use super::access::Peer;
use super::limits::KEY_CHARS_MAX;
use super::problem::ApiProblem;

pub(super) const KEY_HEADER: &str = "idempotency-key";

/// Names the caller of a request that another server passes on.
pub(super) const PRINCIPAL_HEADER: &str = "x-dhow-principal";

/// Whom an unnamed caller of this host is.
const LOCAL: &str = "local";

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    peer: Option<Peer>,
    key: Option<Arc<str>>,
    /// What the request is, without its body.
    line: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let key = match parts.headers.get(KEY_HEADER) {
            None => None,
            Some(value) => {
                let is_key = |text: &&str| {
                    (1..=KEY_CHARS_MAX).contains(&text.len())
                        && text.bytes().all(|byte| byte.is_ascii_graphic())
                };
                let text = value.to_str().ok().filter(is_key).ok_or_else(|| {
                    ApiProblem::bad_request(format!(
                        "an `Idempotency-Key` has 1 to {KEY_CHARS_MAX} visible ASCII characters"
                    ))
                })?;
                Some(text.into())
            }
        };
        Ok(Self {
            peer: parts.extensions.get::<Peer>().copied(),
            key,
            line: format!("{} {}", parts.method, parts.uri),
        })
    }
}

/// Who makes a request, in one word, for its retries to be known by.
pub(super) fn principal(parts: &Parts) -> Arc<str> {
    match parts.extensions.get::<Peer>() {
        Some(Peer::Unix { uid }) => format!("uid {uid}").into(),
        Some(Peer::Tcp(_) | Peer::Tls { .. }) | None => LOCAL.into(),
    }
}

impl Caller {
    /// Makes a retry of this request with this body safe, where it carries a key.
    pub fn request_id(&self, body: &[u8]) -> Option<RequestId> {
        let key = self.key.clone()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.line.as_bytes());
        hasher.update(&[0]);
        hasher.update(body);
        let principal = match self.peer {
            Some(Peer::Unix { uid }) => format!("uid {uid}").into(),
            Some(Peer::Tcp(_) | Peer::Tls { .. }) | None => LOCAL.into(),
        };
        Some(RequestId {
            request: Request { principal, key },
            body_hash: *hasher.finalize().as_bytes(),
        })
    }

    /// For people: the name of the one who called, where the host knows it.
    pub async fn author(&self) -> Arc<str> {
        let uid = match self.peer {
            Some(Peer::Unix { uid }) => uid,
            Some(Peer::Tcp(_) | Peer::Tls { .. }) | None => return LOCAL.into(),
        };
        // The user database may be slow, or across the network.
        let looked_up = tokio::task::spawn_blocking(move || {
            let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
            user.ok().flatten().map(|user| user.name)
        });
        let name = looked_up.await.ok().flatten();
        name.unwrap_or_else(|| format!("uid {uid}")).into()
    }
}
