//! The credentials of registries, asked of the control plane while an image is pulled. They stay in memory for that pull.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::registries;
use dhow_driver::image::{Login, LoginSource};
use dhow_wire::api::RegistryLogin;

use crate::session::Session;

/// A pull waits no longer for a control plane that cannot be reached: Docker's file is the fallback.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub fn source(session: Arc<dyn Session>) -> Box<LoginSource> {
    Box::new(move |registry| {
        let session = Arc::clone(&session);
        Box::pin(async move { find(session.as_ref(), &registry).await })
    })
}

async fn find(session: &dyn Session, registry: &str) -> Option<Login> {
    let name = [registries::secret_of(registry)];
    let [secret] = &name;
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, session.secrets(&name)).await;
    let values = match asked {
        Ok(Ok(values)) => values,
        // Most registries have none, and then a server says so.
        Ok(Err(error)) => {
            tracing::debug!(registry, %error, "the cluster gives no credentials for a registry");
            return None;
        }
        Err(_) => {
            tracing::warn!(
                registry,
                "no server says in time whether there are credentials for a registry"
            );
            return None;
        }
    };
    let login: RegistryLogin = serde_json::from_str(values.get(secret)?).ok()?;
    Some(Login {
        user: login.user,
        password: login.password,
    })
}
