//! The CA of the workers, which can make no server. A new generation replaces one whose certificates are to end.

use std::fmt;
use std::time::Duration;

use dhow_core::ids::NodeId;
use rcgen::{
    CertificateSigningRequestParams, CertifiedIssuer, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData,
    SanType,
};
use rustls::pki_types::CertificateDer;

use super::cluster_key::ClusterKey;
use super::error::IssueError;
use super::leaf::{worker_ca_name, worker_uri};
use super::make;

/// A request for a certificate with the largest key that is taken has some 3 KiB.
const CSR_BYTES_MAX: usize = 16 * 1024;

/// See the module.
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
        let request = read_request(csr_pem)?;
        let uri = worker_uri(cluster_id, node).ok_or(IssueError::ClusterId)?;
        let names = vec![SanType::URI(uri.try_into()?)];
        let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let name = format!("worker-{node}.dhow.internal");
        let params = make::leaf_params(&name, names, purposes, now_unix_secs, lifetime);
        let leaf = params.signed_by(&request.public_key, &self.issuer)?;
        Ok(format!("{}{}", leaf.pem(), self.issuer.pem()))
    }
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
