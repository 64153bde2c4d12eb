//! What stands between a socket and its frames: TLS between members.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::net::identity::Identity;
use crate::net::keys::{
    ALPN_PEERS, NodeTls, identity_of, is_refused_certificate, node_dns_name, tls_refusal,
};

/// Proves to the other end who this is, and that it is the node that is meant.
pub(super) async fn connect(
    tls: &NodeTls,
    stream: TcpStream,
    node: u64,
) -> Result<Box<dyn ByteStream>, String> {
    let node = NodeId(node);
    let config = tls.client_config_member(node, &ALPN_PEERS);
    let config = config.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(node_dns_name(node)).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| tls_refusal(&error))?))
}

/// Why a caller has not proved to be a server of this cluster.
#[derive(Debug)]
pub(super) struct Unproved {
    pub why: String,
    /// It has shown something that is not good; others have merely gone, or said nothing.
    pub is_refused: bool,
}

impl From<std::io::Error> for Unproved {
    fn from(error: std::io::Error) -> Self {
        Self {
            why: tls_refusal(&error),
            is_refused: is_refused_certificate(&error),
        }
    }
}

impl Unproved {
    pub fn refused(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_refused: true,
        }
    }
}

/// The side that listens.
pub(super) struct Doorman(TlsAcceptor);

impl Doorman {
    pub fn new(tls: &NodeTls) -> Result<Self, rustls::Error> {
        let config = Arc::new(tls.server_config_members()?);
        Ok(Self(TlsAcceptor::from(config)))
    }

    /// The caller's node, which it has proved.
    pub async fn accept(&self, stream: TcpStream) -> Result<(Box<dyn ByteStream>, u64), Unproved> {
        let stream = self.0.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        match shown.and_then(|chain| identity_of(chain.first()?)) {
            Some(Identity::Member(node)) => Ok((Box::new(stream), node.0)),
            Some(Identity::Worker(_)) | None => Err(Unproved::refused("its certificate is no server's")),
        }
    }
}
