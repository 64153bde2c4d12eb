//! What stands between a socket and its frames.

use std::net::IpAddr;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::identity::Identity;
use crate::keys::{ALPN_PEERS, NodeTls, identity_of, node_dns_name, tls_refusal};

/// How servers know each other.
#[derive(Clone, Debug)]
pub enum Security {
    /// By certificates of the cluster key.
    Tls(NodeTls),
    /// Not at all: everything on this host is believed, and nothing else is spoken to.
    PlainLoopback,
}

/// A connection, whatever it is made of.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The side that listens.
pub(super) enum Doorman {
    Tls(TlsAcceptor),
    PlainLoopback,
}

impl Security {
    /// Whether an address may be used.
    pub(super) fn allows(&self, ip: IpAddr) -> bool {
        match self {
            Self::Tls(_) => true,
            Self::PlainLoopback => ip.is_loopback(),
        }
    }

    /// Proves to the other end who this is, and that it is the node that is meant.
    pub(super) async fn connect(&self, stream: TcpStream, node: u64) -> Result<Box<dyn Io>, String> {
        match self {
            Self::Tls(tls) => {
                let node = NodeId(node);
                let config = tls.client_config_member(node, &ALPN_PEERS);
                let config = config.map_err(|error| error.to_string())?;
                let name = ServerName::try_from(node_dns_name(node)).map_err(|error| error.to_string())?;
                let connector = TlsConnector::from(Arc::new(config));
                let stream = connector.connect(name, stream).await;
                Ok(Box::new(stream.map_err(|error| tls_refusal(&error))?))
            }
            Self::PlainLoopback => Ok(Box::new(stream)),
        }
    }

    pub(super) fn doorman(&self) -> Result<Doorman, rustls::Error> {
        match self {
            Self::Tls(tls) => {
                let config = Arc::new(tls.server_config_members()?);
                Ok(Doorman::Tls(TlsAcceptor::from(config)))
            }
            Self::PlainLoopback => Ok(Doorman::PlainLoopback),
        }
    }
}

impl Doorman {
    /// The caller's node, where it is proved.
    pub async fn accept(&self, stream: TcpStream) -> Result<(Box<dyn Io>, Option<u64>), String> {
        match self {
            Self::Tls(acceptor) => {
                let stream = acceptor.accept(stream).await;
                let stream = stream.map_err(|error| tls_refusal(&error))?;
                let shown = stream.get_ref().1.peer_certificates();
                match shown.and_then(|chain| identity_of(chain.first()?)) {
                    Some(Identity::Member(node)) => Ok((Box::new(stream), Some(node.0))),
                    Some(Identity::Worker(_)) | None => Err("its certificate is no server's".into()),
                }
            }
            Self::PlainLoopback => Ok((Box::new(stream), None)),
        }
    }
}
