//! The worker's own side: its key, its request for a certificate, and how it shows the one that it was given.

use std::fmt;
use std::sync::Arc;

use dhow_wire::token::CaFingerprint;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, crypto};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use zeroize::Zeroizing;

use super::error::IssueError;
use super::node_tls::ALPN_WORKERS;
use super::pinned::client_config_pinned;

/// A chain is a leaf and its CA.
pub(super) const CHAIN_BYTES_MAX: usize = 32 * 1024;

/// Made by the worker, kept in its `key.pem`, and never sent.
pub struct WorkerKey(KeyPair);

impl fmt::Debug for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerKey")
    }
}

impl WorkerKey {
    pub fn generate() -> Result<Self, IssueError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    pub fn from_pem(text: &str) -> Result<Self, IssueError> {
        Ok(Self(KeyPair::from_pkcs8_pem_and_sign_algo(text, &PKCS_ED25519)?))
    }

    /// For its file, which is its owner's alone.
    pub fn reveal_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.serialize_pem())
    }

    /// Asks for a certificate of this key. Who the worker is, the cluster says.
    pub fn csr_pem(&self) -> Result<String, IssueError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        Ok(params.serialize_request(&self.0)?.pem()?)
    }

    /// The key with its certificate, as TLS wants them.
    pub(super) fn certified(&self, chain: Vec<CertificateDer<'static>>) -> Result<CertifiedKey, IssueError> {
        let der = Zeroizing::new(self.0.serialize_der());
        let key = crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der.as_slice()));
        let certified = CertifiedKey::new(chain, key.map_err(IssueError::Key)?);
        certified.keys_match().map_err(IssueError::Key)?;
        Ok(certified)
    }

    /// Calls a server of the cluster with this CA as the worker that the chain names.
    pub fn client_config(
        &self,
        fingerprint: CaFingerprint,
        chain_pem: &str,
    ) -> Result<ClientConfig, IssueError> {
        let certified = self.certified(read_chain(chain_pem)?)?;
        let mut config = client_config_pinned(fingerprint).map_err(IssueError::Key)?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config.alpn_protocols = ALPN_WORKERS.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

/// When a certificate begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before_unix_secs: i64,
    pub not_after_unix_secs: i64,
}

impl Validity {
    /// Of the first certificate of a chain.
    pub fn of_pem(chain_pem: &str) -> Result<Self, IssueError> {
        let chain = read_chain(chain_pem)?;
        let leaf = chain.first().and_then(Self::of_leaf);
        leaf.ok_or(IssueError::Request {
            why: "its certificate cannot be read",
        })
    }

    pub fn of_leaf(leaf: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
        let validity = parsed.validity();
        Some(Self {
            not_before_unix_secs: validity.not_before.timestamp(),
            not_after_unix_secs: validity.not_after.timestamp(),
        })
    }

    /// From here on a new one is asked for: two thirds of its life are over.
    pub fn renew_at_unix_secs(&self) -> i64 {
        let life = self.not_after_unix_secs.saturating_sub(self.not_before_unix_secs);
        self.not_before_unix_secs.saturating_add(life / 3 * 2)
    }
}

/// The certificates of a PEM text, the leaf first; at least one.
pub(super) fn read_chain(chain_pem: &str) -> Result<Vec<CertificateDer<'static>>, IssueError> {
    let wrong = |why| IssueError::Request { why };
    if chain_pem.len() > CHAIN_BYTES_MAX {
        return Err(wrong("its certificate is longer than any that a worker has"));
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|_| wrong("its certificate is not in PEM form"))?;
    if chain.is_empty() {
        return Err(wrong("there is no certificate in it"));
    }
    Ok(chain)
}
