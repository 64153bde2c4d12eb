//! What the proxy of this node has counted, for whoever looks.

use std::sync::Arc;
use std::time::Duration;

use dhow_driver::driver::error_chain;

use crate::proxy::{ProxyClient, ProxyError};

/// Whoever looks at figures waits no longer for a proxy that does not answer.
const WAIT: Duration = Duration::from_secs(2);

/// What a proxy that runs has counted: nothing where none runs, and none where it does not say.
pub async fn counted<T, F>(
    client: impl Future<Output = Option<Arc<ProxyClient>>>,
    ask: impl FnOnce(Arc<ProxyClient>) -> F,
) -> Option<T>
where
    T: Default + Send + 'static,
    F: Future<Output = Result<T, ProxyError>> + Send + 'static,
{
    let asking = async {
        let Some(client) = client.await else {
            return Some(T::default());
        };
        // In a task of its own: a proxy that is being started is not given up because nobody waits for figures.
        match tokio::spawn(ask(client)).await.ok()? {
            Ok(figures) => Some(figures),
            Err(error) => {
                let why = error_chain(&error);
                tracing::debug!(why, "the balancer does not say what has passed");
                None
            }
        }
    };
    let asked = tokio::time::timeout(WAIT, asking).await;
    asked.ok().flatten()
}
