//! How a connection to a server is made. TLS is the connector's business.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::routes::Endpoint;

/// A connection over which the session may speak.
pub trait ServerConnection: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ServerConnection for S {}

pub type ConnectorFuture<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn ServerConnection>>> + Send + 'a>>;

/// Makes connections. A call may be dropped at any time.
pub trait Connector: Send + Sync + 'static {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a>;
}

/// Connections in clear, for a cluster on loopback without a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainConnector;

impl Connector for PlainConnector {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(endpoint.address.as_str()).await?;
            // Small messages go out at once; where that cannot be set they are only slower.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as Box<dyn ServerConnection>)
        })
    }
}
