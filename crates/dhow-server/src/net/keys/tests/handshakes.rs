//! Real handshakes in memory: who is let in by whom, and what they are told.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dhow_core::ids::NodeId;
use dhow_wire::token::CaFingerprint;
use rcgen::KeyPair;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::net::identity::Identity;
use crate::net::keys::tls_refusal;
use crate::net::keys::{
    ALPN_API, ALPN_PEERS, ClusterCa, ClusterKey, NodeCert, NodeTls, WorkerCa, WorkerKey,
    client_config_pinned, identity_of,
};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

pub(super) fn node(key: &ClusterKey, id: u64) -> NodeTls {
    NodeTls::new(key, NodeId(id), now()).unwrap()
}

/// The identity that the server saw, or why there is no connection.
pub(super) async fn shake(server: ServerConfig, client: ClientConfig) -> Result<Option<Identity>, String> {
    let (near, far) = duplex(64 * 1024);
    let name = ServerName::try_from("10.0.0.1").unwrap();
    let connected = async {
        let mut stream = TlsConnector::from(Arc::new(client))
            .connect(name, near)
            .await
            .map_err(|error| tls_refusal(&error))?;
        // A server that refuses the certificate says so only now.
        let mut byte = [0];
        stream
            .read_exact(&mut byte)
            .await
            .map_err(|error| tls_refusal(&error))?;
        Ok(())
    };
    let accepted = async {
        let mut stream = TlsAcceptor::from(Arc::new(server))
            .accept(far)
            .await
            .map_err(|error| tls_refusal(&error))?;
        let shown = stream
            .get_ref()
            .1
            .peer_certificates()
            .map(|chain| chain[0].clone());
        stream.write_all(&[1]).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        Ok(shown)
    };
    let (connected, accepted): (Result<(), String>, Result<_, String>) = tokio::join!(connected, accepted);
    connected?;
    Ok(accepted?.and_then(|leaf| identity_of(&leaf)))
}

pub(super) fn calls(from: &NodeTls, to: u64) -> ClientConfig {
    from.client_config_member(NodeId(to), &ALPN_PEERS).unwrap()
}

pub(super) fn alpn(mut config: ClientConfig, names: &[&[u8]]) -> ClientConfig {
    config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
    config
}

fn pinned(fingerprint: CaFingerprint) -> ClientConfig {
    alpn(client_config_pinned(fingerprint).unwrap(), &ALPN_API)
}

/// A worker's own side, with the certificate that it was given.
fn worker(key: &ClusterKey, ca: &WorkerCa, made: i64, names: &[&[u8]]) -> ClientConfig {
    let own = WorkerKey::generate().unwrap();
    let chain = ca
        .issue_worker(&own.csr_pem().unwrap(), NodeId(40), "c-1", made, WEEK)
        .unwrap();
    let fingerprint = ClusterCa::new(key).unwrap().fingerprint();
    alpn(own.client_config(fingerprint, &chain).unwrap(), names)
}

#[tokio::test]
async fn members_know_each_other() {
    let key = ClusterKey::generate().unwrap();
    let (one, two) = (node(&key, 1), node(&key, 2));
    let met = shake(two.server_config_members().unwrap(), calls(&one, 2)).await;
    assert_eq!(met, Ok(Some(Identity::Member(NodeId(1)))));
    let api = alpn(calls(&one, 2), &ALPN_API);
    let met = shake(two.server_config_api(&[]).unwrap(), api).await;
    assert_eq!(met, Ok(Some(Identity::Member(NodeId(1)))));
}

#[tokio::test]
async fn another_node_than_the_one_meant_is_refused() {
    let key = ClusterKey::generate().unwrap();
    let (one, two) = (node(&key, 1), node(&key, 2));
    let refused = shake(two.server_config_members().unwrap(), calls(&one, 3))
        .await
        .unwrap_err();
    assert!(refused.contains("another node"), "{refused}");
}

#[tokio::test]
async fn another_clusters_key_is_refused_by_both_ends() {
    let (own, other) = (
        node(&ClusterKey::generate().unwrap(), 1),
        node(&ClusterKey::generate().unwrap(), 2),
    );
    let refused = shake(other.server_config_members().unwrap(), calls(&own, 2))
        .await
        .unwrap_err();
    assert!(refused.contains("another cluster"), "{refused}");
    // A caller that believes anything is still not let in.
    let fingerprint = other.fingerprint();
    let mut careless = alpn(client_config_pinned(fingerprint).unwrap(), &ALPN_PEERS);
    careless.client_auth_cert_resolver = Arc::clone(own.cert()) as _;
    shake(other.server_config_members().unwrap(), careless)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn an_expired_certificate_is_refused_by_both_ends() {
    let key = ClusterKey::generate().unwrap();
    let ca = Arc::new(ClusterCa::new(&key).unwrap());
    let old = now() - i64::try_from(WEEK.as_secs()).unwrap() - 10;
    let expired = NodeCert::new(Arc::clone(&ca), NodeId(2), old, WEEK).unwrap();
    let (fresh, expired) = (node(&key, 1), NodeTls::with(ca, Arc::new(expired)));
    let refused = shake(expired.server_config_members().unwrap(), calls(&fresh, 2))
        .await
        .unwrap_err();
    assert!(refused.contains("expired"), "{refused}");
    shake(fresh.server_config_members().unwrap(), calls(&expired, 1))
        .await
        .unwrap_err();
    let refused = shake(
        expired.server_config_api(&[]).unwrap(),
        pinned(fresh.fingerprint()),
    )
    .await;
    assert!(refused.unwrap_err().contains("expired"));
    // Once renewed, the same configuration is good.
    let server = expired.server_config_members().unwrap();
    assert!(expired.cert().renew_if_due(now()).unwrap());
    assert_eq!(
        shake(server, calls(&fresh, 2)).await,
        Ok(Some(Identity::Member(NodeId(1))))
    );
}

#[tokio::test]
async fn a_fingerprint_is_enough_to_know_the_cluster() {
    let key = ClusterKey::generate().unwrap();
    let one = node(&key, 1);
    let met = shake(one.server_config_api(&[]).unwrap(), pinned(one.fingerprint())).await;
    assert_eq!(met, Ok(None));
    let other = node(&ClusterKey::generate().unwrap(), 1);
    let refused = shake(other.server_config_api(&[]).unwrap(), pinned(one.fingerprint())).await;
    assert!(refused.unwrap_err().contains("another cluster"));
    // The right CA in the chain of a leaf that it did not sign.
    let chain = vec![
        other.cert().certified().cert[0].clone(),
        one.ca().certificate().clone(),
    ];
    let certified = rustls::sign::CertifiedKey::new(chain, Arc::clone(&other.cert().certified().key));
    let mut forged = other.server_config_api(&[]).unwrap();
    forged.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    let refused = shake(forged, pinned(one.fingerprint())).await;
    assert!(refused.unwrap_err().contains("another cluster"));
}

#[tokio::test]
async fn a_worker_is_let_in_at_the_api_and_not_among_servers() {
    let key = ClusterKey::generate().unwrap();
    let one = node(&key, 1);
    let first = WorkerCa::new(&key, 1).unwrap();
    let api = one.server_config_api(std::slice::from_ref(&first)).unwrap();
    assert_eq!(
        shake(api, worker(&key, &first, now(), &ALPN_API)).await,
        Ok(Some(Identity::Worker(NodeId(40))))
    );
    let members = one.server_config_members().unwrap();
    shake(members, worker(&key, &first, now(), &ALPN_PEERS))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn the_channel_of_the_servers_needs_a_certificate_and_its_protocol() {
    let key = ClusterKey::generate().unwrap();
    let (one, two) = (node(&key, 1), node(&key, 2));
    let nobody = alpn(client_config_pinned(one.fingerprint()).unwrap(), &ALPN_PEERS);
    shake(two.server_config_members().unwrap(), nobody)
        .await
        .unwrap_err();
    let http = alpn(calls(&one, 2), &ALPN_API);
    shake(two.server_config_members().unwrap(), http)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn nothing_older_than_tls_1_3_is_spoken() {
    let key = ClusterKey::generate().unwrap();
    let one = node(&key, 1);
    let mut roots = RootCertStore::empty();
    roots.add(one.ca().certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .with_webpki_verifier(verifier.build().unwrap())
        .with_no_client_auth();
    shake(one.server_config_api(&[]).unwrap(), old).await.unwrap_err();
}

/// The issuer decides what a leaf can say, whatever it says.
#[test]
fn a_workers_ca_makes_no_server() {
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI("dhow://node/1".try_into().unwrap())];
    let pair = KeyPair::generate().unwrap();
    let issued_by = |name: &str| {
        let mut ca = rcgen::CertificateParams::default();
        ca.distinguished_name = rcgen::DistinguishedName::new();
        ca.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = rcgen::Issuer::new(ca, KeyPair::generate().unwrap());
        identity_of(params.signed_by(&pair, &issuer).unwrap().der())
    };
    assert_eq!(issued_by("Dhow servers"), Some(Identity::Member(NodeId(1))));
    assert_eq!(issued_by("Dhow workers 1"), None);
    assert_eq!(issued_by("somebody"), None);
}
