//! The CA of the workers, which can make no server. A new generation replaces one whose certificates are to end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::{identity_of, worker_ca_name, worker_cluster_of, worker_proxy_uri, worker_uri};
use rcgen::{
    CertificateSigningRequestParams, CertifiedIssuer, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData,
    SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::cluster_key::ClusterKey;
use super::error::IssueError;
use super::make;
use super::pinned::provider;
use super::worker_key::{Validity, read_chain};
use crate::net::identity::Identity;

/// A request for a certificate with the largest key that is taken has some 3 KiB.
const CSR_BYTES_MAX: usize = 16 * 1024;

/// One generation of the workers' CA: it issues certificates to workers and recognises those that it issued.
pub struct WorkerCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    generation: u32,
}

impl fmt::Debug for WorkerCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerCa({})", self.generation)
    }
}

impl WorkerCa {
    pub fn new(key: &ClusterKey, generation: u32) -> Result<Self, IssueError> {
        let pair = make::key_pair(&key.worker_ca_seed(generation))?;
        let params = make::ca_params(&worker_ca_name(generation));
        let issuer = CertifiedIssuer::self_signed(params, pair)?;
        Ok(Self { issuer, generation })
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for the key of a request, and this CA's, as PEM. Whatever else the request asks for is not
    /// heard: who a worker is, the cluster says.
    pub fn issue_worker(
        &self,
        csr_pem: &str,
        node: NodeId,
        cluster_id: &str,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<String, IssueError> {
        let uri = worker_uri(cluster_id, node).ok_or(IssueError::ClusterId)?;
        let name = format!("worker-{node}.dhow.internal");
        let leaf = self.issue(csr_pem, uri, &name, now_unix_secs, lifetime)?;
        Ok(format!("{leaf}{}", self.issuer.pem()))
    }

    /// A certificate for the proxy of a worker, as PEM. It proves nothing but which node's proxy shows it.
    pub(super) fn issue_proxy(
        &self,
        csr_pem: &str,
        node: NodeId,
        cluster_id: &str,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<String, IssueError> {
        let uri = worker_proxy_uri(cluster_id, node).ok_or(IssueError::ClusterId)?;
        let name = format!("proxy-{node}.dhow.internal");
        self.issue(csr_pem, uri, &name, now_unix_secs, lifetime)
    }

    fn issue(
        &self,
        csr_pem: &str,
        uri: String,
        name: &str,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<String, IssueError> {
        let request = read_request(csr_pem)?;
        let names = vec![SanType::URI(uri.try_into()?)];
        // A worker is called too: by servers for the logs of its replicas and for commands in them, and its proxy by others.
        let purposes = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let params = make::leaf_params(name, names, purposes, now_unix_secs, lifetime);
        Ok(params.signed_by(&request.public_key, &self.issuer)?.pem())
    }
}

impl WorkerCa {
    /// Whose certificate this is, where the sender of the request has its key: enough to renew it, also when it has
    /// ended not longer ago than `grace`. So a worker that was off for weeks comes back by itself.
    pub fn recognise(
        &self,
        chain_pem: &str,
        csr_pem: &str,
        cluster_id: &str,
        now_unix_secs: i64,
        grace: Duration,
    ) -> Result<NodeId, IssueError> {
        let chain = read_chain(chain_pem)?;
        let leaf = chain.first().ok_or(IssueError::NotOurs)?;
        let end = Validity::of_leaf(leaf)
            .ok_or(IssueError::NotOurs)?
            .not_after_unix_secs;
        let ago_secs = u64::try_from(now_unix_secs.saturating_sub(end)).unwrap_or(0);
        if ago_secs > grace.as_secs() {
            return Err(IssueError::TooLate { ago_secs });
        }
        // Judged as of its last second where that is over.
        let at = u64::try_from(now_unix_secs.min(end)).unwrap_or(0);
        self.verify(leaf, UnixTime::since_unix_epoch(Duration::from_secs(at)))?;
        let node = match identity_of(leaf) {
            Some(Identity::Worker(node)) if worker_cluster_of(leaf).as_deref() == Some(cluster_id) => node,
            Some(Identity::Worker(_) | Identity::Member(_)) | None => return Err(IssueError::NotOurs),
        };
        if leaf_key_hash(leaf)? != csr_key_hash(csr_pem)? {
            return Err(IssueError::OtherKey);
        }
        Ok(node)
    }

    fn verify(&self, leaf: &CertificateDer<'_>, at: UnixTime) -> Result<(), IssueError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate().clone()).map_err(IssueError::Key)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|_| IssueError::NotOurs)?;
        let verified = verifier.verify_client_cert(leaf, &[], at);
        verified.map(|_| ()).map_err(|_| IssueError::NotOurs)
    }
}

fn leaf_key_hash(leaf: &CertificateDer<'_>) -> Result<String, IssueError> {
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| IssueError::NotOurs)?;
    Ok(blake3::hash(parsed.public_key().raw).to_hex().to_string())
}

/// Names the key of a request for a certificate: the same key asking again is the same worker.
pub fn csr_key_hash(csr_pem: &str) -> Result<String, IssueError> {
    let request = read_request(csr_pem)?;
    let hash = blake3::hash(&request.public_key.subject_public_key_info());
    Ok(hash.to_hex().to_string())
}

/// The request, whose signature proves that its sender has the key.
fn read_request(csr_pem: &str) -> Result<CertificateSigningRequestParams, IssueError> {
    if csr_pem.len() > CSR_BYTES_MAX {
        let why = "it is longer than any that a worker sends";
        return Err(IssueError::Request { why });
    }
    CertificateSigningRequestParams::from_pem(csr_pem).map_err(|error| IssueError::Request {
        why: match error {
            rcgen::Error::InvalidCertificationRequestSignature => "its signature is wrong",
            rcgen::Error::UnsupportedExtension => "it asks for extensions that no worker needs",
            rcgen::Error::UnsupportedSignatureAlgorithm => "its key is of a kind that is not taken",
            _ => "it is no PKCS #10 request in PEM form",
        },
    })
}
