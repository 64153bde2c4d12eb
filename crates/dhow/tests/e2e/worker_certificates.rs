//! Certificates of workers renew themselves, their CA is replaced without a pause, and what is too old is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dhow_core::ids::NodeId;
use dhow_server::net::keys::{
    ClusterKey, NodeTls, Validity, WORKER_CERT_LIFETIME, WorkerCas, WorkerIdentity, WorkerKey,
};
use serde_json::json;

use crate::support::{Cluster, Service, until};

const HOUR_SECS: i64 = 3_600;
const DAY_SECS: i64 = 24 * HOUR_SECS;

fn now_unix_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

struct Files(PathBuf);

impl Files {
    fn of(cluster: &Cluster, place: usize) -> Self {
        Self(cluster.workers[place].data_dir().join("worker/identity"))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn identity(&self) -> WorkerIdentity {
        let key = WorkerKey::from_pem(&self.text("key.pem")).unwrap();
        WorkerIdentity::new(
            key,
            &format!("{}\n{}", self.text("cert.pem"), self.text("ca.pem")),
        )
        .unwrap()
    }

    fn ends_unix_secs(&self) -> i64 {
        Validity::of_pem(&self.text("cert.pem"))
            .unwrap()
            .not_after_unix_secs
    }

    /// Puts the certificate there that the cluster would have made at that time.
    fn age(&self, cluster: &Cluster, made_unix_secs: i64) {
        let key = ClusterKey::read_file(&cluster.nodes[0].scratch.path.join("cluster.key")).unwrap();
        let tls = NodeTls::new(&key, NodeId(1), now_unix_secs()).unwrap();
        let cas = WorkerCas::new(&key, Arc::clone(tls.ca()), 1, &[]).unwrap();
        let identity = self.identity();
        let csr_pem = identity.csr_pem().unwrap();
        let chain = cas.issue(&csr_pem, identity.node(), identity.cluster_id(), made_unix_secs);
        let chain = chain.unwrap();
        let end = chain.match_indices("-----BEGIN").nth(1).unwrap().0;
        std::fs::write(self.0.join("cert.pem"), &chain[..end]).unwrap();
    }
}

#[test]
fn certificates_renew_themselves() {
    let mut cluster = Cluster::worker_tier("renew", 3, 1, &json!({}));
    let (files, id) = (Files::of(&cluster, 0), cluster.workers[0].node_id);
    cluster.nodes[0]
        .deploy("calm", &[("it", Service::sleeper().replicas(2))])
        .ends_with(0);
    let pids = cluster.workers[0].workloads();
    let life_secs = i64::try_from(WORKER_CERT_LIFETIME.as_secs()).unwrap();
    // One whose time has come, one that has expired yesterday, and one that can only just be renewed.
    for age_secs in [23 * HOUR_SECS, life_secs + DAY_SECS, life_secs + 6 * DAY_SECS] {
        cluster.workers[0].kill9();
        files.age(&cluster, now_unix_secs() - age_secs);
        cluster.workers[0].restart();
        until("it has another certificate", || {
            (files.ends_unix_secs() > now_unix_secs() + 20 * HOUR_SECS).then_some(())
        });
        cluster.until_complete();
        cluster.learn_id(0);
        assert_eq!(cluster.workers[0].node_id, id);
        assert_eq!(cluster.workers[0].workloads(), pids, "nothing was restarted");
    }
    // Too old: it says what to do, and does not try for ever.
    cluster.workers[0].kill9();
    files.age(&cluster, now_unix_secs() - life_secs - 8 * DAY_SECS);
    cluster.workers[0].begin();
    assert_eq!(cluster.workers[0].ended().code(), Some(4));
    let said = cluster.workers[0].said();
    assert!(said.contains("join again with a new token"), "{said}");
    drop(cluster);
}

#[test]
fn the_workers_ca_is_replaced_without_a_pause() {
    let mut cluster = Cluster::worker_tier("rotate", 3, 1, &json!({}));
    let speaks = Service::shell("echo it speaks; exec sleep 3600").replicas(2);
    cluster.nodes[0].deploy("calm", &[("it", speaks)]).ends_with(0);
    let pids = cluster.workers[0].workloads();
    let before = cluster.worker_token(&[]);
    cluster.nodes[1]
        .dhow(&["cluster", "rotate-worker-ca"])
        .ends_with(0);
    let believed = |node: usize| {
        let path = cluster.nodes[node].data_dir().join("cluster/worker-ca.pem");
        std::fs::read_to_string(path)
            .unwrap()
            .matches("BEGIN CERTIFICATE")
            .count()
    };
    for node in 0..3 {
        until("every server believes both", || {
            (believed(node) == 2).then_some(())
        });
    }
    // One with a certificate of the old CA comes back, and one with an old token joins with the new CA.
    cluster.workers[0].kill9();
    cluster.workers[0].restart();
    let place = cluster.add_worker(&before);
    cluster.workers[place].restart();
    cluster.learn_id(place);
    cluster.until_complete();
    let issuers: Vec<String> = (0..2)
        .map(|place| Files::of(&cluster, place).text("ca.pem"))
        .collect();
    assert_ne!(issuers[0], issuers[1]);
    assert_eq!(cluster.workers[0].workloads(), pids);
    cluster.nodes[0]
        .dhow(&["scale", "calm/it=4", "--wait"])
        .ends_with(0);
    for server in &cluster.nodes {
        let logs = server.dhow(&["logs", "calm"]).ends_with(0).stdout;
        assert_eq!(logs.matches("it speaks").count(), 4, "{logs}");
    }
    // A server that starts knows what the others know.
    let follower = cluster.follower();
    cluster.nodes[follower].kill9();
    cluster.nodes[follower].restart();
    cluster.until_complete();
    cluster.finish();
}
