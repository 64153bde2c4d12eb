//! TCP listeners: a connection is tied to a backend, bytes pass both ways, each direction ends by itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::backend::Lease;
use super::connect;
use super::judge::Arrival;
use super::limits::Permit;
use super::mesh::Origin;
use super::meters::Call;
use super::reach::BackendStream;
use super::relay::{relay_counted, reset};
use super::routes::{RouteSet, Tried};
use super::table::Transport;

/// As long as an HTTP request waits when there is no backend.
const BACKEND_WAIT: Duration = super::http::BACKEND_WAIT;

/// Serves one client to its end. Without a backend it is closed, without the right to call it is reset.
pub async fn serve(
    mut routes: watch::Receiver<Arc<RouteSet>>,
    mut client: TcpStream,
    arrival: Arrival,
    permit: Permit,
) {
    let judged = {
        let routes = routes.borrow();
        routes.only().filter(|_| routes.is_judged()).cloned()
    };
    let origin = match judged {
        Some(route) => {
            let caller = arrival.identify();
            if !arrival.may_call(&route, &caller) {
                reset(client);
                return;
            }
            Origin::of(&caller)
        }
        None => Origin::Outside,
    };
    connect::set_up(&client);
    let Some(call) = routes.borrow().only().map(|route| Call::begin(&route.meter)) else {
        return;
    };
    let Some((lease, mut backend)) = connected(&mut routes, &origin).await else {
        call.failed();
        return;
    };
    call.answered();
    let relayed = tokio::select! {
        relayed = relay_counted(&mut client, &mut backend, Some(&call.meter)) => relayed,
        () = lease.backend.gone.cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
    };
    if relayed.is_err() {
        // A reset on either side is one on the other: neither takes what it has for the whole.
        reset(client);
        backend.reset();
    }
    drop(permit);
}

async fn connected(
    routes: &mut watch::Receiver<Arc<RouteSet>>,
    origin: &Origin,
) -> Option<(Lease, BackendStream)> {
    let deadline = Instant::now() + BACKEND_WAIT;
    let mut tried = Tried::default();
    loop {
        let route = routes.borrow_and_update().only().cloned()?;
        while let Some(lease) = route.pick(&tried) {
            match lease.backend.reach(origin, Transport::Stream).await {
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
