//! UDP listeners: datagrams of one client go to one backend for as long as either speaks.

mod tunnel;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::backend::{BackendState, Lease};
use super::connect;
use super::judge::{Arrival, Side};
use super::limits::{ListenerRoom, ProcessPermit, UDP_SESSIONS_MAX};
use super::listener::ListenerContext;
use super::mesh::Origin;
use super::meters::{self, Call};
use super::routes::{RouteSet, StickyTo, Tried};
use super::table::{Peer, Rule, Transport};

/// A session without a datagram for this long has ended.
const SESSION_IDLE: Duration = Duration::from_secs(30);
/// The same where the backend drains or the listener ends. Sessions look this often whether that is so.
const DRAIN_IDLE: Duration = Duration::from_secs(2);
/// The longest datagram that IP can carry.
const DATAGRAM_MAX_BYTES: usize = 64 << 10;
/// A datagram that the kernel has no room for within this time is lost, as UDP may: the others wait for it.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);
/// For want of memory or descriptors, reading pauses instead of spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// What the task of one UDP listener works with.
pub struct UdpListener {
    pub socket: Arc<UdpSocket>,
    pub addr: SocketAddr,
    pub side: Side,
    pub routes: watch::Receiver<Arc<RouteSet>>,
    pub stop: CancellationToken,
    pub room: ListenerRoom,
    pub shared: ListenerContext,
}

type Sessions = Arc<Mutex<HashMap<SocketAddr, Arc<Session>>>>;

struct Session {
    client: SocketAddr,
    link: Link,
    lease: Mutex<Lease>,
    begin: Instant,
    last_ms: AtomicU64,
    ended: AtomicBool,
    end: CancellationToken,
    call: Call,
    _permit: ProcessPermit,
}

/// How a session's datagrams reach the backend.
enum Link {
    /// A socket that is connected to it.
    Here(UdpSocket),
    /// To the task that has the tunnel.
    There(mpsc::Sender<Bytes>),
}

/// Serves until the listener is stopped. Sessions go on until they are idle.
pub async fn serve(mut listener: UdpListener) {
    let sessions = Sessions::default();
    let mut datagram = Vec::with_capacity(DATAGRAM_MAX_BYTES);
    loop {
        datagram.clear();
        tokio::select! {
            () = listener.stop.cancelled() => return,
            changed = listener.routes.changed() => match changed {
                Ok(()) => drop_unrouted(&listener, &sessions),
                Err(_) => return,
            },
            received = listener.socket.recv_buf_from(&mut datagram) => match received {
                Ok((_, client)) => listener.pass(&sessions, client, &datagram).await,
                // A client that refused an answer makes the next read fail: that is no reason to stop.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
        }
    }
}

/// Sessions with backends that the route no longer has end: the next datagram begins a new one.
fn drop_unrouted(listener: &UdpListener, sessions: &Sessions) {
    let route = listener.routes.borrow().only().cloned();
    lock(sessions).retain(|_, session| {
        let stays = route.as_ref().is_some_and(|route| route.has(&session.backend()));
        if !stays {
            session.end.cancel();
        }
        stays
    });
}

impl UdpListener {
    /// Sends a client's datagram on, to another backend where the first is not there.
    async fn pass(&self, sessions: &Sessions, client: SocketAddr, datagram: &[u8]) {
        let mut tried = Tried::default();
        loop {
            let known = lock(sessions).get(&client).cloned();
            let known = known.filter(|session| !session.ended.load(Ordering::Relaxed));
            let session = match known {
                // An address of a container, or a port of this host, may be another's by now.
                Some(session) if self.origin(client).is_none() => {
                    session.end.cancel();
                    return;
                }
                Some(session) => session,
                None => match self.begin(sessions, client, &tried).await {
                    Some(session) => session,
                    // No backend or no room: UDP is allowed to lose it.
                    None => return,
                },
            };
            session.touch();
            session.count(&session.call.meter.received_bytes, datagram);
            match &session.link {
                Link::Here(socket) => {
                    let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(datagram)).await;
                    match sent {
                        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                            session.refused();
                            tried.add(&session.backend());
                        }
                        Ok(_) | Err(_) => return,
                    }
                }
                Link::There(queue) => match queue.try_send(Bytes::copy_from_slice(datagram)) {
                    Ok(()) | Err(TrySendError::Full(_)) => return,
                    // Its task has just ended.
                    Err(TrySendError::Closed(_)) => session.ended.store(true, Ordering::Relaxed),
                },
            }
        }
    }

    /// Who calls, as other nodes are told; `None` where it may not.
    fn origin(&self, client: SocketAddr) -> Option<Origin> {
        let routes = self.routes.borrow();
        let route = routes.only()?;
        let arrival = Arrival {
            judge: self.shared.judge.clone(),
            side: self.side,
            transport: Transport::Datagram,
            peer: client,
            local: self.addr,
        };
        match &route.who {
            Rule::Judged(_) => {
                let caller = arrival.identify();
                arrival.may_call(route, &caller).then(|| Origin::of(&caller))
            }
            Rule::Anybody => arrival
                .may_call(route, &Peer::Stranger)
                .then_some(Origin::Outside),
        }
    }

    async fn begin(&self, sessions: &Sessions, client: SocketAddr, tried: &Tried) -> Option<Arc<Session>> {
        let origin = self.origin(client)?;
        if lock(sessions).len() >= UDP_SESSIONS_MAX {
            return None;
        }
        let permit = self.shared.limits.try_process(&self.room)?;
        let route = self.routes.borrow().only().cloned()?;
        let call = Call::begin(&route.meter);
        let sticky = route.options.sticky.map(|_| StickyTo::Address(client.ip()));
        let Some(lease) = route.pick_for(sticky, tried) else {
            call.failed();
            return None;
        };
        let (link, questions) = match lease.backend.addr() {
            Some(addr) => (Link::Here(connect::datagrams(addr).await.ok()?), None),
            None => {
                let (sender, questions) = mpsc::channel(tunnel::QUEUE_MAX);
                (Link::There(sender), Some(questions))
            }
        };
        let session = Arc::new(Session {
            client,
            link,
            lease: Mutex::new(lease),
            begin: Instant::now(),
            last_ms: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            end: CancellationToken::new(),
            call,
            _permit: permit,
        });
        lock(sessions).insert(client, session.clone());
        let (socket, stop, sessions) = (self.socket.clone(), self.stop.clone(), sessions.clone());
        let ours = session.clone();
        self.shared.tasks.spawn(async move {
            match questions {
                Some(questions) => tunnel::serve(&ours, &route, &origin, questions, &socket, &stop).await,
                None => ours.answer(&socket, &stop).await,
            }
            ours.ended.store(true, Ordering::Relaxed);
            let mut sessions = lock(&sessions);
            if sessions.get(&client).is_some_and(|now| Arc::ptr_eq(now, &ours)) {
                sessions.remove(&client);
            }
        });
        Some(session)
    }
}

impl Session {
    /// Sends the backend's datagrams to the client until both are silent.
    async fn answer(&self, listener: &UdpSocket, stop: &CancellationToken) {
        let Link::Here(socket) = &self.link else {
            return;
        };
        let backend = self.backend();
        loop {
            let ready = tokio::select! {
                ready = tokio::time::timeout(DRAIN_IDLE, socket.readable()) => ready,
                () = backend.gone.cancelled() => return,
                () = self.end.cancelled() => return,
            };
            match ready {
                Ok(Ok(())) => match self.relay(socket, listener).await {
                    Ok(()) => self.touch(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return self.refused(),
                    Err(_) => return,
                },
                Ok(Err(_)) => return,
                Err(_) if self.is_over(&backend, stop) => return,
                Err(_) => {}
            }
        }
    }

    /// Whether it has been silent for long enough.
    fn is_over(&self, backend: &BackendState, stop: &CancellationToken) -> bool {
        let is_draining = backend.is_draining() || stop.is_cancelled();
        let limit = if is_draining { DRAIN_IDLE } else { SESSION_IDLE };
        self.idle() >= limit
    }

    fn backend(&self) -> Arc<BackendState> {
        Arc::clone(&self.lease().backend)
    }

    /// Has another backend from now on.
    fn move_to(&self, lease: Lease) {
        *self.lease() = lease;
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        // Nothing that runs under the lock leaves it half changed.
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn relay(&self, socket: &UdpSocket, listener: &UdpSocket) -> io::Result<()> {
        // Made for one datagram: a thousand idle sessions must not hold a thousand of these.
        let mut datagram = Vec::with_capacity(DATAGRAM_MAX_BYTES);
        socket.try_recv_buf(&mut datagram)?;
        self.count(&self.call.meter.sent_bytes, &datagram);
        // A client that is gone is noticed by its silence.
        let _ = listener.send_to(&datagram, self.client).await;
        Ok(())
    }

    fn count(&self, bytes: &AtomicU64, datagram: &[u8]) {
        meters::add(bytes, u64::try_from(datagram.len()).unwrap_or(u64::MAX));
    }

    fn refused(&self) {
        self.backend().refused();
        self.ended.store(true, Ordering::Relaxed);
        self.end.cancel();
    }

    fn touch(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn lock(sessions: &Sessions) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Session>>> {
    // Nothing that runs under the lock leaves the table half changed.
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}
