//! What follows a `101`: two byte streams, tied together until both have ended.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Connection;
use crate::proxy::backend::Lease;
use crate::proxy::relay::relay_counted;

/// Ties the client's stream to the backend's, in a task of its own: the connection's task ends with the
/// response.
pub fn spawn(connection: Arc<Connection>, client: OnUpgrade, backend: OnUpgrade, lease: Lease) {
    let tasks = connection.listener.tasks.clone();
    tasks.spawn(async move {
        let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else {
            return;
        };
        let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
        let meter = lease.call.as_ref().map(|call| Arc::clone(&call.meter));
        tokio::select! {
            _ = relay_counted(&mut client, &mut backend, meter.as_deref()) => {}
            () = lease.backend.gone.cancelled() => {}
        }
        drop((lease, connection));
    });
}
