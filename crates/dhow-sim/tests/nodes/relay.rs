//! A connector whose connections can be cut, silenced and refused.

use std::io;
use std::sync::{Arc, Mutex};

use dhow_agent::session::grpc::{Connector, ConnectorFuture, Endpoint};
use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct RelayState {
    is_down: bool,
    connections: Vec<(AbortHandle, CancellationToken)>,
    made: usize,
}

/// The connections of one node to the servers, which the test can cut, silence and refuse; clones are the same.
#[derive(Clone)]
pub struct Relay {
    /// Whose connections these are, which it says first of all.
    node: NodeId,
    inner: Arc<Mutex<RelayState>>,
}

impl Relay {
    pub fn of(node: NodeId) -> Self {
        Self {
            node,
            inner: Arc::default(),
        }
    }

    /// Breaks all connections; both ends are told.
    pub fn cut(&self) {
        for (relay, _) in self.inner.lock().unwrap().connections.drain(..) {
            relay.abort();
        }
    }

    /// Nothing passes on any connection from now on, and nobody is told.
    pub fn silence(&self) {
        for (_, silent) in &self.inner.lock().unwrap().connections {
            silent.cancel();
        }
    }

    /// Refuses new connections, or takes them again.
    pub fn set_down(&self, is_down: bool) {
        self.inner.lock().unwrap().is_down = is_down;
    }

    /// How many connections were made so far.
    pub fn made(&self) -> usize {
        self.inner.lock().unwrap().made
    }
}

impl Connector for Relay {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(async move {
            if self.inner.lock().unwrap().is_down {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionRefused,
                    "the relay is down",
                ));
            }
            let mut server = TcpStream::connect(endpoint.address.as_str()).await?;
            server.write_u64(self.node.0).await?;
            let (node, mut other) = tokio::io::duplex(64 * 1024);
            let silent = CancellationToken::new();
            let silenced = silent.clone();
            let relay = tokio::spawn(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut other, &mut server) => {}
                    () = silenced.cancelled() => std::future::pending().await,
                }
            });
            let mut inner = self.inner.lock().unwrap();
            inner.connections.push((relay.abort_handle(), silent));
            inner.made += 1;
            Ok(Box::new(node) as Box<dyn ByteStream>)
        })
    }
}
