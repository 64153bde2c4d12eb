//! Connections to workers that nobody can dial: the server asks over the worker's session, and the worker dials back.
//!
//! The gateway attaches a session for as long as it is open, the workers' port hands in who has dialled back, and whoever
//! needs a connection to a worker's door asks here. What comes back is bytes alone: who is at their other end is proved
//! by the TLS that is spoken on them, as on a connection that the server has dialled itself. Nobody gets in unasked, and a
//! number is good for one worker, once, and for a moment.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a worker says first on a connection that it has dialled back.
pub const NUMBER_BYTES: usize = 16;

/// A number that nobody can guess.
pub type TunnelNumber = [u8; NUMBER_BYTES];

/// Tunnels of one worker and of all, open or asked for: each costs a file here. A worker has as many people who look at its
/// logs and run commands in it.
const PER_NODE_MAX: usize = 32;
const TUNNELS_MAX: usize = 1_024;

/// From the question to the connection: a round trip of the session, then one of TCP and one of TLS.
pub const DIAL_BACK_TIMEOUT: Duration = Duration::from_millis(1_400);

/// All tunnels of this server; clones are the same.
#[derive(Clone)]
pub struct Tunnels(Arc<TunnelsState>);

struct TunnelsState {
    /// Workers whose sessions can be asked.
    sessions: Mutex<BTreeMap<NodeId, mpsc::Sender<TunnelNumber>>>,
    awaited: Mutex<BTreeMap<TunnelNumber, Awaited>>,
    /// How many places each worker has, whichever of its sessions was asked. A worker without one is not here.
    places: Mutex<BTreeMap<NodeId, usize>>,
    room: Arc<Semaphore>,
}

/// One of a worker's places, and one of all, for as long as a tunnel is open or asked for.
struct TunnelPlace {
    tunnels: Tunnels,
    node: NodeId,
    _of_all: OwnedSemaphorePermit,
}

impl Drop for TunnelPlace {
    fn drop(&mut self) {
        let mut places = lock(&self.tunnels.0.places);
        let left = places.get(&self.node).map_or(0, |own| own.saturating_sub(1));
        match left {
            0 => places.remove(&self.node),
            left => places.insert(self.node, left),
        };
    }
}

/// Who waits for a worker to dial back.
struct Awaited {
    node: NodeId,
    taker: oneshot::Sender<Tunnel>,
}

/// A session's end of it: the numbers that its worker is to be asked for.
pub struct Attachment {
    tunnels: Tunnels,
    node: NodeId,
    questions: mpsc::Receiver<TunnelNumber>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self(Arc::new(TunnelsState {
            sessions: Mutex::default(),
            awaited: Mutex::default(),
            places: Mutex::default(),
            room: Arc::new(Semaphore::new(TUNNELS_MAX)),
        }))
    }
}

impl Tunnels {
    /// Questions for this worker go over this session from now on, and over no older one. What is open counts on, however
    /// often a worker opens a new session.
    pub fn attach(&self, node: NodeId) -> Attachment {
        let (sender, questions) = mpsc::channel(PER_NODE_MAX);
        lock(&self.0.sessions).insert(node, sender);
        Attachment {
            tunnels: self.clone(),
            node,
            questions,
        }
    }

    /// Has a worker dial back. An error of the kind `NotConnected` says that this server does not hold its session.
    pub async fn ask(&self, node: NodeId) -> io::Result<Tunnel> {
        let no_session = || {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "this server does not hold its session",
            )
        };
        let full = || io::Error::new(io::ErrorKind::ResourceBusy, "too many tunnels are open");
        let questions = lock(&self.0.sessions)
            .get(&node)
            .cloned()
            .ok_or_else(no_session)?;
        let place = self.place(node).ok_or_else(full)?;
        let number: TunnelNumber = rand::random();
        let (taker, taken) = oneshot::channel();
        lock(&self.0.awaited).insert(number, Awaited { node, taker });
        let _forgotten = Forget {
            tunnels: self.clone(),
            number,
        };
        questions.try_send(number).map_err(|_| no_session())?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not dial back");
        let came = tokio::time::timeout(DIAL_BACK_TIMEOUT, taken).await;
        let mut tunnel = came.map_err(|_| late())?.map_err(|_| late())?;
        tunnel.place = Some(place);
        Ok(tunnel)
    }

    /// Room for one more tunnel of a worker; `None` where there is none.
    fn place(&self, node: NodeId) -> Option<TunnelPlace> {
        let of_all = Arc::clone(&self.0.room).try_acquire_owned().ok()?;
        let mut places = lock(&self.0.places);
        let own = places.get(&node).copied().unwrap_or(0);
        if own >= PER_NODE_MAX {
            return None;
        }
        places.insert(node, own + 1);
        drop(places);
        Some(TunnelPlace {
            tunnels: self.clone(),
            node,
            _of_all: of_all,
        })
    }

    /// Hands over the connection of a worker that has dialled back; `None` where nobody asked this worker for it. The guard
    /// cuts the connection, and the token is cancelled when it is used no more.
    pub fn arrive(
        &self,
        node: NodeId,
        number: &TunnelNumber,
        stream: Box<dyn ByteStream>,
    ) -> Option<(DropGuard, CancellationToken)> {
        let mut awaited = lock(&self.0.awaited);
        // Another worker's is left to that one.
        awaited.get(number).filter(|awaited| awaited.node == node)?;
        let awaited = awaited.remove(number)?;
        let (cut, done) = (CancellationToken::new(), CancellationToken::new());
        let tunnel = Tunnel {
            stream,
            is_cut: Box::pin(cut.clone().cancelled_owned()),
            _done: done.clone().drop_guard(),
            place: None,
        };
        awaited.taker.send(tunnel).ok()?;
        Some((cut.drop_guard(), done))
    }
}

/// Forgets a number that nobody waits for any more.
struct Forget {
    tunnels: Tunnels,
    number: TunnelNumber,
}

impl Drop for Forget {
    fn drop(&mut self) {
        lock(&self.tunnels.0.awaited).remove(&self.number);
    }
}

impl Attachment {
    /// The next number that the worker is asked for.
    pub async fn next(&mut self) -> TunnelNumber {
        match self.questions.recv().await {
            Some(number) => number,
            // A newer session has the questions.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.questions.close();
        let mut sessions = lock(&self.tunnels.0.sessions);
        let is_own = sessions.get(&self.node).is_some_and(mpsc::Sender::is_closed);
        if is_own {
            sessions.remove(&self.node);
        }
    }
}

/// A connection that a worker has dialled back, as bytes.
pub struct Tunnel {
    stream: Box<dyn ByteStream>,
    is_cut: BoxFuture<'static, ()>,
    _done: DropGuard,
    place: Option<TunnelPlace>,
}

impl Tunnel {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.is_cut.as_mut().poll(context) {
            Poll::Ready(()) => {
                // It is not asked again.
                self.is_cut = Box::pin(std::future::ready(()));
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves what they hold half changed.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WORKER: NodeId = NodeId(40);

    async fn asked(
        tunnels: &Tunnels,
        attachment: &mut Attachment,
    ) -> (TunnelNumber, tokio::task::JoinHandle<io::Result<Tunnel>>) {
        let asking = tokio::spawn({
            let tunnels = tunnels.clone();
            async move { tunnels.ask(WORKER).await }
        });
        (attachment.next().await, asking)
    }

    #[tokio::test]
    async fn a_number_is_good_for_its_worker_and_once() {
        let tunnels = Tunnels::default();
        let mut attachment = tunnels.attach(WORKER);
        let (number, asking) = asked(&tunnels, &mut attachment).await;
        let stream = || Box::new(tokio::io::duplex(64).0) as Box<dyn ByteStream>;
        assert!(
            tunnels.arrive(NodeId(41), &number, stream()).is_none(),
            "another worker's"
        );
        assert!(
            tunnels.arrive(WORKER, &[0; NUMBER_BYTES], stream()).is_none(),
            "nobody asked"
        );
        let (ours, mut theirs) = tokio::io::duplex(64);
        let (cut, done) = tunnels.arrive(WORKER, &number, Box::new(ours)).unwrap();
        let mut tunnel = asking.await.unwrap().unwrap();
        assert!(tunnels.arrive(WORKER, &number, stream()).is_none(), "twice");
        theirs.write_all(b"log").await.unwrap();
        let mut read = [0; 3];
        tunnel.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"log");
        // The worker is removed in the middle.
        drop(cut);
        assert!(tunnel.read_u8().await.is_err());
        assert!(!done.is_cancelled());
        drop(tunnel);
        assert!(done.is_cancelled());
    }

    #[tokio::test]
    async fn a_worker_has_so_many_and_a_session_that_ends_none() {
        let tunnels = Tunnels::default();
        let mut attachment = tunnels.attach(WORKER);
        let mut open = Vec::new();
        for _ in 0..PER_NODE_MAX {
            let (number, asking) = asked(&tunnels, &mut attachment).await;
            let arrived = tunnels.arrive(WORKER, &number, Box::new(tokio::io::duplex(64).0));
            open.push((arrived.unwrap(), asking.await.unwrap().unwrap()));
        }
        let full = tunnels.ask(WORKER).await.err().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::ResourceBusy);
        // A newer session takes over, and has no more room for it; the end of the older one takes nothing from it.
        let mut newer = tunnels.attach(WORKER);
        drop(attachment);
        let full = tunnels.ask(WORKER).await.err().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::ResourceBusy);
        open.pop();
        let (number, asking) = asked(&tunnels, &mut newer).await;
        let arrived = tunnels.arrive(WORKER, &number, Box::new(tokio::io::duplex(64).0));
        assert!(arrived.is_some() && asking.await.unwrap().is_ok());
        drop(newer);
        let gone = tunnels.ask(WORKER).await.err().unwrap();
        assert_eq!(gone.kind(), io::ErrorKind::NotConnected);
        assert!(lock(&tunnels.0.awaited).is_empty());
        // Nothing is kept of workers that have gone.
        drop(open);
        assert!(lock(&tunnels.0.places).is_empty());
        assert_eq!(tunnels.0.room.available_permits(), TUNNELS_MAX);
    }
}
