//! The side of those who know a cluster by the fingerprint of its CA alone: the command line, and workers.

use std::sync::Arc;

use dhow_wire::token::CaFingerprint;
use rustls::client::Resumption;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier, crypto, version};

use super::verify::{Expected, ServerVerifier};

/// TLS 1.3 with the one provider of this build, named so that no global choice matters.
pub(super) fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

pub(super) fn client_builder(
    provider: Arc<crypto::CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13])
}

/// Accepts any server of the cluster whose CA has this fingerprint, and nobody else. Where the server is called by
/// does not matter. A worker adds its own certificate with [`ClientConfig::client_auth_cert_resolver`].
pub fn client_config_pinned(fingerprint: CaFingerprint) -> Result<ClientConfig, rustls::Error> {
    let provider = provider();
    let verifier = ServerVerifier::new(Expected::Pinned(fingerprint), &provider);
    let mut config = client_builder(provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}
