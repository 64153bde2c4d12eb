//! What a worker proves itself with: its key, the certificate that it was given, and the cluster that it belongs to.
//! Connections ask it for the certificate of the moment, so that a renewal needs no restart.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use dhow_core::ids::NodeId;
use dhow_wire::certificate::{identity_of, is_cluster_ca, proxy_node_of, worker_cluster_of};
use dhow_wire::tls;
use dhow_wire::token::CaFingerprint;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};

use super::cluster_ca::fingerprint_of;
use super::error::IssueError;
use super::node_tls::{ALPN_API, ALPN_WORKERS};
use super::pinned::{client_config_pinned, provider};
use super::proxy_cert::{ProxyCert, pem};
use super::worker_key::{Validity, WorkerKey, read_chain};
use crate::net::identity::Identity;

/// A worker's key and certificate of the moment. Its daemon makes the TLS settings of its session and of its own door
/// from it.
pub struct WorkerIdentity {
    key: WorkerKey,
    node: NodeId,
    cluster_id: String,
    cluster_ca: CertificateDer<'static>,
    current: RwLock<Current>,
}

#[derive(Clone)]
struct Current {
    certified: Arc<CertifiedKey>,
    validity: Validity,
    /// The CAs that came with it: those of the servers and of the workers.
    cas: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for WorkerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerIdentity({})", self.node)
    }
}

/// What a chain says.
struct Read {
    leaf: CertificateDer<'static>,
    node: NodeId,
    cluster_id: String,
    cluster_ca: CertificateDer<'static>,
    validity: Validity,
    cas: Vec<CertificateDer<'static>>,
}

fn read(chain_pem: &str) -> Result<Read, IssueError> {
    let wrong = |why| IssueError::Request { why };
    let chain = read_chain(chain_pem)?;
    let (leaf, others) = chain.split_first().ok_or(IssueError::NotOurs)?;
    let Some(Identity::Worker(node)) = identity_of(leaf) else {
        return Err(wrong("its certificate is no worker's"));
    };
    let cluster_ca = others.iter().find(|other| is_cluster_ca(other));
    Ok(Read {
        node,
        cluster_id: worker_cluster_of(leaf).ok_or(wrong("its certificate names no cluster"))?,
        cluster_ca: cluster_ca
            .ok_or(wrong("the CA of the cluster's servers is not with it"))?
            .clone(),
        validity: Validity::of_leaf(leaf).ok_or(wrong("its certificate cannot be read"))?,
        leaf: leaf.clone(),
        cas: others.to_vec(),
    })
}

impl WorkerIdentity {
    /// From the worker's key and what the cluster answered: the leaf first, then the CAs.
    pub fn new(key: WorkerKey, chain_pem: &str) -> Result<Self, IssueError> {
        let read = read(chain_pem)?;
        let certified = Arc::new(key.certified(vec![read.leaf])?);
        Ok(Self {
            key,
            node: read.node,
            cluster_id: read.cluster_id,
            cluster_ca: read.cluster_ca,
            current: RwLock::new(Current {
                certified,
                validity: read.validity,
                cas: read.cas,
            }),
        })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Of the CA of the cluster's servers.
    pub fn fingerprint(&self) -> CaFingerprint {
        fingerprint_of(&self.cluster_ca)
    }

    pub fn validity(&self) -> Validity {
        self.current().validity
    }

    /// Asks for the next certificate.
    pub fn csr_pem(&self) -> Result<String, IssueError> {
        self.key.csr_pem()
    }

    /// Takes a certificate in place of the one there is. It is of the same worker, cluster and key.
    pub fn replace(&self, chain_pem: &str) -> Result<(), IssueError> {
        let read = read(chain_pem)?;
        if (read.node, read.cluster_id.as_str()) != (self.node, self.cluster_id()) {
            return Err(IssueError::Request {
                why: "it is the certificate of another worker",
            });
        }
        if read.cluster_ca != self.cluster_ca {
            return Err(IssueError::Request {
                why: "it comes with another CA of the servers than the one that is trusted here",
            });
        }
        let certified = Arc::new(self.key.certified(vec![read.leaf])?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Current {
            certified,
            validity: read.validity,
            cas: read.cas,
        };
        Ok(())
    }

    /// What the worker's proxy shows to those of other nodes: its own key, with the certificate that the cluster gave for it.
    pub fn proxy_cert(&self, key: &WorkerKey, leaf_pem: &str) -> Result<ProxyCert, IssueError> {
        let leaf = read_chain(leaf_pem)?;
        let leaf = leaf.first().ok_or(IssueError::NotOurs)?;
        if proxy_node_of(leaf) != Some(self.node) {
            return Err(IssueError::Request {
                why: "its certificate is not that of this worker's proxy",
            });
        }
        key.certified(vec![leaf.clone()])?;
        Ok(ProxyCert {
            key_pem: key.reveal_pem(),
            chain_pem: pem(leaf),
            anchors_pem: self.current().cas.iter().map(pem).collect(),
        })
    }

    /// Calls servers of the cluster as this worker.
    pub fn client_config(self: &Arc<Self>) -> Result<ClientConfig, IssueError> {
        let mut config = client_config_pinned(self.fingerprint()).map_err(IssueError::Key)?;
        config.client_auth_cert_resolver = Arc::new(Shown(Arc::clone(self)));
        config.alpn_protocols = ALPN_WORKERS.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// Is called by servers of the cluster, and by nobody else.
    pub fn door_config(self: &Arc<Self>) -> Result<ServerConfig, IssueError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.cluster_ca.clone()).map_err(IssueError::Key)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier =
            verifier.map_err(|error| IssueError::Key(rustls::Error::General(error.to_string())))?;
        let shown = Arc::new(Shown(Arc::clone(self)));
        tls::server_config(&provider(), verifier, shown, &ALPN_API).map_err(IssueError::Key)
    }

    fn current(&self) -> Current {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What a connection shows: the certificate of the moment.
#[derive(Debug)]
struct Shown(Arc<WorkerIdentity>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current().certified)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current().certified)
    }
}
