//! Credentials that the cluster keeps for its registries. Whoever opens the images hands the source in; it is asked before
//! Docker's configuration file, and at every pull, so that a login and a logout take effect at once.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;

/// Who asks a registry. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

/// Finds the login for a registry; none where the cluster has none, or does not tell this node.
pub type LoginSource = dyn Fn(String) -> BoxFuture<'static, Option<Login>> + Send + Sync;

/// The source, once there is one: images are opened before anybody can be asked. Cheap to clone.
#[derive(Clone, Default)]
pub struct Logins(Arc<OnceLock<Box<LoginSource>>>);

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}

impl Logins {
    /// Asked from now on. A second source is not taken.
    pub fn set(&self, source: Box<LoginSource>) {
        // Only a second one is given back.
        let _ = self.0.set(source);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) async fn find(&self, registry: &str) -> Option<Login> {
        let source = self.0.get()?;
        source(registry.to_owned()).await
    }
}
