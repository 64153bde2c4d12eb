//! The keys of a cluster: one file that its servers share, and everything that is made from it.
//!
//! The daemon reads the [`ClusterKey`] and makes a [`NodeTls`] of it; the API, the servers' channel and the worker
//! gateway take their TLS configurations from there. The command line and workers know a cluster only by the
//! fingerprint of its CA: [`client_config_pinned`]. No key is ever printed, logged or sent, and nothing here opens a
//! socket.

mod cluster_ca;
mod cluster_key;
mod error;
mod make;
mod node_cert;
mod node_tls;
mod pinned;
mod proxy_cert;
mod verify;
mod why;
mod worker_ca;
mod worker_cas;
mod worker_identity;
mod worker_key;

pub use cluster_ca::ClusterCa;
pub use cluster_key::ClusterKey;
pub use dhow_wire::certificate::{identity_of, node_dns_name, worker_cluster_of};
pub use error::{ClusterKeyError, IssueError};
pub use node_cert::{NODE_CERT_LIFETIME, NodeCert, keep_renewed};
pub use node_tls::{ALPN_API, ALPN_PEERS, ALPN_TUNNEL, ALPN_WORKERS, NodeTls};
pub use pinned::client_config_pinned;
pub use proxy_cert::{PROXY_CERT_RENEWED, ProxyCert};
pub(crate) use why::is_refused_certificate;
pub use why::{is_other_cluster, tls_refusal};
pub use worker_ca::{WorkerCa, csr_key_hash};
pub use worker_cas::{WORKER_CERT_LIFETIME, WorkerCas, believed_cas_pem};
pub use worker_identity::WorkerIdentity;
pub use worker_key::{Validity, WorkerKey};

#[cfg(test)]
mod tests;
