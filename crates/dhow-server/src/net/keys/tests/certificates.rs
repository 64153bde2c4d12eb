//! What is in the certificates.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::proxy_node_of;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, FakeClock};
use crate::net::identity::Identity;
use crate::net::keys::{
    ClusterCa, ClusterKey, IssueError, NODE_CERT_LIFETIME, NodeCert, NodeTls, WorkerCa, WorkerCas,
    WorkerIdentity, WorkerKey, csr_key_hash, identity_of, keep_renewed, worker_cluster_of,
};

const NOW: i64 = 1_800_000_000;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The key of 32 times the same byte.
fn fixed_key() -> ClusterKey {
    ClusterKey::parse("dhowkey1.BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc").unwrap()
}

/// Tokens in the field hold the fingerprint: a change of the certificate's bytes would lock their owners out.
#[test]
fn the_ca_is_the_same_on_every_server_and_in_every_version() {
    let (one, two) = (
        ClusterCa::new(&fixed_key()).unwrap(),
        ClusterCa::new(&fixed_key()).unwrap(),
    );
    assert_eq!(one.certificate(), two.certificate());
    assert_eq!(
        one.fingerprint().to_string(),
        "0d2c2f23a6b114177d01e42d0ead15f234942c7a8a573a6e04fa0bf7e60a67ea"
    );
    let other = ClusterCa::new(&ClusterKey::generate().unwrap()).unwrap();
    assert_ne!(other.fingerprint(), one.fingerprint());
    assert_eq!(format!("{one:?}"), format!("ClusterCa({})", one.fingerprint()));
    let workers = |generation| WorkerCa::new(&fixed_key(), generation).unwrap();
    assert_eq!(workers(1).certificate(), workers(1).certificate());
    assert_ne!(workers(1).certificate(), workers(2).certificate());
}

#[test]
fn a_server_says_who_it_is_and_sends_its_ca() {
    let ca = Arc::new(ClusterCa::new(&fixed_key()).unwrap());
    let cert = NodeCert::new(Arc::clone(&ca), NodeId(3), NOW, WEEK).unwrap();
    let chain = cert.certified().cert.clone();
    assert_eq!(identity_of(&chain[0]), Some(Identity::Member(NodeId(3))));
    assert_eq!(&chain[1], ca.certificate());
    assert_eq!(identity_of(ca.certificate()), None);
    assert_eq!(worker_cluster_of(&chain[0]), None);
    assert_eq!(identity_of(&CertificateDer::from(vec![1, 2, 3])), None);
}

#[test]
fn a_proxy_has_a_certificate_of_its_own_which_makes_it_no_node() {
    let tls = NodeTls::new(&fixed_key(), NodeId(3), NOW).unwrap();
    let leaf = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let of_server = leaf(&tls.proxy_cert(NOW).unwrap().chain_pem);
    assert_eq!(
        (proxy_node_of(&of_server), identity_of(&of_server)),
        (Some(NodeId(3)), None)
    );
    let cas = WorkerCas::new(&fixed_key(), Arc::clone(tls.ca()), 1, &[]).unwrap();
    let worker_key = WorkerKey::generate().unwrap();
    let chain = cas.issue(&worker_key.csr_pem().unwrap(), NodeId(7), "c-1", NOW);
    let chain = chain.unwrap();
    assert_eq!(proxy_node_of(&leaf(&chain)), None, "a worker is no proxy");
    let worker = WorkerIdentity::new(worker_key, &chain).unwrap();
    let key = WorkerKey::generate().unwrap();
    let asked = |node| {
        cas.issue_proxy(&key.csr_pem().unwrap(), node, "c-1", NOW)
            .unwrap()
    };
    let of_worker = worker.proxy_cert(&key, &asked(NodeId(7))).unwrap();
    let shown = leaf(&of_worker.chain_pem);
    assert_eq!(
        (proxy_node_of(&shown), identity_of(&shown)),
        (Some(NodeId(7)), None)
    );
    // That of another one, of another key, and a worker's own are not taken.
    assert!(worker.proxy_cert(&key, &asked(NodeId(8))).is_err());
    assert!(
        worker
            .proxy_cert(&WorkerKey::generate().unwrap(), &asked(NodeId(7)))
            .is_err()
    );
    assert!(worker.proxy_cert(&key, &chain).is_err());
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_of_its_life() {
    let ca = Arc::new(ClusterCa::new(&fixed_key()).unwrap());
    let cert = NodeCert::new(ca, NodeId(3), NOW, NODE_CERT_LIFETIME).unwrap();
    let life = i64::try_from(NODE_CERT_LIFETIME.as_secs()).unwrap();
    let first = cert.certified();
    assert!(!cert.renew_if_due(NOW + life / 3 * 2 - 1).unwrap());
    assert!(Arc::ptr_eq(&first, &cert.certified()));
    let later = NOW + life / 3 * 2;
    assert!(cert.renew_if_due(later).unwrap());
    assert_ne!(first.cert[0], cert.certified().cert[0]);
    assert!(!cert.renew_if_due(later).unwrap(), "once is enough");
    assert!(cert.renew_if_due(NOW).unwrap(), "the clock went back");
    for odd in [i64::MIN, -1, 0, i64::MAX] {
        cert.renew_if_due(odd).unwrap();
    }
}

#[tokio::test]
async fn the_process_renews_it_by_itself() {
    let clock = FakeClock::new(NOW * 1_000);
    let ca = Arc::new(ClusterCa::new(&fixed_key()).unwrap());
    let cert = Arc::new(NodeCert::new(ca, NodeId(3), NOW, WEEK).unwrap());
    let first = cert.certified();
    let cancel = CancellationToken::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let task = tokio::spawn(keep_renewed(Arc::clone(&cert), shared, cancel.clone()));
    while Arc::ptr_eq(&first, &cert.certified()) {
        clock.advance(3_600_000);
        tokio::task::yield_now().await;
    }
    let passed_ms = clock.wall_unix_ms() - NOW * 1_000;
    assert!(passed_ms >= 4 * 24 * 3_600_000, "{passed_ms}");
    cancel.cancel();
    task.await.unwrap();
}

fn csr(pair: &KeyPair, uri: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    if let Some(uri) = uri {
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    }
    params.serialize_request(pair).unwrap().pem().unwrap()
}

#[test]
fn a_worker_is_who_the_cluster_says() {
    let ca = WorkerCa::new(&fixed_key(), 4).unwrap();
    assert_eq!(ca.generation(), 4);
    for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let wish = csr(&pair, Some("dhow://node/1"));
        let pem = ca.issue_worker(&wish, NodeId(40), "c-1", NOW, WEEK).unwrap();
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(identity_of(&chain[0]), Some(Identity::Worker(NodeId(40))));
        assert_eq!(worker_cluster_of(&chain[0]).as_deref(), Some("c-1"));
        assert_eq!(&chain[1], ca.certificate());
        assert_eq!(
            csr_key_hash(&wish).unwrap(),
            csr_key_hash(&csr(&pair, None)).unwrap()
        );
    }
    let (one, two) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    assert_ne!(
        csr_key_hash(&csr(&one, None)).unwrap(),
        csr_key_hash(&csr(&two, None)).unwrap()
    );
}

#[test]
fn requests_that_are_none_are_refused() {
    let ca = WorkerCa::new(&fixed_key(), 1).unwrap();
    let issue =
        |text: &str, cluster: &str| ca.issue_worker(text, NodeId(40), cluster, NOW, WEEK).unwrap_err();
    let pair = KeyPair::generate().unwrap();
    let good = csr(&pair, None);
    for cluster in ["", "a/b", "a b", &"c".repeat(129)] {
        assert!(
            matches!(issue(&good, cluster), IssueError::ClusterId),
            "{cluster}"
        );
    }
    let long = good.repeat(100);
    for text in [
        "",
        "hello",
        "-----BEGIN CERTIFICATE REQUEST-----\n",
        long.as_str(),
    ] {
        assert!(matches!(issue(text, "c-1"), IssueError::Request { .. }));
        assert!(csr_key_hash(text).is_err());
    }
    // Whoever does not have the key cannot ask for a certificate of it; what the signature does not cover changes
    // nothing about whose key it is.
    let der = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap();
    let mut refused = 0;
    for place in 0..der.len() {
        let mut bytes = der.to_vec();
        bytes[place] ^= 1;
        match csr_key_hash(&pem(&bytes)) {
            Ok(hash) => assert_eq!(hash, csr_key_hash(&good).unwrap(), "byte {place}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused + 4 > der.len(), "{refused} of {}", der.len());
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}
