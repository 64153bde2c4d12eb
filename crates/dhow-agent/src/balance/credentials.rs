//! Hands the proxy what it shows to others: its certificate for other nodes, and those of endpoints.

use dhow_driver::driver::error_chain;

use crate::proxy::{GivenCertificates, MeshIdentity, ProxyClient, RefusedCertificate};

/// Without it other nodes are not reached; the next one is tried in time.
pub async fn give_identity(client: &ProxyClient, identity: Option<&MeshIdentity>) {
    if let Some(identity) = identity
        && let Err(error) = client.identify(identity.clone()).await
    {
        tracing::error!(
            why = error_chain(&error),
            "the balancer did not take the certificate for other nodes"
        );
    }
}

/// Gives those that cannot be shown. Without an answer the next ones are tried in time.
pub async fn give_certificates(
    client: &ProxyClient,
    certificates: Option<&GivenCertificates>,
) -> Vec<RefusedCertificate> {
    let Some(certificates) = certificates else {
        return Vec::new();
    };
    client
        .certify(certificates.clone())
        .await
        .unwrap_or_else(|error| {
            tracing::error!(
                why = error_chain(&error),
                "the balancer did not take the certificates of endpoints"
            );
            Vec::new()
        })
}
