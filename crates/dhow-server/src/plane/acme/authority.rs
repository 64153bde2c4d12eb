//! Who certificates are ordered from, as the task sees it.

use std::fmt;

use dhow_core::acme::Setback;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// An ACME server.
pub trait Authority: Send + Sync {
    /// The URL that it is known by; an account belongs to one of them.
    fn directory(&self) -> &str;

    /// Makes an account with a new key.
    fn register(&self) -> BoxFuture<'static, Result<KeptAccount, OrderError>>;

    /// Orders a certificate for a host; gives the chain and its key as PEM.
    fn order(
        &self,
        account: KeptAccount,
        host: String,
    ) -> BoxFuture<'static, Result<Zeroizing<String>, OrderError>>;
}

/// The cluster's account, as its secret keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAccount {
    pub directory: String,
    pub thumbprint: String,
    /// With the account's key.
    pub credentials: String,
}

/// Nothing of a key is shown.
impl fmt::Debug for KeptAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptAccount")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Why there is no certificate, or no account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct OrderError {
    /// What the server said, or why it was not reached.
    pub words: String,
    pub setback: Setback,
    /// The server does not know the account.
    pub is_account_gone: bool,
}

impl OrderError {
    pub fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            setback: Setback::Failed,
            is_account_gone: false,
        }
    }
}
