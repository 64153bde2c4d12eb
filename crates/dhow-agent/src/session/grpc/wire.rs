//! One HTTP/2 connection as the generated client wants it. It is never made again by itself: a connection that breaks
//! ends its session, and the link decides what comes next.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dhow_wire::grpc::{KEEP_ALIVE_EVERY_MS, KEEP_ALIVE_TIMEOUT_MS, MESSAGE_BYTES_MAX, NodesClient};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tower::Service;

use super::connector::ServerConnection;

/// What stands in the place of a host in every request: who the server is was settled by the connector.
const ORIGIN: &str = "http://localhost";

pub(super) type Client = NodesClient<Wire>;

/// See the module.
#[derive(Clone)]
pub(super) struct Wire {
    sender: http2::SendRequest<Body>,
}

/// Greets the server. The task drives the connection and ends with it.
pub(super) async fn greet(
    stream: Box<dyn ServerConnection>,
) -> Result<(Client, JoinHandle<()>), hyper::Error> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(KEEP_ALIVE_EVERY_MS))
        .keep_alive_timeout(Duration::from_millis(KEEP_ALIVE_TIMEOUT_MS))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the control plane broke");
        }
    });
    let client = NodesClient::with_origin(Wire { sender }, hyper::Uri::from_static(ORIGIN))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok((client, driver))
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
