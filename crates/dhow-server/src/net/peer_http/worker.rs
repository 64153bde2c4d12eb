//! TLS between servers and workers, both ways round: a server calls one worker alone, and a worker any server of its
//! cluster.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Dialer;
use crate::net::keys::{NodeTls, WorkerCas, is_other_cluster, node_dns_name, tls_refusal};
use crate::net::tcp;

/// What is spoken inside.
const HTTP1: [&[u8]; 1] = [b"http/1.1"];

/// What stands for the server's name: who it is, its certificate says.
const ANY_SERVER: &str = "server.dhow.internal";

/// What is wrong with a server that showed the certificate of another cluster: asking it again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OtherCluster(String);

/// A server's way to workers.
#[derive(Clone, Debug)]
pub struct WorkerDialer {
    tls: NodeTls,
    workers: Arc<WorkerCas>,
}

impl WorkerDialer {
    pub fn new(tls: NodeTls, workers: Arc<WorkerCas>) -> Self {
        Self { tls, workers }
    }

    /// Makes sure, on a connection that is there already, that this very worker is at its other end.
    pub(super) async fn greet(
        &self,
        node: NodeId,
        stream: Box<dyn ByteStream>,
    ) -> io::Result<Box<dyn ByteStream>> {
        let config = self.tls.client_config_worker(&self.workers, node, &HTTP1);
        connect(stream, config.map_err(io::Error::other)?, node_dns_name(node)).await
    }
}

impl Dialer for WorkerDialer {
    fn dial(&self, node: NodeId, addr: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        let config = self.tls.client_config_worker(&self.workers, node, &HTTP1);
        Box::pin(async move {
            let config = config.map_err(io::Error::other)?;
            let stream = TcpStream::connect(addr).await?;
            tcp::prepare(&stream);
            connect(stream, config, node_dns_name(node)).await
        })
    }
}

/// A worker's way to a server, at an address that is looked up. The configuration says whom it believes.
pub async fn dial_server(address: &str, config: ClientConfig) -> io::Result<Box<dyn ByteStream>> {
    let stream = TcpStream::connect(address).await?;
    tcp::prepare(&stream);
    connect(stream, config, ANY_SERVER.to_owned()).await
}

async fn connect(
    stream: impl ByteStream,
    config: ClientConfig,
    name: String,
) -> io::Result<Box<dyn ByteStream>> {
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    match connected {
        Ok(stream) => Ok(Box::new(stream) as Box<dyn ByteStream>),
        Err(error) if is_other_cluster(&error) => Err(io::Error::other(OtherCluster(tls_refusal(&error)))),
        Err(error) => Err(io::Error::new(error.kind(), tls_refusal(&error))),
    }
}
