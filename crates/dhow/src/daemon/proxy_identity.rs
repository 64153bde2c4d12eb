//! Gives the node's balancer what it shows to those of other nodes, and the next one in time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::Balancer;
use dhow_agent::proxy::MeshIdentity;
use dhow_server::clock::Clock;
use dhow_server::net::keys::{
    ClusterKey, IssueError, NodeTls, PROXY_CERT_RENEWED, ProxyCert, WorkerCas, WorkerIdentity,
};
use dhow_server::plane::runtime::RuntimeView;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether another one is due. Wall time may jump, so that one long sleep would not do.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The task of a server's daemon that keeps its balancer's certificate fresh.
pub struct ProxyIdentity {
    pub tls: NodeTls,
    pub key: ClusterKey,
    pub view: RuntimeView,
    pub balancer: Arc<dyn Balancer>,
    pub clock: Arc<dyn Clock>,
}

impl ProxyIdentity {
    /// Gives one at once, and another where a third of its life is over, the clock has gone back, or workers of other
    /// CAs are to be believed.
    pub async fn keep(self, cancel: CancellationToken) {
        let mut given: Option<(i64, String)> = None;
        loop {
            let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
            match self.workers(now_unix_secs) {
                Ok(workers) if is_due(given.as_ref(), now_unix_secs, &workers) => {
                    match self.tls.proxy_cert(&workers, now_unix_secs) {
                        Ok(cert) => {
                            self.balancer.identify(identity(&cert)).await;
                            given = Some((now_unix_secs, workers));
                        }
                        Err(error) => failed(&error),
                    }
                }
                Ok(_) => {}
                Err(error) => failed(&error),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = cancel.cancelled() => return,
            }
        }
    }

    /// The CAs of the cluster's workers, as PEM.
    fn workers(&self, now_unix_secs: i64) -> Result<String, IssueError> {
        let known = self.view.state().worker_cas.clone();
        let older = known.older(now_unix_secs);
        let cas = WorkerCas::new(&self.key, Arc::clone(self.tls.ca()), known.newest(), &older)?;
        Ok(cas.pem())
    }
}

fn failed(error: &IssueError) {
    tracing::error!(%error, "the balancer's certificate for other nodes cannot be made");
}

fn is_due(given: Option<&(i64, String)>, now_unix_secs: i64, workers: &str) -> bool {
    let life_secs = i64::try_from(PROXY_CERT_RENEWED.as_secs()).unwrap_or(i64::MAX);
    given.is_none_or(|(made, known)| {
        !(*made..made.saturating_add(life_secs)).contains(&now_unix_secs) || known != workers
    })
}

/// The same for a worker, whose balancer shows the worker's own certificate.
pub async fn keep_worker(identity_of: Arc<WorkerIdentity>, balancer: Arc<dyn Balancer>) -> Infallible {
    let mut given = None;
    loop {
        let fresh = identity(&identity_of.proxy_cert());
        if given.as_ref() != Some(&fresh) {
            balancer.identify(fresh.clone()).await;
            given = Some(fresh);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
    fn another_one_is_due_in_time_and_for_other_workers() {
        let given = (1_000, "ca".to_owned());
        let life_secs = i64::try_from(PROXY_CERT_RENEWED.as_secs()).unwrap();
        assert!(is_due(None, 1_000, "ca"));
        assert!(!is_due(Some(&given), 1_000 + life_secs - 1, "ca"));
        assert!(is_due(Some(&given), 1_000 + life_secs, "ca"));
        assert!(is_due(Some(&given), 999, "ca"));
        assert!(is_due(Some(&given), 1_000, "another"));
    }
}
