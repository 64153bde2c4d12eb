//! What this node's proxy shows to others and whom it believes: key, certificates, and the key of tickets. The daemon
//! hands them over; they are in no table and in no log.

use std::fmt;
use std::sync::Arc;

use dhow_wire::certificate::proxy_node_of;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{self, CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme, version,
};
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
    /// The CAs whose nodes are believed, as PEM.
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

/// An identity made ready for TLS 1.3. Nothing is resumed: a resumed session would skip the look at a certificate that
/// has ended since.
pub struct Credentials {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
}

impl Credentials {
    pub fn new(identity: &MeshIdentity) -> Result<Self, IdentityError> {
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
        for anchor in certificates("the CAs", &identity.anchors_pem)? {
            roots.add(anchor).map_err(IdentityError::Tls)?;
        }
        let roots = Arc::new(roots);
        Ok(Self {
            client: Arc::new(client(&provider, &roots, &shown).map_err(IdentityError::Tls)?),
            server: Arc::new(server(&provider, &roots, &shown).map_err(IdentityError::Tls)?),
        })
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

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    shown: &Arc<SingleCertAndKey>,
) -> Result<ClientConfig, Error> {
    let verifier = NodeVerifier {
        roots: Arc::clone(roots),
        provider: Arc::clone(provider),
    };
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::clone(shown) as _);
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    shown: &Arc<SingleCertAndKey>,
) -> Result<ServerConfig, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    // A node has one certificate and shows it: hints would only lengthen the greeting.
    let verifier = verifier.clear_root_hint_subjects().build();
    let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(shown) as _);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Believes every proxy of the cluster's nodes. Which node it is the caller compares, before it sends a byte.
#[derive(Debug)]
struct NodeVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &[], now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
