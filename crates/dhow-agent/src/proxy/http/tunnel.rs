//! What follows a `101`: two byte streams, tied together until both have ended.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Connection;
use super::exchange::BackendConnection;
use super::patience::Patient;
use crate::proxy::backend::Lease;
use crate::proxy::idle::relay_idle;
use crate::proxy::idle_clients::UnderWay;

/// Ties the client's stream to the backend's, in a task of its own: the connection's task ends with the
/// response.
pub fn spawn(
    connection: Arc<Connection>,
    client: OnUpgrade,
    mut backend: Box<BackendConnection>,
    lease: Lease,
    idle: Option<Duration>,
) {
    let tasks = connection.listener.tasks.clone();
    let under_way = UnderWay::of(Arc::clone(&connection));
    tasks.spawn(async move {
        let Ok(client) = client.await else { return };
        // Of a client's connection that carries others beside it nobody else sees that this one is stalled.
        let mut client = Patient::new(TokioIo::new(client));
        let meter = lease.call.as_ref().map(|call| Arc::clone(&call.meter));
        tokio::select! {
            _ = relay_idle(&mut client, &mut *backend, idle, meter.as_deref()) => {}
            () = lease.backend.gone.cancelled() => {}
        }
        drop((lease, connection, under_way));
    });
}
