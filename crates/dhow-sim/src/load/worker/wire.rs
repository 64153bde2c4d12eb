//! One connection of a worker: from its address, TLS with its certificate, HTTP/2.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dhow_server::net::tcp;
use dhow_wire::grpc::NodesClient;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower::Service;

use super::gate::{Gate, Hang, Heard};

/// As the agent has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What stands in the place of a host: the server proves itself by its CA's fingerprint.
const SERVER_NAME: &str = "dhow.internal";
const ORIGIN: &str = "http://localhost";

/// Workers of one subnet of loopback. A firewall's rule cuts that many off at once.
pub const SUBNET_WORKERS: usize = 250;
/// The first subnet that is used: far from what other tests bind.
const SUBNET_FIRST: usize = 64;

pub type Client = NodesClient<Wire>;

/// The HTTP/2 connection of a worker on which the generated gRPC client sends its requests.
#[derive(Clone)]
pub struct Wire {
    sender: http2::SendRequest<Body>,
}

/// An open connection; it is reset when this is dropped.
pub struct Connection {
    pub client: Client,
    pub hang: Hang,
    pub heard: Heard,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The worker's own address: no two share their ports, and a group can be cut off by its subnet.
pub fn address_of(place: usize) -> Ipv4Addr {
    let subnet = SUBNET_FIRST + place / SUBNET_WORKERS;
    let octet = |value: usize| u8::try_from(value % 256).unwrap_or_default();
    Ipv4Addr::new(
        127,
        octet(subnet / 200 + 1),
        octet(subnet % 200),
        octet(place % SUBNET_WORKERS + 1),
    )
}

/// Connects, in time.
pub async fn connect(from: Ipv4Addr, server: SocketAddr, tls: &Arc<ClientConfig>) -> io::Result<Connection> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, open(from, server, tls));
    connecting
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "not connected in time")))
}

async fn open(from: Ipv4Addr, server: SocketAddr, tls: &Arc<ClientConfig>) -> io::Result<Connection> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    let stream = socket.connect(server).await?;
    tcp::prepare(&stream);
    // Dropped is reset: what is to be said is said before, and no port stays in use.
    stream.set_zero_linger()?;
    let (hang, heard) = (Hang::default(), Heard::new());
    let gate = Gate {
        stream,
        hang: hang.clone(),
        heard: heard.clone(),
    };
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, gate).await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let driver = tokio::spawn(async move {
        // The session finds out by its own stream.
        let _ = connection.await;
    });
    let client = NodesClient::with_origin(Wire { sender }, hyper::Uri::from_static(ORIGIN));
    Ok(Connection {
        client,
        hang,
        heard,
        driver,
    })
}

impl Service<hyper::Request<Body>> for Wire {
    type Response = hyper::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_worker_has_its_own_address() {
        let all: BTreeSet<_> = (0..40_000).map(address_of).collect();
        assert_eq!(all.len(), 40_000);
        assert!(all.iter().all(|address| address.is_loopback()));
    }
}
