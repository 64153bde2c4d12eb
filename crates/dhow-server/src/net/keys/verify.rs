//! Who is accepted as the server of a connection: by what its certificate proves, and never by a host name.

use std::fmt;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::identity_of;
use dhow_wire::token::CaFingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use super::cluster_ca::fingerprint_of;
use crate::net::identity::Identity;

/// What is known of the server that is called.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// This node, of the cluster with this CA.
    Node { node: NodeId, roots: Arc<RootCertStore> },
    /// This worker, of a cluster whose workers have these CAs.
    Worker { node: NodeId, roots: Arc<RootCertStore> },
    /// Any server of the cluster whose CA has this fingerprint; it sends the CA along.
    Pinned(CaFingerprint),
}

/// Checks the certificate of a server that this process calls.
#[derive(Clone)]
pub(super) struct ServerVerifier {
    expected: Expected,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Why a server is not the one that is meant. Shown to whoever called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotMeant {
    #[error("it belongs to another cluster: its CA is not the one that the token or the key names")]
    OtherCluster,
    #[error("it is another node of the cluster than the one that is meant")]
    OtherNode,
}

impl From<NotMeant> for Error {
    fn from(reason: NotMeant) -> Self {
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason))))
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expected.fmt(f)
    }
}

impl ServerVerifier {
    pub fn new(expected: Expected, provider: &CryptoProvider) -> Self {
        Self {
            expected,
            algorithms: provider.signature_verification_algorithms,
        }
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        // A CA of our own signs leaves and nothing between, so that the others in the chain are never links.
        let signed_by = |roots: &RootCertStore| {
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], now, self.algorithms.all)
        };
        match &self.expected {
            Expected::Node { node, roots } => {
                signed_by(roots).map_err(other_cluster)?;
                match identity_of(leaf) {
                    Some(Identity::Member(found)) if found == *node => Ok(()),
                    Some(Identity::Member(_) | Identity::Worker(_)) | None => Err(NotMeant::OtherNode.into()),
                }
            }
            Expected::Worker { node, roots } => {
                signed_by(roots).map_err(other_cluster)?;
                match identity_of(leaf) {
                    Some(Identity::Worker(found)) if found == *node => Ok(()),
                    Some(Identity::Member(_) | Identity::Worker(_)) | None => Err(NotMeant::OtherNode.into()),
                }
            }
            Expected::Pinned(fingerprint) => {
                let ca = others.iter().find(|other| fingerprint_of(other) == *fingerprint);
                let mut roots = RootCertStore::empty();
                roots.add(ca.ok_or(NotMeant::OtherCluster)?.clone().into_owned())?;
                signed_by(&roots).map_err(other_cluster)?;
                match identity_of(leaf) {
                    Some(Identity::Member(_)) => Ok(()),
                    Some(Identity::Worker(_)) | None => Err(NotMeant::OtherNode.into()),
                }
            }
        }
    }
}

/// "Unknown issuer" says nothing to whoever has mixed up two clusters.
fn other_cluster(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            NotMeant::OtherCluster.into()
        }
        other => other,
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
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
