//! Who is accepted as the server of a connection: by what its certificate proves, and never by a host name.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::identity_of;
use dhow_wire::tls::Expected;
use dhow_wire::token::CaFingerprint;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error, OtherError, RootCertStore};

use super::cluster_ca::fingerprint_of;
use crate::net::identity::Identity;

/// What is known of the server that is called.
#[derive(Clone, Debug)]
pub(super) enum ExpectedServer {
    /// This node, of the cluster with this CA.
    Node { node: NodeId, roots: Arc<RootCertStore> },
    /// This worker, of a cluster whose workers have these CAs.
    Worker { node: NodeId, roots: Arc<RootCertStore> },
    /// Any server of the cluster whose CA has this fingerprint; it sends the CA along.
    Pinned(CaFingerprint),
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

impl Expected for ExpectedServer {
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        signed: &dyn Fn(&RootCertStore) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Node { node, roots } => {
                signed(roots).map_err(other_cluster)?;
                match identity_of(leaf) {
                    Some(Identity::Member(found)) if found == *node => Ok(()),
                    Some(Identity::Member(_) | Identity::Worker(_)) | None => Err(NotMeant::OtherNode.into()),
                }
            }
            Self::Worker { node, roots } => {
                signed(roots).map_err(other_cluster)?;
                match identity_of(leaf) {
                    Some(Identity::Worker(found)) if found == *node => Ok(()),
                    Some(Identity::Member(_) | Identity::Worker(_)) | None => Err(NotMeant::OtherNode.into()),
                }
            }
            Self::Pinned(fingerprint) => {
                let ca = others.iter().find(|other| fingerprint_of(other) == *fingerprint);
                let mut roots = RootCertStore::empty();
                roots.add(ca.ok_or(NotMeant::OtherCluster)?.clone().into_owned())?;
                signed(&roots).map_err(other_cluster)?;
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
