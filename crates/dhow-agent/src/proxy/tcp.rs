//! TCP listeners: a connection is tied to a backend, bytes pass both ways, each direction ends by itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::TimeSpan;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::backend::Lease;
use super::idle::relay_idle;
use super::judge::Arrival;
use super::limits::Permit;
use super::mesh::Origin;
use super::meters::Call;
use super::reach::BackendStream;
use super::relay::reset;
use super::routes::{Route, RouteSet, StickyTo, Tried};
use super::table::{Peer, Rule, Transport};
use super::{connect, proxy_header};

/// As long as an HTTP request waits when there is no backend.
const BACKEND_WAIT: Duration = super::http::BACKEND_WAIT;

/// Serves one client to its end. Without a backend it is closed, without the right to call it is reset.
pub async fn serve(
    mut routes: watch::Receiver<Arc<RouteSet>>,
    mut client: TcpStream,
    arrival: Arrival,
    permit: Permit,
) {
    let Some(route) = routes.borrow().only().cloned() else {
        return;
    };
    let origin = match &route.who {
        Rule::Judged(_) => {
            let caller = arrival.identify();
            if !arrival.may_call(&route, &caller) {
                reset(client);
                return;
            }
            Origin::of(&caller)
        }
        Rule::Anybody if !arrival.may_call(&route, &Peer::Stranger) => {
            reset(client);
            return;
        }
        Rule::Anybody => Origin::Outside,
    };
    connect::set_up(&client);
    let call = Call::begin(&route.meter);
    let Some((lease, mut backend)) = connected(&mut routes, &origin, &arrival).await else {
        call.failed();
        return;
    };
    call.answered();
    let relayed = tokio::select! {
        relayed = introduced_relay(&route, &arrival, &mut client, &mut backend) => relayed,
        () = lease.backend.gone.cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
    };
    if relayed.is_err() {
        // A reset on either side is one on the other: neither takes what it has for the whole.
        reset(client);
        backend.reset();
    }
    drop(permit);
}

/// Tells the replica who calls, where it wants to know, and ties the two together.
async fn introduced_relay(
    route: &Route,
    arrival: &Arrival,
    client: &mut TcpStream,
    backend: &mut BackendStream,
) -> io::Result<()> {
    if let Some(version) = route.options.proxy_protocol {
        let header = proxy_header::header(version, arrival.peer, arrival.local);
        backend.write_all(&header).await?;
    }
    let idle = route.options.idle_timeout.map(TimeSpan::to_std);
    relay_idle(client, backend, idle, Some(&route.meter)).await
}

async fn connected(
    routes: &mut watch::Receiver<Arc<RouteSet>>,
    origin: &Origin,
    arrival: &Arrival,
) -> Option<(Lease, BackendStream)> {
    let deadline = Instant::now() + BACKEND_WAIT;
    let mut tried = Tried::default();
    loop {
        let route = routes.borrow_and_update().only().cloned()?;
        let sticky = route.options.sticky.map(|_| StickyTo::Address(arrival.peer.ip()));
        while let Some(lease) = route.pick_for(sticky, &tried) {
            match lease.backend.reach(origin, Transport::Stream).await {
                Ok(stream) => {
                    lease.backend.accepted();
                    return Some((lease, stream));
                }
                Err(_) => {
                    lease.backend.refused();
                    lease.fails();
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
