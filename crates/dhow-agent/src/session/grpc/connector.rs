//! How a connection to a server is made. TLS is the connector's business.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

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
