//! Who makes a write, and how a retry of it is known.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dhow_core::command::RequestId;
use dhow_core::state::Request;

use super::access::Principal;
use super::limits::KEY_CHARS_MAX;
use super::problem::ApiProblem;

pub(super) const KEY_HEADER: &str = "idempotency-key";

/// Begins the key of a request that came without. A caller's own has no such character.
const DRAWN_KEY: &str = " ";

/// The principal of a write, and its idempotency key. Handlers that write take it as an extractor.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    principal: Principal,
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
            principal: principal(parts),
            key,
            line: format!("{} {}", parts.method, parts.uri),
        })
    }
}

impl Caller {
    /// Names the caller in the log, and makes a retry of this request with this body safe where it carries a key: one
    /// that carries none gets one that nobody else has.
    pub fn request_id(&self, body: &[u8]) -> Option<RequestId> {
        let drawn = || format!("{DRAWN_KEY}{:032x}", rand::random::<u128>()).into();
        let key = self.key.clone().unwrap_or_else(drawn);
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.line.as_bytes());
        hasher.update(&[0]);
        hasher.update(body);
        let principal = self.principal.text();
        Some(RequestId {
            request: Request { principal, key },
            body_hash: *hasher.finalize().as_bytes(),
        })
    }

    /// For people: the name of the one who called, where the host knows it.
    pub async fn author(&self) -> Arc<str> {
        self.principal.author().await
    }
}

/// What stands before every route has said who calls.
pub(super) fn principal(parts: &Parts) -> Principal {
    let found = parts.extensions.get::<Principal>();
    found.cloned().unwrap_or(Principal::Unknown)
}
