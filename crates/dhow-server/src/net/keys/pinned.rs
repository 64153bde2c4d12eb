//! The side of those who know a cluster by the fingerprint of its CA alone: the command line, and workers.

use std::sync::Arc;

use dhow_wire::tls::client_config;
use dhow_wire::token::CaFingerprint;
use rustls::{ClientConfig, crypto};

use super::verify::ExpectedServer;

/// The one provider of this build, named so that no global choice matters.
pub(super) fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

/// Accepts any server of the cluster whose CA has this fingerprint, and nobody else. Where the server is called by
/// does not matter. A worker adds its own certificate with [`ClientConfig::client_auth_cert_resolver`].
pub fn client_config_pinned(fingerprint: CaFingerprint) -> Result<ClientConfig, rustls::Error> {
    client_config(&provider(), ExpectedServer::Pinned(fingerprint), None, &[])
}
