//! TCP listeners: a connection is tied to a backend, bytes pass both ways, each direction ends by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::backend::Lease;
use super::connect;
use super::limits::Permit;
use super::routes::{RouteSet, Tried};

/// Per direction. A connection costs twice this while it lives.
pub const TUNNEL_BUFFER_BYTES: usize = 16 << 10;
/// As long as an HTTP request waits when there is no backend.
const BACKEND_WAIT: Duration = super::http::BACKEND_WAIT;

/// Serves one client to its end. Without a backend it is closed.
pub async fn serve(mut routes: watch::Receiver<Arc<RouteSet>>, mut client: TcpStream, permit: Permit) {
    connect::set_up(&client);
    let Some((lease, mut backend)) = connected(&mut routes).await else {
        return;
    };
    let size = TUNNEL_BUFFER_BYTES;
    tokio::select! {
        // A reset on either side ends both.
        _ = copy_bidirectional_with_sizes(&mut client, &mut backend, size, size) => {}
        () = lease.backend.gone.cancelled() => {}
    }
    drop(permit);
}

async fn connected(routes: &mut watch::Receiver<Arc<RouteSet>>) -> Option<(Lease, TcpStream)> {
    let deadline = Instant::now() + BACKEND_WAIT;
    let mut tried = Tried::default();
    loop {
        let route = routes.borrow_and_update().only().cloned()?;
        while let Some(lease) = route.pick(&tried) {
            match connect::connect(lease.backend.addr).await {
                Ok(stream) => {
                    lease.backend.accepted();
                    return Some((lease, stream));
                }
                Err(_) => {
                    lease.backend.refused();
                    tried.add(&lease.backend);
                }
            }
        }
        let now = Instant::now();
        if now >= deadline {
            return None;
        }
        let look_again = (now + super::http::BACKEND_LOOK_INTERVAL).min(deadline);
        if let Ok(Err(_)) = timeout_at(look_again, routes.changed()).await {
            tokio::time::sleep_until(look_again).await;
        }
        tried.clear();
    }
}
