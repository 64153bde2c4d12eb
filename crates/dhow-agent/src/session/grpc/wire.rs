//! One HTTP/2 connection as the generated client wants it. It is never made again by itself: a connection that breaks
//! ends its session, and the link decides what comes next.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dhow_wire::grpc::{KeepAlive, MESSAGE_BYTES_MAX, NodesClient};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::body::Body;
use tower::Service;

use super::connector::Connector;
use super::heard::Heard;
use super::routes::Endpoint;
use crate::limits::{CALL_TIMEOUT, CONNECT_TIMEOUT};

/// What stands in the place of a host in every request: who the server is was settled by the connector.
const ORIGIN: &str = "http://localhost";

pub(super) type Client = NodesClient<Wire>;

/// The HTTP/2 connection to a server on which the generated gRPC client sends its requests.
#[derive(Clone)]
pub(super) struct Wire {
    sender: http2::SendRequest<Body>,
}

/// Drives a connection, which ends with it.
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    /// Lets the calls that are on their way come to their ends, which all have a deadline.
    pub fn linger(mut self) {
        tokio::spawn(async move {
            // Over as soon as nobody uses it any more.
            let _ = timeout(CALL_TIMEOUT, &mut self.0).await;
        });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects and greets the server, in time; else says why not.
pub(super) async fn connect(
    connector: &dyn Connector,
    endpoint: &Endpoint,
    keep_alive: Option<KeepAlive>,
) -> Result<(Client, Driver, Heard), String> {
    let connected = timeout(CONNECT_TIMEOUT, async {
        let stream = connector.connect(endpoint).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let heard = Heard::new();
        let greeted = greet(heard.listen(stream), keep_alive).await;
        let (client, driver) = greeted.map_err(|error| error.to_string())?;
        Ok((client, driver, heard))
    });
    match connected.await {
        Ok(connected) => connected,
        Err(_) => Err("it cannot be reached in time".into()),
    }
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    keep_alive: Option<KeepAlive>,
) -> Result<(Client, Driver), hyper::Error> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    if let Some(keep_alive) = keep_alive {
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(keep_alive.every)
            .keep_alive_timeout(keep_alive.timeout)
            .keep_alive_while_idle(true);
    }
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the control plane broke");
        }
    });
    let client = NodesClient::with_origin(Wire { sender }, hyper::Uri::from_static(ORIGIN))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok((client, Driver(driver)))
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
