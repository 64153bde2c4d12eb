//! Calls of webhooks: who knows a source's secret may have it looked at now. Nothing of what the caller says is believed or
//! kept: a call only causes a look.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::hmac;
use tokio::sync::Notify;

use crate::net::bucket::Bucket;

/// Calls of all webhooks together, good ones and others.
const CALLS_PER_SECOND: u32 = 5;
const CALLS_AT_ONCE: u32 = 20;

/// Why a call of a webhook changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRefused {
    #[error("a webhook has `X-Hub-Signature-256: sha256=…` over its body, or `X-Gitlab-Token`")]
    NoProof,
    #[error("there is no such webhook, or it has another secret")]
    WrongProof,
    #[error("webhooks are called too often")]
    TooOften,
}

/// What a caller shows.
#[derive(Clone, Copy, Debug)]
pub enum HookProof<'a> {
    /// HMAC-SHA256 over the body, as hexadecimal digits.
    Signature(&'a [u8]),
    Token(&'a [u8]),
}

impl HookProof<'_> {
    /// Whether it proves to know the secret. It takes as long for a wrong proof as for a right one.
    pub fn is_of(self, secret: &[u8], body: &[u8]) -> bool {
        // A line end belongs to the file that the secret was set from.
        let secret = secret.strip_suffix(b"\n").unwrap_or(secret);
        if secret.is_empty() {
            return false;
        }
        match self {
            Self::Signature(signature) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::verify(&key, body, signature).is_ok()
            }
            // Hashes are compared in constant time, and say nothing about the length of what was hashed.
            Self::Token(token) => blake3::hash(token) == blake3::hash(secret),
        }
    }
}

/// The sources that somebody has asked to be looked at.
#[derive(Debug)]
pub(super) struct Hooks {
    called: Mutex<(BTreeSet<Arc<str>>, Bucket)>,
    bell: Notify,
}

impl Default for Hooks {
    fn default() -> Self {
        let bucket = Bucket::new(CALLS_PER_SECOND, CALLS_AT_ONCE, 0);
        Self {
            called: Mutex::new((BTreeSet::new(), bucket)),
            bell: Notify::new(),
        }
    }
}

impl Hooks {
    fn lock(&self) -> MutexGuard<'_, (BTreeSet<Arc<str>>, Bucket)> {
        // A set and a count, each whole at any time.
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a caller through, before anything of the call is looked at.
    pub fn admit(&self, now_ms: u64) -> Result<(), HookRefused> {
        match self.lock().1.take(now_ms) {
            true => Ok(()),
            false => Err(HookRefused::TooOften),
        }
    }

    /// Notes a good call; a second one before the look is the same. There are no more of them than sources.
    pub fn call(&self, name: Arc<str>) {
        self.lock().0.insert(name);
        self.bell.notify_one();
    }

    /// Waits for a call.
    pub async fn called(&self) {
        self.bell.notified().await;
    }

    pub fn take(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.lock().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_is_let_in() {
        let body = b"{}";
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"s3cret");
        let tag = hmac::sign(&key, body);
        let signature = HookProof::Signature(tag.as_ref());
        assert!(signature.is_of(b"s3cret", body));
        assert!(signature.is_of(b"s3cret\n", body));
        assert!(!signature.is_of(b"s3cret", b"{ }"));
        assert!(!signature.is_of(b"other", body));
        assert!(!HookProof::Signature(b"").is_of(b"s3cret", body));
        assert!(HookProof::Token(b"s3cret").is_of(b"s3cret\n", body));
        assert!(!HookProof::Token(b"s3cre").is_of(b"s3cret", body));
        // A secret that is empty is no secret.
        let empty = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b""), body);
        assert!(!HookProof::Signature(empty.as_ref()).is_of(b"\n", body));
        assert!(!HookProof::Token(b"").is_of(b"", body));
    }

    #[tokio::test]
    async fn calls_are_counted_and_come_together() {
        let hooks = Hooks::default();
        let let_in = (0..100).filter(|_| hooks.admit(0).is_ok()).count();
        assert_eq!(let_in, CALLS_AT_ONCE as usize);
        assert_eq!(hooks.admit(0), Err(HookRefused::TooOften));
        assert!(hooks.admit(1_000).is_ok());
        hooks.call("shop".into());
        hooks.call("shop".into());
        hooks.called().await;
        assert_eq!(hooks.take().len(), 1);
        assert!(hooks.take().is_empty());
    }
}
