//! The CA of the servers: every server computes the same one from the cluster key.

use std::fmt;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::{CLUSTER_CA_NAME, node_dns_name, node_uri, proxy_uri};
use dhow_wire::token::CaFingerprint;
use rcgen::{CertifiedIssuer, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData, SanType};
use rustls::pki_types::CertificateDer;

use super::cluster_key::ClusterKey;
use super::error::IssueError;
use super::make;

/// The CA that issues the servers' certificates. It holds a key that can make servers: it never leaves the process.
pub struct ClusterCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    fingerprint: CaFingerprint,
}

impl fmt::Debug for ClusterCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterCa({})", self.fingerprint)
    }
}

impl ClusterCa {
    pub fn new(key: &ClusterKey) -> Result<Self, IssueError> {
        let pair = make::key_pair(&key.cluster_ca_seed())?;
        let issuer = CertifiedIssuer::self_signed(make::ca_params(CLUSTER_CA_NAME), pair)?;
        let fingerprint = fingerprint_of(issuer.der());
        Ok(Self { issuer, fingerprint })
    }

    /// SHA-256 of the certificate: what tokens carry, and all that a client needs to know of the cluster.
    pub fn fingerprint(&self) -> CaFingerprint {
        self.fingerprint
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// For `ca.pem` of a worker.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The certificate of a server, good for both ends of a connection.
    pub(super) fn issue_node(
        &self,
        key: &impl PublicKeyData,
        node: NodeId,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IssueError> {
        let dns = node_dns_name(node);
        let names = vec![
            SanType::URI(node_uri(node).try_into()?),
            SanType::DnsName(dns.as_str().try_into()?),
        ];
        self.issue(key, &dns, names, now_unix_secs, lifetime)
    }

    /// The certificate of a server's proxy, good for both ends of a connection between proxies and for nothing else.
    pub(super) fn issue_proxy(
        &self,
        key: &impl PublicKeyData,
        node: NodeId,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IssueError> {
        let names = vec![SanType::URI(proxy_uri(node).try_into()?)];
        let name = format!("proxy-{node}.dhow.internal");
        self.issue(key, &name, names, now_unix_secs, lifetime)
    }

    fn issue(
        &self,
        key: &impl PublicKeyData,
        name: &str,
        names: Vec<SanType>,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IssueError> {
        let purposes = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let params = make::leaf_params(name, names, purposes, now_unix_secs, lifetime);
        Ok(params.signed_by(key, &self.issuer)?.into())
    }
}

pub(super) fn fingerprint_of(certificate: &CertificateDer<'_>) -> CaFingerprint {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    CaFingerprint(bytes)
}
