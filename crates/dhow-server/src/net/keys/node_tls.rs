//! Every TLS configuration of a server.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::tls;
use dhow_wire::token::CaFingerprint;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use super::cluster_ca::ClusterCa;
use super::cluster_key::ClusterKey;
use super::error::IssueError;
use super::node_cert::{NODE_CERT_LIFETIME, NodeCert};
use super::pinned::provider;
use super::verify::ExpectedServer;
use super::worker_ca::WorkerCa;
use super::worker_cas::{WorkerCas, WorkerVerifier};

/// The protocols of each port: none takes a connection that was meant for another.
pub const ALPN_API: [&[u8]; 2] = [b"h2", b"http/1.1"];
pub const ALPN_PEERS: [&[u8]; 1] = [b"dhow-peer/1"];
pub const ALPN_WORKERS: [&[u8]; 1] = [b"h2"];

/// What a worker speaks on a connection that it has dialled back to a server.
pub const ALPN_TUNNEL: &[u8] = b"dhow-tunnel/1";

/// Whether a caller without a certificate gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificate {
    Required,
    Optional,
}

/// What a server needs for TLS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeTls {
    ca: Arc<ClusterCa>,
    cert: Arc<NodeCert>,
}

impl NodeTls {
    /// For this node, from the key. [`super::keep_renewed`] keeps its certificate fresh.
    pub fn new(key: &ClusterKey, node: NodeId, now_unix_secs: i64) -> Result<Self, IssueError> {
        let ca = Arc::new(ClusterCa::new(key)?);
        let cert = NodeCert::new(Arc::clone(&ca), node, now_unix_secs, NODE_CERT_LIFETIME)?;
        Ok(Self::with(ca, Arc::new(cert)))
    }

    pub fn with(ca: Arc<ClusterCa>, cert: Arc<NodeCert>) -> Self {
        Self { ca, cert }
    }

    pub fn node(&self) -> NodeId {
        self.cert.node()
    }

    pub fn ca(&self) -> &Arc<ClusterCa> {
        &self.ca
    }

    pub fn cert(&self) -> &Arc<NodeCert> {
        &self.cert
    }

    pub fn fingerprint(&self) -> CaFingerprint {
        self.ca.fingerprint()
    }

    /// The API: members and workers show who they are, others bring a token.
    pub fn server_config_api(&self, workers: &[WorkerCa]) -> Result<ServerConfig, Error> {
        let mut roots = self.members()?;
        add_workers(&mut roots, workers)?;
        self.server_config(roots, Certificate::Optional, &ALPN_API)
    }

    /// The servers' own channel.
    pub fn server_config_members(&self) -> Result<ServerConfig, Error> {
        self.server_config(self.members()?, Certificate::Required, &ALPN_PEERS)
    }

    /// The port of the workers. Who registers has no certificate yet; a worker knows this end by the fingerprint in
    /// its token, which is the CA's that made the certificate shown here. One with an expired certificate is let in:
    /// whoever serves the connection tells it apart by its age.
    pub fn server_config_workers(&self, workers: Arc<WorkerCas>) -> Result<ServerConfig, Error> {
        let [session] = ALPN_WORKERS;
        self.server_config_with(Arc::new(WorkerVerifier(workers)), &[session, ALPN_TUNNEL])
    }

    /// Calls one worker, and no other, as this server.
    pub fn client_config_worker(
        &self,
        workers: &WorkerCas,
        expected: NodeId,
        alpn: &[&[u8]],
    ) -> Result<ClientConfig, Error> {
        let expected = ExpectedServer::Worker {
            node: expected,
            roots: workers.roots(),
        };
        self.client_config(expected, alpn)
    }

    /// Calls one node, and no other, as this one.
    pub fn client_config_member(&self, expected: NodeId, alpn: &[&[u8]]) -> Result<ClientConfig, Error> {
        let expected = ExpectedServer::Node {
            node: expected,
            roots: Arc::new(self.members()?),
        };
        self.client_config(expected, alpn)
    }

    fn client_config(&self, expected: ExpectedServer, alpn: &[&[u8]]) -> Result<ClientConfig, Error> {
        tls::client_config(&provider(), expected, Some(Arc::clone(&self.cert) as _), alpn)
    }

    fn members(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.certificate().clone())?;
        Ok(roots)
    }

    fn server_config(
        &self,
        roots: RootCertStore,
        certificate: Certificate,
        alpn: &[&[u8]],
    ) -> Result<ServerConfig, Error> {
        let is_empty = roots.is_empty();
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let built = match certificate {
            Certificate::Optional if is_empty => Ok(WebPkiClientVerifier::no_client_auth()),
            Certificate::Optional => builder.allow_unauthenticated().build(),
            Certificate::Required => builder.build(),
        };
        let verifier = built.map_err(|error| Error::General(error.to_string()))?;
        self.server_config_with(verifier, alpn)
    }

    fn server_config_with(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        alpn: &[&[u8]],
    ) -> Result<ServerConfig, Error> {
        tls::server_config(&provider(), verifier, Arc::clone(&self.cert) as _, alpn)
    }
}

fn add_workers(roots: &mut RootCertStore, workers: &[WorkerCa]) -> Result<(), Error> {
    workers
        .iter()
        .try_for_each(|ca| roots.add(ca.certificate().clone()))
}
