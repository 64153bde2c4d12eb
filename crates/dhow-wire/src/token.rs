//! The token with which a worker joins: signed by the cluster, one line of text.
//!
//! The leader issues it, and servers verify it; the worker only carries it and reads from it which cluster and which CA
//! to expect. An unverified token is another type than a verified one, so that nobody can forget to verify. Whether a
//! token is used up is a question to State, by its nonce. Times are parameters. The token is a secret: nothing here
//! prints it.

mod claims;
mod error;
mod verified;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{SigningKey, VerifyingKey};

use crate::signing::{Domain, SIGNATURE_BYTES};

pub use claims::{CaFingerprint, TokenClaims, TokenNonce};
pub use error::{MalformedToken, TokenError};
pub use verified::VerifiedToken;

/// The longest token text that is looked at. Claims with a handful of labels are well below 1 KiB; base64 adds
/// a third.
pub const TOKEN_CHARS_MAX: usize = 4_096;
/// The first byte of a token tells how to read the rest.
const VERSION: u8 = 1;

/// A token as it travels. What it says is not proven yet.
#[derive(Clone)]
pub struct WorkerBootstrapToken {
    claims: TokenClaims,
    /// Version, signature and claims, as they were received.
    bytes: Vec<u8>,
}

impl WorkerBootstrapToken {
    /// Makes a token of these claims.
    pub fn issue(key: &SigningKey, claims: TokenClaims) -> Result<Self, TokenError> {
        claims.check()?;
        let body = claims.to_bytes()?;
        let signature = Domain::WorkerBootstrapToken.sign(key, &[&[VERSION], &body]);
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&signature);
        bytes.extend_from_slice(&body);
        let token = Self { claims, bytes };
        if token.reveal().len() > TOKEN_CHARS_MAX {
            return Err(MalformedToken::TooLong.into());
        }
        Ok(token)
    }

    /// Reads the text; blanks and a line end around it are those of the file that it came from.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(MalformedToken::Empty.into());
        }
        if text.len() > TOKEN_CHARS_MAX {
            return Err(MalformedToken::TooLong.into());
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| MalformedToken::NotBase64)?;
        let (version, rest) = bytes.split_first().ok_or(MalformedToken::Truncated)?;
        if *version != VERSION {
            return Err(MalformedToken::OtherVersion { found: *version }.into());
        }
        let body = rest.get(SIGNATURE_BYTES..).ok_or(MalformedToken::Truncated)?;
        let claims = TokenClaims::from_bytes(body)?;
        Ok(Self { claims, bytes })
    }

    /// The one line that travels. Whoever has it can join: it goes to its file or its peer and nowhere else.
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.bytes)
    }

    /// The cluster that the token names: what a worker, which trusts the file it was given, expects to hear.
    pub fn cluster_id(&self) -> &str {
        &self.claims.cluster_id
    }

    /// What the token is counted and listed by. It proves nothing.
    pub fn nonce(&self) -> TokenNonce {
        self.claims.nonce
    }

    /// The CA that the token names: what a worker pins before it says anything.
    pub fn ca_fingerprint(&self) -> CaFingerprint {
        self.claims.ca_fingerprint
    }

    /// Proves the token: of this cluster, signed with its key, not expired. The cluster comes first, because
    /// another cluster's token is signed with another key too, and "bad signature" would mislead its owner.
    pub fn verify(
        self,
        key: &VerifyingKey,
        cluster_id: &str,
        now_unix_secs: i64,
    ) -> Result<VerifiedToken, TokenError> {
        if self.claims.cluster_id != cluster_id {
            return Err(TokenError::AnotherCluster {
                of_token: self.claims.cluster_id,
                own: cluster_id.into(),
            });
        }
        let malformed = || TokenError::from(MalformedToken::Truncated);
        let (signature, body) = self
            .bytes
            .get(1..)
            .and_then(|rest| rest.split_first_chunk::<SIGNATURE_BYTES>())
            .ok_or_else(malformed)?;
        if !Domain::WorkerBootstrapToken.verifies(key, &[&[VERSION], body], signature) {
            return Err(TokenError::BadSignature);
        }
        if now_unix_secs >= self.claims.expires_unix_secs {
            return Err(TokenError::Expired {
                ago_secs: now_unix_secs.abs_diff(self.claims.expires_unix_secs),
            });
        }
        Ok(VerifiedToken::new(self.claims))
    }
}

impl fmt::Debug for WorkerBootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBootstrapToken")
            .field("cluster_id", &self.claims.cluster_id)
            .field("expires_unix_secs", &self.claims.expires_unix_secs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
