//! The certificate of this server: made at start, renewed by the process itself, and never on disk.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dhow_core::ids::NodeId;
use rcgen::{KeyPair, PKCS_ED25519};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureScheme, crypto};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::cluster_ca::ClusterCa;
use super::error::IssueError;
use crate::clock::Clock;

pub const NODE_CERT_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How often the age is looked at. Wall time may jump, so that one long sleep would not do.
const LOOK_EVERY_MS: u64 = 60_000;

/// This server's certificate, which its task renews. Connections ask it for the certificate of the moment.
pub struct NodeCert {
    node: NodeId,
    ca: Arc<ClusterCa>,
    lifetime: Duration,
    current: RwLock<Current>,
}

#[derive(Clone)]
struct Current {
    certified: Arc<CertifiedKey>,
    made_unix_secs: i64,
}

impl fmt::Debug for NodeCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeCert({})", self.node)
    }
}

impl NodeCert {
    pub fn new(
        ca: Arc<ClusterCa>,
        node: NodeId,
        now_unix_secs: i64,
        lifetime: Duration,
    ) -> Result<Self, IssueError> {
        let current = RwLock::new(make(&ca, node, now_unix_secs, lifetime)?);
        Ok(Self {
            node,
            ca,
            lifetime,
            current,
        })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Makes a new one where two thirds of the life are over, or the clock has gone back behind its beginning. Says
    /// whether it did. Connections that are open keep the old one.
    pub fn renew_if_due(&self, now_unix_secs: i64) -> Result<bool, IssueError> {
        let made = self.current().made_unix_secs;
        let due_secs = i64::try_from(self.lifetime.as_secs() / 3 * 2).unwrap_or(i64::MAX);
        if (made..made.saturating_add(due_secs)).contains(&now_unix_secs) {
            return Ok(false);
        }
        let fresh = make(&self.ca, self.node, now_unix_secs, self.lifetime)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }

    /// The chain and the key that a connection shows now.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        self.current().certified
    }

    fn current(&self) -> Current {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn make(ca: &ClusterCa, node: NodeId, now_unix_secs: i64, lifetime: Duration) -> Result<Current, IssueError> {
    let pair = KeyPair::generate_for(&PKCS_ED25519)?;
    let leaf = ca.issue_node(&pair, node, now_unix_secs, lifetime)?;
    let der = Zeroizing::new(pair.serialize_der());
    let key = crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der.as_slice()));
    let key = key.map_err(IssueError::Key)?;
    // The CA goes along, for those who know only its fingerprint.
    let chain = vec![leaf, ca.certificate().clone()];
    Ok(Current {
        certified: Arc::new(CertifiedKey::new(chain, key)),
        made_unix_secs: now_unix_secs,
    })
}

impl ResolvesServerCert for NodeCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }
}

impl ResolvesClientCert for NodeCert {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Renews the certificate until the end.
pub async fn keep_renewed(cert: Arc<NodeCert>, clock: Arc<dyn Clock>, cancel: CancellationToken) {
    loop {
        let at_ms = clock.monotonic_ms().saturating_add(LOOK_EVERY_MS);
        tokio::select! {
            () = clock.sleep_until_monotonic(at_ms) => {}
            () = cancel.cancelled() => return,
        }
        match cert.renew_if_due(clock.wall_unix_ms().div_euclid(1_000)) {
            Ok(true) => tracing::info!(node = %cert.node(), "the certificate of this server is renewed"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the certificate of this server cannot be renewed"),
        }
    }
}
