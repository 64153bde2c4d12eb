//! What this node's proxy shows to others and whom it believes: key, certificates, and the key of tickets. The daemon
//! hands them over; they are in no table and in no log.

use std::fmt;
use std::sync::Arc;

use dhow_wire::certificate::proxy_node_of;
use dhow_wire::tls::{self, Expected};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};

use super::frame::ALPN;

/// A key, a leaf with two CAs, and some generations of CAs have a few kilobytes.
pub const IDENTITY_MAX_BYTES: usize = 64 << 10;

/// What the daemon gives to its proxy, and what the proxy keeps in its folder for a start without the daemon.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshIdentity {
    /// PKCS #8, as PEM.
    pub key_pem: String,
    /// The leaf first, as PEM.
    pub chain_pem: String,
    /// The CAs whose nodes are believed where a table says nothing of them, as PEM.
    pub anchors_pem: String,
}

/// Nothing of a key is shown.
impl fmt::Debug for MeshIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshIdentity")
    }
}

/// Why what the daemon gave cannot be used. It never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{what} cannot be read: it is not in PEM form")]
    Pem { what: &'static str },
    #[error("the certificate does not say which node's proxy this is")]
    NoNode,
    #[error("TLS does not take the certificate or its key")]
    Tls(#[source] Error),
}

/// An identity made ready for TLS.
pub struct Credentials {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
}

impl Credentials {
    /// With the CAs that are believed, as PEM; where none are said, those of the identity.
    pub fn new(identity: &MeshIdentity, believed: Option<&str>) -> Result<Self, IdentityError> {
        let chain = certificates("the chain", &identity.chain_pem)?;
        let leaf = chain.first().ok_or(IdentityError::Pem { what: "the chain" })?;
        proxy_node_of(leaf).ok_or(IdentityError::NoNode)?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes());
        let key = key.map_err(|_| IdentityError::Pem { what: "the key" })?;
        let provider = provider();
        let signing = provider.key_provider.load_private_key(key);
        // The leaf alone: whoever is called has the CAs already, and a CA of ours signs leaves and nothing between.
        let certified = CertifiedKey::new(vec![leaf.clone()], signing.map_err(IdentityError::Tls)?);
        certified.keys_match().map_err(IdentityError::Tls)?;
        let shown = Arc::new(SingleCertAndKey::from(certified));
        let mut roots = RootCertStore::empty();
        let anchors = believed.unwrap_or(&identity.anchors_pem);
        for anchor in certificates("the list of CAs", anchors)? {
            roots.add(anchor).map_err(IdentityError::Tls)?;
        }
        let roots = Arc::new(roots);
        let made = || {
            let verifier = server_verifier(&provider, &roots)?;
            let client = tls::client_config(
                &provider,
                AnyNode(Arc::clone(&roots)),
                Some(Arc::clone(&shown) as _),
                &[ALPN],
            )?;
            let server = tls::server_config(&provider, verifier, Arc::clone(&shown) as _, &[ALPN])?;
            Ok((Arc::new(client), Arc::new(server)))
        };
        let (client, server) = made().map_err(IdentityError::Tls)?;
        Ok(Self { client, server })
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let read = read.map_err(|_| IdentityError::Pem { what })?;
    match read.is_empty() {
        true => Err(IdentityError::Pem { what }),
        false => Ok(read),
    }
}

/// The one provider of this build. Both ends are ours, and of its suites the one with the shorter key is a quarter
/// faster for streams and as safe.
fn provider() -> Arc<CryptoProvider> {
    use crypto::ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..crypto::ring::default_provider()
    })
}

fn server_verifier(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    // A node has one certificate and shows it: hints would only lengthen the greeting.
    let verifier = verifier.clear_root_hint_subjects().build();
    verifier.map_err(|error| Error::General(error.to_string()))
}

/// Every proxy of the cluster's nodes. Which node it is the caller compares, before it sends a byte.
#[derive(Debug)]
struct AnyNode(Arc<RootCertStore>);

impl Expected for AnyNode {
    fn judge(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        signed: &dyn Fn(&RootCertStore) -> Result<(), Error>,
    ) -> Result<(), Error> {
        signed(&self.0)
    }
}
