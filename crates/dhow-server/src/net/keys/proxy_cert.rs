//! What this node's proxy shows to those of other nodes. The proxy speaks with strangers and keeps this in its folder,
//! so that it gets a key and a certificate of its own: whoever takes them is no server of the cluster, and no worker.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_ED25519};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::error::IssueError;
use super::node_cert::NODE_CERT_LIFETIME;
use super::node_tls::NodeTls;

/// Key, leaf and the CAs of those who are believed, as PEM.
pub struct ProxyCert {
    pub key_pem: Zeroizing<String>,
    pub chain_pem: String,
    pub anchors_pem: String,
}

impl fmt::Debug for ProxyCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyCert")
    }
}

/// How long a server's proxy has one before it is given the next: a third of its life.
pub const PROXY_CERT_RENEWED: Duration = Duration::from_secs(NODE_CERT_LIFETIME.as_secs() / 3);

impl NodeTls {
    /// A new one for this server's proxy. Which workers are believed the directory says.
    pub fn proxy_cert(&self, now_unix_secs: i64) -> Result<ProxyCert, IssueError> {
        let pair = KeyPair::generate_for(&PKCS_ED25519)?;
        let leaf = self
            .ca()
            .issue_proxy(&pair, self.node(), now_unix_secs, NODE_CERT_LIFETIME)?;
        Ok(ProxyCert {
            key_pem: Zeroizing::new(pair.serialize_pem()),
            chain_pem: pem(&leaf),
            anchors_pem: self.ca().pem(),
        })
    }
}

/// A certificate as text.
pub(super) fn pem(certificate: &CertificateDer<'_>) -> String {
    const LINE_CHARS: usize = 64;
    let text = STANDARD.encode(certificate);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 has no characters of several bytes.
        let (line, later) = rest.split_at_checked(LINE_CHARS).unwrap_or((rest, ""));
        lines.push_str(line);
        lines.push('\n');
        rest = later;
    }
    lines.push_str("-----END CERTIFICATE-----\n");
    lines
}
