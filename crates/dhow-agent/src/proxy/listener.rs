//! One listener while it runs: its socket, its routes, and the task that accepts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::net::SocketFlags;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, unconstrained};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access_log::AccessLog;
use super::bind::{BACKLOG, Socket};
use super::http::HttpListener;
use super::judge::{Arrival, Judge, Side};
use super::limits::{LISTENER_CONNECTIONS_MAX, Limits, ListenerRoom, Permit};
use super::relay::reset;
use super::routes::RouteSet;
use super::table::{self, Protocol, Transport};
use super::tls::{Certificates, TlsDoor};
use super::udp::UdpListener;
use super::{http, note, proxy_header, tcp, udp};

/// For want of descriptors or memory, accepting pauses instead of spinning.
const PAUSE: Duration = Duration::from_millis(50);

/// How soon another idle client has to go, where the one before has not made room.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of the process and its tasks: every listener is started with them.
#[derive(Clone)]
pub struct ListenerContext {
    pub limits: Limits,
    pub tasks: TaskTracker,
    pub judge: Arc<Judge>,
    pub certificates: Arc<Certificates>,
    pub access_log: AccessLog,
}

/// A bound listener.
pub struct RunningListener {
    pub spec: table::Listener,
    pub socket: Socket,
    routes: watch::Sender<Arc<RouteSet>>,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    /// Since when nobody is there to take connections.
    pub unready: Option<Instant>,
}

/// A listener whose connections nobody would take: bound, and refusing them.
pub struct QuietListener {
    pub spec: table::Listener,
    pub socket: Socket,
}

impl RunningListener {
    pub fn start(
        shared: &ListenerContext,
        side: Side,
        spec: table::Listener,
        socket: Socket,
        routes: RouteSet,
    ) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (sender, receiver) = watch::channel(Arc::new(routes));
        let tls = spec.tls.then(|| {
            let certificates = Arc::clone(&shared.certificates);
            TlsDoor::new(receiver.clone(), certificates)
        });
        let accept = Accept {
            shared: shared.clone(),
            side,
            routes: receiver,
            stop: stop.clone(),
            tls: tls.transpose()?,
            room: shared.limits.listener(),
        };
        let accepting = match &socket {
            Socket::Stream(listener) => shared
                .tasks
                .spawn(accept.streams(listener.clone(), spec.protocol)),
            Socket::Datagram(socket) => shared.tasks.spawn(udp::serve(UdpListener {
                socket: socket.clone(),
                addr: spec.addr,
                side,
                routes: accept.routes,
                stop: accept.stop,
                room: accept.room,
                shared: accept.shared,
            })),
        };
        Ok(Self {
            unready: (!spec.is_ready()).then(Instant::now),
            spec,
            socket,
            routes: sender,
            stop,
            accepting,
        })
    }

    /// Accepts nothing more from here on, and the address is free once sessions of UDP are over.
    pub async fn close(self) {
        self.stop.cancel();
        // It cannot panic, and a runtime that ends has closed the socket too.
        let _ = self.accepting.await;
    }

    /// Refuses connections from here on; those that are open stay. Gives what is left of it.
    pub async fn quieten(self) -> QuietListener {
        let (spec, socket) = (self.spec.clone(), self.socket.clone());
        self.close().await;
        if let Err(error) = socket.quieten() {
            // Whoever connects waits in vain, as before.
            note(&format!("{} cannot be closed: {error}", spec.addr));
        }
        QuietListener { spec, socket }
    }

    /// Requests that are under way keep the backend that they have.
    pub fn reroute(&mut self, spec: table::Listener, routes: RouteSet) {
        self.unready = match spec.is_ready() {
            true => None,
            false => self.unready.or_else(|| Some(Instant::now())),
        };
        self.spec = spec;
        self.routes.send_replace(Arc::new(routes));
    }
}

struct Accept {
    shared: ListenerContext,
    side: Side,
    routes: watch::Receiver<Arc<RouteSet>>,
    stop: CancellationToken,
    tls: Option<TlsDoor>,
    room: ListenerRoom,
}

impl Accept {
    async fn streams(self, listener: Arc<TcpListener>, protocol: Protocol) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept(&listener, protocol) => {}
        }
        // Those that the kernel has let in already are served too: closing now would cut them.
        for _ in 0..BACKLOG {
            let room = self.shared.limits.permit(&self.room, self.side);
            let Some(permit) = unconstrained(room).now_or_never().flatten() else {
                return;
            };
            match take_waiting(&listener) {
                Ok((stream, peer)) => self.serve(stream, peer, permit, protocol),
                Err(error) if is_of_one_client(&error) => {}
                Err(_) => return,
            }
        }
    }

    async fn accept(&self, listener: &TcpListener, protocol: Protocol) {
        // The permit comes first: without room, connections wait in the kernel.
        while let Some(permit) = self.permit(listener).await {
            match listener.accept().await {
                Ok((stream, peer)) => self.serve(stream, peer, permit, protocol),
                Err(error) if is_of_one_client(&error) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Waits for room, and tells where there is none.
    async fn permit(&self, listener: &TcpListener) -> Option<Permit> {
        // A task that has done much at once is told to wait where there is room too: that would be taken for a full house.
        let mut waiting = std::pin::pin!(unconstrained(self.shared.limits.permit(&self.room, self.side)));
        if let Some(permit) = waiting.as_mut().now_or_never() {
            return permit;
        }
        if self.shared.limits.tells_full()
            && let Ok(addr) = listener.local_addr()
        {
            let Limits { connections_max, .. } = &self.shared.limits;
            note(&format!(
                "{addr} takes no more connections until others end: at most {LISTENER_CONNECTIONS_MAX} are open there, and \
                 {connections_max} on this node"
            ));
        }
        // Who has nothing under way goes for who may have.
        loop {
            self.shared.limits.idle_clients.make_room();
            if let Ok(permit) = tokio::time::timeout(ROOM_INTERVAL, waiting.as_mut()).await {
                return permit;
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: Permit, protocol: Protocol) {
        let tasks = &self.shared.tasks;
        // A client that has gone again has no address.
        let Ok(local) = stream.local_addr() else { return };
        let permit = match self.side {
            Side::Host => Some(permit),
            Side::Services => self.shared.limits.count(permit, peer.ip()),
        };
        let Some(permit) = permit else {
            return reset(stream);
        };
        let arrival = Arrival {
            judge: self.shared.judge.clone(),
            side: self.side,
            transport: Transport::Stream,
            peer,
            local,
        };
        let listener = HttpListener {
            routes: self.routes.clone(),
            stop: self.stop.clone(),
            tasks: tasks.clone(),
            limits: self.shared.limits.clone(),
            room: self.room.clone(),
            tls: self.tls.clone(),
            certificates: Arc::clone(&self.shared.certificates),
            access_log: self.shared.access_log.clone(),
        };
        tasks.spawn(async move {
            let Some((stream, arrival)) = introduced(stream, arrival, &listener).await else {
                return;
            };
            match protocol {
                Protocol::Http => http::serve(listener, stream, arrival, permit).await,
                Protocol::Tcp | Protocol::Udp => tcp::serve(listener.routes, stream, arrival, permit).await,
            }
        });
    }
}

/// Hears from a proxy in front who the client is, where that is to say it; one that does not is cut. Whoever is told apart
/// from others is never known by somebody's word.
async fn introduced(
    mut stream: TcpStream,
    mut arrival: Arrival,
    listener: &HttpListener,
) -> Option<(TcpStream, Arrival)> {
    let is_expected = arrival.side == Side::Host && arrival.judge.expects_header(arrival.peer.ip());
    if is_expected && !listener.routes.borrow().is_judged() {
        match proxy_header::take(&mut stream).await {
            Ok(Some(client)) => arrival.peer = client,
            Ok(None) => {}
            Err(_) => {
                reset(stream);
                return None;
            }
        }
    }
    Some((stream, arrival))
}

/// Takes a connection that waits in the kernel. The kernel itself is asked: the runtime may not have heard of it yet.
fn take_waiting(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = std::net::TcpStream::from(rustix::net::accept_with(listener, flags)?);
    let peer = stream.peer_addr()?;
    Ok((TcpStream::from_std(stream)?, peer))
}

/// A client that left before it was accepted says nothing about the next.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
    )
}
