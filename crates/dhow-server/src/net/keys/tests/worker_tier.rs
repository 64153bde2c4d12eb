//! Servers and workers meet: at the servers' port for workers, and at a worker's own door.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use rustls::ClientConfig;

use super::handshakes::{alpn, calls, node, now, shake};
use crate::net::identity::Identity;
use crate::net::keys::{
    ALPN_API, ClusterKey, NodeTls, WORKER_CERT_LIFETIME, WorkerCas, WorkerIdentity, WorkerKey,
    client_config_pinned,
};

struct Tier {
    tls: NodeTls,
    cas: Arc<WorkerCas>,
}

impl Tier {
    fn new(key: &ClusterKey) -> Self {
        let tls = node(key, 1);
        let cas = WorkerCas::new(key, Arc::clone(tls.ca()), 1, &[]).unwrap();
        let cas = Arc::new(cas);
        Self { tls, cas }
    }

    fn worker(&self, id: u64, made: i64) -> Arc<WorkerIdentity> {
        let key = WorkerKey::generate().unwrap();
        let chain = self.cas.issue(&key.csr_pem().unwrap(), NodeId(id), "c-1", made);
        Arc::new(WorkerIdentity::new(key, &chain.unwrap()).unwrap())
    }

    /// Who comes to the port of the workers with this.
    async fn meet(&self, client: ClientConfig) -> Result<Option<Identity>, String> {
        let server = self.tls.server_config_workers(Arc::clone(&self.cas)).unwrap();
        shake(server, client).await
    }
}

const IS_WORKER: Result<Option<Identity>, String> = Ok(Some(Identity::Worker(NodeId(40))));

#[tokio::test]
async fn a_worker_is_known_by_a_ca_that_is_believed() {
    let key = ClusterKey::generate().unwrap();
    let tier = Tier::new(&key);
    let old = tier.worker(40, now());
    assert_eq!((old.node(), old.cluster_id()), (NodeId(40), "c-1"));
    assert_eq!(tier.meet(old.client_config().unwrap()).await, IS_WORKER);
    // The next generation makes certificates, and the one before is believed beside it.
    assert!(tier.cas.trust(2, &[1]).unwrap());
    assert!(!tier.cas.trust(2, &[1]).unwrap(), "that is no news");
    let new = tier.worker(40, now());
    for worker in [&old, &new] {
        assert_eq!(tier.meet(worker.client_config().unwrap()).await, IS_WORKER);
    }
    assert_eq!(tier.cas.pem().matches("BEGIN CERTIFICATE").count(), 2);
    tier.cas.trust(2, &[]).unwrap();
    tier.meet(old.client_config().unwrap()).await.unwrap_err();
    assert_eq!(tier.meet(new.client_config().unwrap()).await, IS_WORKER);
    // Renewed, the worker shows the new certificate on its next connection.
    let chain = tier.cas.issue(&old.csr_pem().unwrap(), NodeId(40), "c-1", now());
    old.replace(&chain.unwrap()).unwrap();
    assert_eq!(tier.meet(old.client_config().unwrap()).await, IS_WORKER);
}

#[tokio::test]
async fn an_expired_certificate_is_heard_and_no_other_one() {
    let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
    let (tier, elsewhere) = (Tier::new(&key), Tier::new(&other));
    let life_secs = i64::try_from(WORKER_CERT_LIFETIME.as_secs()).unwrap();
    let expired = tier.worker(40, now() - life_secs - 10);
    assert!(expired.validity().not_after_unix_secs < now());
    assert_eq!(tier.meet(expired.client_config().unwrap()).await, IS_WORKER);
    let nobody = alpn(client_config_pinned(tier.tls.fingerprint()).unwrap(), &[b"h2"]);
    assert_eq!(tier.meet(nobody).await, Ok(None));
    // Another cluster's, expired or not, and a server's own, which is no worker.
    for made in [now(), now() - life_secs - 10] {
        let stranger = elsewhere.worker(40, made);
        let server = elsewhere
            .tls
            .server_config_workers(Arc::clone(&tier.cas))
            .unwrap();
        shake(server, stranger.client_config().unwrap())
            .await
            .unwrap_err();
        tier.meet(stranger.client_config().unwrap()).await.unwrap_err();
    }
    tier.meet(alpn(calls(&tier.tls, 1), &[b"h2"])).await.unwrap_err();
}

#[tokio::test]
async fn a_workers_door_opens_for_servers_of_its_cluster_alone() {
    let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
    let (tier, elsewhere) = (Tier::new(&key), Tier::new(&other));
    let (worker, second) = (tier.worker(40, now()), tier.worker(41, now()));
    let calls = |tier: &Tier, id: u64| {
        tier.tls
            .client_config_worker(&tier.cas, NodeId(id), &ALPN_API)
            .unwrap()
    };
    let met = shake(worker.door_config().unwrap(), calls(&tier, 40)).await;
    assert_eq!(met, Ok(Some(Identity::Member(NodeId(1)))));
    // A server speaks with the worker that it means, and with no other one.
    let refused = shake(second.door_config().unwrap(), calls(&tier, 40)).await;
    assert!(refused.unwrap_err().contains("another node"));
    shake(worker.door_config().unwrap(), calls(&elsewhere, 40))
        .await
        .unwrap_err();
    let as_worker = alpn(second.client_config().unwrap(), &ALPN_API);
    shake(worker.door_config().unwrap(), as_worker).await.unwrap_err();
    let nobody = alpn(client_config_pinned(tier.tls.fingerprint()).unwrap(), &ALPN_API);
    shake(worker.door_config().unwrap(), nobody).await.unwrap_err();
    // A worker is no server, also for another worker.
    let pinned = alpn(second.client_config().unwrap(), &ALPN_API);
    shake(worker.door_config().unwrap(), pinned).await.unwrap_err();
}

#[test]
fn a_certificate_is_replaced_by_the_same_workers_alone() {
    let key = ClusterKey::generate().unwrap();
    let tier = Tier::new(&key);
    let worker = tier.worker(40, now());
    let csr = worker.csr_pem().unwrap();
    let chain = |id: u64, cluster: &str| tier.cas.issue(&csr, NodeId(id), cluster, now()).unwrap();
    worker.replace(&chain(40, "c-1")).unwrap();
    worker.replace(&chain(41, "c-1")).unwrap_err();
    worker.replace(&chain(40, "c-2")).unwrap_err();
    let others = WorkerKey::generate().unwrap().csr_pem().unwrap();
    let others = tier.cas.issue(&others, NodeId(40), "c-1", now()).unwrap();
    worker.replace(&others).unwrap_err();
    let elsewhere = Tier::new(&ClusterKey::generate().unwrap());
    let others = elsewhere.cas.issue(&csr, NodeId(40), "c-1", now()).unwrap();
    worker.replace(&others).unwrap_err();
    worker.replace("").unwrap_err();
}
