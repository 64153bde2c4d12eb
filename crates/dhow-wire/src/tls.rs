//! TLS between the cluster's own programs: what every configuration of it has in common, and how the certificate of
//! whoever is called is looked at. Used by servers, workers and the nodes' proxies. TLS 1.3 alone, and nothing is resumed:
//! a resumed session would skip the look at a certificate that has ended since.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, ResolvesServerCert};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme, version,
};

/// Who is accepted as the one that is called: by what its certificate proves, and never by a host name.
pub trait Expected: fmt::Debug + Send + Sync + 'static {
    /// Judges a leaf and what came with it. `signed` says whether the leaf is good and one of these CAs has signed it.
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        signed: &dyn Fn(&RootCertStore) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// Checks the certificate of whoever this process calls.
#[derive(Clone)]
struct CalledVerifier<E> {
    expected: E,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<E: Expected> fmt::Debug for CalledVerifier<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected.fmt(f)
    }
}

impl<E: Expected> ServerCertVerifier for CalledVerifier<E> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        // A CA of our own signs leaves and nothing between, so that the others in the chain are never links.
        let signed = |roots: &RootCertStore| {
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], now, self.algorithms.all)
        };
        self.expected.judge(leaf, others, &signed)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Calls who is expected, and nobody else. Without anything to show it is a caller without a name.
pub fn client_config(
    provider: &Arc<CryptoProvider>,
    expected: impl Expected,
    shown: Option<Arc<dyn ResolvesClientCert>>,
    alpn: &[&[u8]],
) -> Result<ClientConfig, Error> {
    let verifier = CalledVerifier {
        expected,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match shown {
        Some(shown) => builder.with_client_cert_resolver(shown),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Is called by those whom the verifier lets in.
pub fn server_config(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Arc<dyn ResolvesServerCert>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(shown);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}
