//! What a server needs to take workers.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use ed25519_dalek::VerifyingKey;

use super::internal_token::InternalTokens;
use crate::plane::runtime::EventLogSender;

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(pub String);

/// The CA of the worker tier, as far as the gateway needs it.
pub trait WorkerCertificates: Send + Sync + 'static {
    /// A certificate of this node for the key in the request; the leaf first, as PEM. The request's own signature was
    /// checked. It must not block for long.
    fn issue(&self, csr_pem: &str, node: NodeId) -> Result<String, CertificateError>;

    /// The same for the node's proxy.
    fn issue_proxy(&self, csr_pem: &str, node: NodeId) -> Result<String, CertificateError>;
}

/// What a gateway needs beside its options to take workers: the key that proves their tokens and the issuer of their
/// certificates.
#[derive(Clone)]
pub struct WorkerTier {
    /// Proves bootstrap tokens.
    pub token_key: VerifyingKey,
    pub certificates: Arc<dyn WorkerCertificates>,
    pub internal_tokens: InternalTokens,
    /// For so long an expired certificate can still be renewed, where its node was not removed.
    pub renew_expired_secs: i64,
    /// Renewals are told there: they stand in no entry of the log.
    pub event_log: EventLogSender,
}
