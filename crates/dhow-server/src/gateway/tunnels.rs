//! Tunnels to workers that nobody can dial: how a worker's connection comes in at the workers' port, and how another server
//! gets one through the server that holds the worker's session.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::net::lobby::Visit;
use crate::net::peer_http::{TUNNEL_PATH, TUNNEL_UPGRADE};
use crate::net::tunnels::{NUMBER_BYTES, Tunnels};
use crate::plane::runtime::RuntimeView;

/// A worker that has dialled back says for whom at once.
const NUMBER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a connection that a worker has dialled back, until it is used no more, or the worker is removed.
pub(super) async fn serve(
    tunnels: &Tunnels,
    node: NodeId,
    mut stream: Box<dyn ByteStream>,
    (visit, view): (&Visit, &RuntimeView),
    end: &CancellationToken,
) {
    let mut number = [0; NUMBER_BYTES];
    let said = tokio::time::timeout(NUMBER_TIMEOUT, stream.read_exact(&mut number)).await;
    if !matches!(said, Ok(Ok(_))) || view.state().node(node).is_none() {
        return;
    }
    let Some((_cut, done)) = tunnels.arrive(node, &number, stream) else {
        tracing::debug!(%node, "a worker has dialled back, and nobody has asked it to");
        return;
    };
    // It is counted where it was asked for.
    visit.prove(None);
    tokio::select! {
        () = done.cancelled() => {}
        () = removed(view, node) => tracing::info!(%node, "the worker is removed: its tunnel is cut"),
        () = end.cancelled() => {}
    }
}

async fn removed(view: &RuntimeView, node: NodeId) {
    let mut changes = view.node_changes(node);
    loop {
        changes.borrow_and_update();
        if view.state().node(node).is_none() {
            return;
        }
        if changes.changed().await.is_err() {
            // The server ends, which others say.
            return std::future::pending().await;
        }
    }
}

/// What other servers ask the holder of a worker's session for, as routes of the servers' own port.
pub fn tunnel_routes(tunnels: Tunnels) -> Router {
    Router::new()
        .route(&format!("{TUNNEL_PATH}/{{node}}"), get(pass_on))
        .with_state(tunnels)
}

/// Ties the caller's connection to one that the worker dials back. TLS between the two goes through it untouched.
async fn pass_on(State(tunnels): State<Tunnels>, Path(node): Path<u64>, mut request: Request) -> Response {
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    };
    let mut tunnel = match tunnels.ask(NodeId(node)).await {
        Ok(tunnel) => tunnel,
        Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {
            return StatusCode::NOT_FOUND.into_response();
        }
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            // Whatever breaks it breaks the TLS inside, and both ends see that.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut tunnel).await;
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(TUNNEL_UPGRADE));
    response
}
