//! TLS to members: each connection is to one node alone, as its certificate proves.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::Dialer;
use crate::net::keys::{NodeTls, node_dns_name, tls_refusal};

/// What is spoken inside.
const HTTP1: [&[u8]; 1] = [b"http/1.1"];

/// Connects to members of the cluster over TLS, and to none but the node that is meant.
#[derive(Clone, Debug)]
pub struct TlsDialer {
    tls: NodeTls,
    alpn: &'static [&'static [u8]],
}

impl TlsDialer {
    pub fn new(tls: NodeTls) -> Self {
        Self { tls, alpn: &HTTP1 }
    }

    /// The same for another protocol.
    pub fn with_alpn(tls: NodeTls, alpn: &'static [&'static [u8]]) -> Self {
        Self { tls, alpn }
    }
}

impl Dialer for TlsDialer {
    fn dial(&self, node: NodeId, addr: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        let config = self.tls.client_config_member(node, self.alpn);
        Box::pin(async move {
            let config = config.map_err(io::Error::other)?;
            let name = ServerName::try_from(node_dns_name(node)).map_err(io::Error::other)?;
            let stream = tokio::net::TcpStream::connect(addr).await?;
            // Questions are small and wait for their answer.
            stream.set_nodelay(true)?;
            let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
            match connected {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn ByteStream>),
                Err(error) => Err(io::Error::new(error.kind(), tls_refusal(&error))),
            }
        })
    }
}
