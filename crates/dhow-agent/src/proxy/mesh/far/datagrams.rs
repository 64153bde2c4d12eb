//! A session of datagrams on a stream: each frame is one.

use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::proxy::backend::Lease;
use crate::proxy::buffers::Buffer;
use crate::proxy::mesh::connection::Connection;
use crate::proxy::mesh::frame::DATA_MAX_BYTES;
use crate::proxy::mesh::stream::MeshStream;

/// The calling side ends a session that is silent for half of this.
const SESSION_IDLE: Duration = Duration::from_secs(60);

/// Passes datagrams both ways until the caller ends the session. Gives the connection back where it can carry another
/// stream.
pub(super) async fn serve(
    mut far: MeshStream,
    socket: &UdpSocket,
    lease: &Lease,
    stop: &CancellationToken,
) -> Option<Connection> {
    let mut question = Vec::new();
    let mut used = Instant::now();
    loop {
        tokio::select! {
            received = far.receive_datagram(&mut question) => {
                if !received.ok()? {
                    break;
                }
                // What the replica does not take is lost, as UDP may; the caller learns of a closed port below.
                let _ = socket.send(&question).await;
                question.clear();
                used = Instant::now();
            }
            ready = socket.readable() => {
                ready.ok()?;
                answer(&mut far, socket).await?;
                used = Instant::now();
            }
            () = lease.backend.gone.cancelled() => return None,
            () = stop.cancelled() => return None,
            () = sleep_until(used + SESSION_IDLE) => return None,
        }
    }
    tokio::io::AsyncWriteExt::shutdown(&mut far).await.ok()?;
    far.into_connection()
}

/// One datagram of the replica; `None` where it refuses or the caller is gone.
async fn answer(far: &mut MeshStream, socket: &UdpSocket) -> Option<()> {
    let mut buffer = Buffer::take();
    let received = match socket.try_recv(buffer.get_mut(..DATA_MAX_BYTES)?) {
        Ok(count) => count,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Some(()),
        Err(_) => return None,
    };
    far.send_datagram(buffer.get(..received)?).await.ok()
}
