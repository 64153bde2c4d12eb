//! Gives the node's balancer what it shows to those of other nodes, and the next one in time. Its key is its own: it is made
//! here, and kept nowhere but in the balancer's folder.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::Balancer;
use dhow_agent::proxy::MeshIdentity;
use dhow_agent::session::grpc::Errand;
use dhow_server::clock::Clock;
use dhow_server::net::keys::{
    NodeTls, PROXY_CERT_RENEWED, ProxyCert, WORKER_CERT_LIFETIME, WorkerIdentity, WorkerKey,
};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether another one is due. Wall time may jump, so that one long sleep would not do.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long a worker's proxy has one before it is given the next: half of its life. Servers may be away for the other half.
const WORKER_PROXY_RENEWED: Duration = Duration::from_secs(WORKER_CERT_LIFETIME.as_secs() / 2);

/// The task of a server's daemon that keeps its balancer's certificate fresh.
pub struct ProxyIdentity {
    pub tls: NodeTls,
    pub balancer: Arc<dyn Balancer>,
    pub clock: Arc<dyn Clock>,
}

impl ProxyIdentity {
    /// Gives one at once, and another where a third of its life is over or the clock has gone back.
    pub async fn keep(self, cancel: CancellationToken) {
        let mut made_unix_secs = None;
        loop {
            let now_unix_secs = now_unix_secs(self.clock.as_ref());
            if is_due(made_unix_secs, now_unix_secs, PROXY_CERT_RENEWED) {
                match self.tls.proxy_cert(now_unix_secs) {
                    Ok(cert) => {
                        self.balancer.identify(identity(&cert)).await;
                        made_unix_secs = Some(now_unix_secs);
                    }
                    Err(error) => failed(&error.to_string()),
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = cancel.cancelled() => return,
            }
        }
    }
}

/// The same for a worker, whose servers sign the certificate of its balancer.
pub struct WorkerProxyIdentity {
    pub identity: Arc<WorkerIdentity>,
    pub errand: Errand,
    pub balancer: Arc<dyn Balancer>,
    pub clock: Arc<dyn Clock>,
}

impl WorkerProxyIdentity {
    /// Asks at once. The balancer has what an earlier daemon gave it until there is an answer.
    pub async fn keep(self) -> Infallible {
        let mut made_unix_secs = None;
        loop {
            let now_unix_secs = now_unix_secs(self.clock.as_ref());
            if is_due(made_unix_secs, now_unix_secs, WORKER_PROXY_RENEWED) {
                match self.ask().await {
                    Ok(cert) => {
                        self.balancer.identify(identity(&cert)).await;
                        made_unix_secs = Some(now_unix_secs);
                    }
                    Err(why) => failed(&why),
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn ask(&self) -> Result<ProxyCert, String> {
        let key = WorkerKey::generate().map_err(|error| error.to_string())?;
        let csr_pem = key.csr_pem().map_err(|error| error.to_string())?;
        let leaf_pem = self.errand.proxy_certificate(&csr_pem).await;
        let leaf_pem = leaf_pem.map_err(|error| error.to_string())?;
        let cert = self.identity.proxy_cert(&key, &leaf_pem);
        cert.map_err(|error| error.to_string())
    }
}

fn failed(why: &str) {
    tracing::error!(
        why,
        "the balancer has no new certificate for other nodes; trying again"
    );
}

fn now_unix_secs(clock: &dyn Clock) -> i64 {
    clock.wall_unix_ms().div_euclid(1_000)
}

fn is_due(made_unix_secs: Option<i64>, now_unix_secs: i64, after: Duration) -> bool {
    let after_secs = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
    made_unix_secs.is_none_or(|made| !(made..made.saturating_add(after_secs)).contains(&now_unix_secs))
}

fn identity(cert: &ProxyCert) -> MeshIdentity {
    MeshIdentity {
        key_pem: cert.key_pem.to_string(),
        chain_pem: cert.chain_pem.clone(),
        anchors_pem: cert.anchors_pem.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_one_is_due_in_time_and_where_the_clock_went_back() {
        let after = Duration::from_secs(100);
        assert!(is_due(None, 1_000, after));
        assert!(!is_due(Some(1_000), 1_099, after));
        assert!(is_due(Some(1_000), 1_100, after));
        assert!(is_due(Some(1_000), 999, after));
    }
}
