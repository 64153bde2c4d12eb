//! A session with a replica of another node: its datagrams wait in a short queue while the tunnel is made, and go to
//! another replica where the first is not there.

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{DRAIN_IDLE, Session};
use crate::proxy::backend::{BackendPlace, BackendState};
use crate::proxy::buffers::Buffer;
use crate::proxy::connect;
use crate::proxy::mesh::{DATA_MAX_BYTES, MeshStream, Origin};
use crate::proxy::reach::BackendStream;
use crate::proxy::routes::{Route, Tried};
use crate::proxy::table::Transport;

/// Datagrams of one client that wait: more are lost, as UDP may. Longer ones are rare, so that this is some 100 KiB.
pub const QUEUE_MAX: usize = 64;

/// Where a session's datagrams go.
enum Pipe {
    Here(UdpSocket),
    There(MeshStream),
}

/// Serves one session to its end.
pub(super) async fn serve(
    session: &Session,
    route: &Route,
    origin: &Origin,
    mut questions: mpsc::Receiver<Bytes>,
    listener: &UdpSocket,
    stop: &CancellationToken,
) {
    let Some(mut pipe) = reach(session, route, origin).await else {
        return;
    };
    let backend = session.backend();
    let mut answer = Vec::new();
    loop {
        tokio::select! {
            received = timeout(DRAIN_IDLE, pipe.receive(&mut answer)) => match received {
                Ok(Some(())) => {
                    session.count(&session.call.meter.sent_bytes, &answer);
                    // A client that is gone is noticed by its silence.
                    let _ = listener.send_to(&answer, session.client).await;
                    answer = Vec::new();
                    session.touch();
                }
                Ok(None) => return,
                Err(_) if session.is_over(&backend, stop) => break,
                Err(_) => {}
            },
            question = questions.recv() => match question {
                Some(question) if pipe.send(&question).await.is_some() => {}
                Some(_) | None => return,
            },
            () = backend.gone.cancelled() => return,
            () = session.end.cancelled() => break,
        }
    }
    if let Pipe::There(mut stream) = pipe {
        // Ended in good order, its connection is used again.
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
    }
}

/// The first replica that is there; the session has it from then on.
async fn reach(session: &Session, route: &Route, origin: &Origin) -> Option<Pipe> {
    let mut tried = Tried::default();
    loop {
        let backend = session.backend();
        match Pipe::open(&backend, origin).await {
            Some(pipe) => {
                backend.accepted();
                return Some(pipe);
            }
            None => {
                backend.refused();
                tried.add(&backend);
                session.move_to(route.pick(&tried)?);
            }
        }
    }
}

impl Pipe {
    async fn open(backend: &Arc<BackendState>, origin: &Origin) -> Option<Self> {
        match &backend.place {
            BackendPlace::Here(addr) => connect::datagrams(*addr).await.ok().map(Self::Here),
            BackendPlace::There { .. } => match backend.reach(origin, Transport::Datagram).await.ok()? {
                BackendStream::There(stream) => Some(Self::There(stream)),
                BackendStream::Here(_) => None,
            },
        }
    }

    /// `None` where nothing more can be sent.
    async fn send(&mut self, datagram: &[u8]) -> Option<()> {
        match self {
            Self::Here(socket) => {
                // What the replica does not take is lost, as UDP may.
                let _ = socket.send(datagram).await;
                Some(())
            }
            Self::There(stream) => stream.send_datagram(datagram).await.ok(),
        }
    }

    /// One datagram into `datagram`, which is kept between calls that were given up; `None` at the end.
    async fn receive(&mut self, datagram: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::There(stream) => stream.receive_datagram(datagram).await.ok()?.then_some(()),
            Self::Here(socket) => loop {
                socket.readable().await.ok()?;
                let mut buffer = Buffer::take();
                match socket.try_recv(buffer.get_mut(..DATA_MAX_BYTES)?) {
                    Ok(count) => {
                        datagram.extend_from_slice(buffer.get(..count)?);
                        return Some(());
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return None,
                }
            },
        }
    }
}
