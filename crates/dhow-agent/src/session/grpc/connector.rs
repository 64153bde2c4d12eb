//! How a connection to a server is made. TLS is the connector's business.

use std::future::Future;
use std::io;
use std::pin::Pin;

use dhow_wire::ByteStream;

use super::routes::Endpoint;

pub type ConnectorFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// Makes connections. A call may be dropped at any time.
pub trait Connector: Send + Sync + 'static {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a>;
}
