//! The side that is called: takes connections of other nodes' proxies, and streams to this node's replicas on them.

mod control;
mod datagrams;
mod relayed;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dhow_core::ids::NodeId;
use dhow_wire::certificate::proxy_node_of;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Frame, bad};
use super::connections::{Connections, Registered};
use super::frame::{self, Answer, BadFrame, Kind, Opening, ShownTicket, Why};
use super::guests::Guests;
use super::own::{Own, Timing};
use super::peer::IDLE_TIMEOUT;
use super::refusals::{Cause, Refusals, Refusee};
use super::stream::MeshStream;
use super::targets::{Target, Targets};
use super::tickets::{HeldTicket, NoTicket};
use super::wire::Wire;
use crate::proxy::backend::Lease;
use crate::proxy::connect;
use crate::proxy::limits::{Limits, ListenerRoom};
use crate::proxy::relay::{relay, reset};
use crate::proxy::table::Transport;

/// From a connection to the end of its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may be without a stream: longer than the calling side keeps it.
const CONNECTION_IDLE: Duration = Duration::from_secs(IDLE_TIMEOUT.as_secs() * 3 / 2);
/// How long an answer may take to be sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// For want of descriptors or memory, accepting pauses instead of spinning.
const PAUSE: Duration = Duration::from_millis(50);
/// Replicas that begin to end at one time: those of a node. A control connection that is further behind hears of the
/// rest by refusals.
const DRAINS_MAX: usize = 1024;

/// The mesh as others call it.
pub struct Far {
    own: Arc<Own>,
    limits: Limits,
    room: ListenerRoom,
    tasks: TaskTracker,
    targets: RwLock<Arc<Targets>>,
    /// By the calling node.
    inbound: Mutex<BTreeMap<u64, Arc<Inbound>>>,
    removed: RwLock<BTreeSet<u64>>,
    guests: Guests,
    refusals: Refusals,
    /// Those who call are told of replicas that begin to drain, and which these were.
    drains: broadcast::Sender<Arc<str>>,
    draining: Mutex<BTreeSet<Arc<str>>>,
    /// No new streams.
    stop: CancellationToken,
}

/// The connections of one calling node.
#[derive(Default)]
struct Inbound {
    connections: Arc<Connections>,
    /// Control connections that live: two while its proxy is replaced.
    controls: AtomicUsize,
}

/// One calling connection.
struct Caller {
    node: u64,
    inbound: Arc<Inbound>,
    ticket: Result<Arc<HeldTicket>, NoTicket>,
}

impl Far {
    pub fn new(own: Arc<Own>, limits: Limits, tasks: TaskTracker) -> Self {
        Self {
            own,
            room: limits.listener(),
            limits,
            tasks,
            targets: RwLock::default(),
            inbound: Mutex::default(),
            removed: RwLock::default(),
            guests: Guests::default(),
            refusals: Refusals::default(),
            drains: broadcast::channel(DRAINS_MAX).0,
            draining: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// What can be called from now on. Those who call are told which replicas begin to drain.
    pub fn set_targets(&self, targets: Targets) {
        let draining = targets.draining();
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(targets);
        let mut told = self.draining();
        for replica in draining.difference(&told) {
            // Nobody may be there to be told.
            let _ = self.drains.send(Arc::clone(replica));
        }
        *told = draining;
    }

    fn draining(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        // Nothing that runs under the lock leaves the set half changed.
        self.draining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes that belong to the cluster no more: their certificates may still be good. What they have open is cut.
    pub fn set_removed(&self, removed: BTreeSet<u64>) {
        let mut now = self.removed.write().unwrap_or_else(PoisonError::into_inner);
        *now = removed.clone();
        drop(now);
        let inbound = self.inbound();
        for (_, theirs) in inbound.iter().filter(|(node, _)| removed.contains(node)) {
            theirs.connections.cut();
        }
    }

    fn is_removed(&self, node: u64) -> bool {
        let removed = self.removed.read().unwrap_or_else(PoisonError::into_inner);
        removed.contains(&node)
    }

    /// No new streams: what is open finishes, idle connections are closed.
    pub fn end(&self) {
        self.stop.cancel();
    }

    fn inbound(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Inbound>>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets nodes without connections.
    pub fn sweep(&self) {
        self.inbound().retain(|_, theirs| theirs.connections.count() > 0);
    }

    /// Takes connections until it is stopped.
    pub async fn serve(self: Arc<Self>, listener: Arc<TcpListener>, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((socket, from)) => {
                    let far = Arc::clone(&self);
                    self.tasks.spawn(async move {
                        if let Some((connection, caller)) = far.greet(Arc::new(socket), from).await {
                            far.attend(connection, caller).await;
                        }
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    pub fn timing(&self) -> Timing {
        self.own.timing
    }

    /// Serves whoever is at the other end of a connection that this node has dialled to be called. It counts as one with the
    /// node that it was dialled to for as long as it lasts.
    pub async fn take_in(&self, socket: Arc<TcpStream>, _registered: &Registered) {
        let Ok(from) = socket.peer_addr() else {
            return;
        };
        if let Some((connection, caller)) = self.greet(socket, from).await {
            self.attend(connection, caller).await;
        }
    }

    /// Lets a stranger prove which node it is; `None` where it does not.
    async fn greet(&self, socket: Arc<TcpStream>, from: SocketAddr) -> Option<(Connection, Caller)> {
        let guest = self.guests.enter(from.ip());
        let credentials = self.own.credentials()?;
        connect::set_up(&socket);
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.server));
        let greeted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(Wire::new(Arc::clone(&socket))));
        let stranger = Refusee::Stranger(from.ip());
        let tls = tokio::select! {
            // One that is silent has asked for nothing.
            greeted = greeted => greeted.ok()?.inspect_err(|error| self.unbelieved(stranger, error)).ok()?,
            () = guest.gone.cancelled() => return None,
            () = self.stop.cancelled() => return None,
        };
        drop(guest);
        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Some(NodeId(node)) = shown.and_then(|leaf| proxy_node_of(leaf)) else {
            let words = || "its certificate is not that of a node's proxy".into();
            self.refusals.say(stranger, Cause::Certificate, words);
            return None;
        };
        if self.is_removed(node) {
            let words = || format!("it was removed from the cluster; it calls from {}", from.ip());
            self.refusals.say(Refusee::Node(node), Cause::Removed, words);
            return None;
        }
        let inbound = Arc::clone(self.inbound().entry(node).or_default());
        let registered = inbound.connections.add(&socket)?;
        let caller = Caller {
            node,
            inbound,
            ticket: Err(NoTicket::NotShown),
        };
        Some((
            Connection::new(TlsStream::Server(tls), socket, registered),
            caller,
        ))
    }

    /// Somebody's greeting has failed. Who ends it in the middle, as one does who only looks whether the port is open, is
    /// not told of.
    fn unbelieved(&self, stranger: Refusee, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let words = || format!("it does not prove to be a node of this cluster: {error}");
            self.refusals.say(stranger, Cause::Certificate, words);
        }
    }

    #[cfg(test)]
    pub fn said(&self) -> Vec<String> {
        self.refusals.said()
    }

    /// Serves one stream after the other.
    async fn attend(&self, mut connection: Connection, mut caller: Caller) {
        // Descriptors are shared with this node's own callers, who leave other nodes a share.
        let Some(_permit) = self.limits.try_process(&self.room) else {
            return;
        };
        loop {
            let frame = tokio::select! {
                frame = timeout(CONNECTION_IDLE, connection.frame()) => frame,
                () = self.stop.cancelled() => return,
            };
            let Ok(Ok(Some(frame))) = frame else { return };
            // Whoever speaks nonsense loses the connection; there is nothing to undo.
            let kept = match frame {
                Frame {
                    kind: Kind::Open,
                    body,
                } => self.stream(connection, &mut caller, &body).await,
                Frame {
                    kind: Kind::Control, ..
                } => return self.control(connection, &caller).await,
                Frame {
                    kind: Kind::Offer, ..
                } => return self.take_offer(connection, &caller).await,
                Frame {
                    kind: Kind::Arrive,
                    body,
                } => return self.take_arrival(connection, &caller, &body),
                Frame {
                    kind: Kind::Through,
                    body,
                } => self.pass_through(connection, &caller, &body).await.map(|()| None),
                Frame { kind: found, .. } => Err(bad(BadFrame::Place { found })),
            };
            match kept {
                Ok(Some(kept)) => connection = kept,
                Ok(None) => return,
                Err(error) => return self.nonsense(&caller, &error),
            }
        }
    }

    /// Puts into the log that a node does not speak as nodes do. A connection that broke is no such thing.
    fn nonsense(&self, caller: &Caller, error: &io::Error) {
        if let Some(bad) = error.get_ref().and_then(|inner| inner.downcast_ref::<BadFrame>()) {
            let words = || format!("it sends {bad}");
            self.refusals
                .say(Refusee::Node(caller.node), Cause::Nonsense, words);
        }
    }

    /// Serves one stream; gives the connection back where it can carry another.
    async fn stream(
        &self,
        mut connection: Connection,
        caller: &mut Caller,
        body: &[u8],
    ) -> io::Result<Option<Connection>> {
        let opening = Opening::read(body).map_err(bad)?;
        let reached = match self.judge(&opening, caller) {
            Ok((target, lease)) => Replica::reach(&target, lease, opening.transport).await,
            Err(why) => {
                self.tell_refused(&opening, caller, why);
                Err(why)
            }
        };
        let answer = reached
            .as_ref()
            .map_or_else(|why| Answer::Refused(*why), |_| Answer::Accepted);
        let words = frame::write_body(&answer);
        let answered = timeout(ANSWER_TIMEOUT, connection.send(Kind::Answer, &words)).await;
        answered
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
            .flatten()?;
        match reached {
            Err(_) => Ok(Some(connection)),
            Ok(replica) => Ok(replica.serve(MeshStream::new(connection, None), &self.stop).await),
        }
    }

    /// Puts a refusal into the log that does not come of replicas that come and go.
    fn tell_refused(&self, opening: &Opening, caller: &Caller, why: Why) {
        match why {
            Why::Draining | Why::Gone | Why::Unreachable | Why::Busy | Why::NoTunnel | Why::Other => return,
            Why::NotMine | Why::NotAllowed | Why::Ticket | Why::NoRelay => {}
        }
        let words = || {
            let Opening {
                replica,
                endpoint,
                origin,
                ..
            } = opening;
            let because = match (self.counting(caller), why) {
                (Err(none), Why::Ticket) => format!("{why}: {none}"),
                (Ok(_) | Err(_), _) => why.to_string(),
            };
            format!("{origin} asks for endpoint {endpoint:?} of {replica:?}: {because}")
        };
        self.refusals
            .say(Refusee::Node(caller.node), Cause::Stream(why), words);
    }

    /// The ticket of a caller where it counts at this moment. One that has ended may count again, when this node's own ends.
    fn counting<'a>(&self, caller: &'a Caller) -> Result<&'a HeldTicket, NoTicket> {
        let ticket = caller.ticket.as_deref().map_err(|none| *none)?;
        match self.own.counts(ticket, now_unix_secs()) {
            true => Ok(ticket),
            false => Err(NoTicket::Ended),
        }
    }

    fn judge(&self, opening: &Opening, caller: &mut Caller) -> Result<(Arc<Target>, Lease), Why> {
        if self.is_removed(caller.node) {
            return Err(Why::NotAllowed);
        }
        match &opening.ticket {
            ShownTicket::None => caller.ticket = Err(NoTicket::NotShown),
            ShownTicket::Again => {}
            ShownTicket::Whole(text) => {
                caller.ticket = self.own.check(text, caller.node);
            }
        }
        let ticket = self.counting(caller).ok();
        let targets = Arc::clone(&self.targets.read().unwrap_or_else(PoisonError::into_inner));
        let target = targets.find(opening, ticket)?;
        let lease = target.backend.lease().ok_or(Why::Draining)?;
        Ok((target, lease))
    }
}

/// A replica that has taken a connection, or a socket for its datagrams.
enum Replica {
    Stream(TcpStream, Lease),
    Datagrams(tokio::net::UdpSocket, Lease),
}

impl Replica {
    async fn reach(target: &Target, lease: Lease, transport: Transport) -> Result<Self, Why> {
        let addr = target.backend.addr().ok_or(Why::NotMine)?;
        let reached = match transport {
            Transport::Stream => connect::connect(addr)
                .await
                .map(|stream| Self::Stream(stream, lease)),
            Transport::Datagram => connect::datagrams(addr)
                .await
                .map(|socket| Self::Datagrams(socket, lease)),
        };
        match reached {
            Ok(_) => target.backend.accepted(),
            Err(_) => target.backend.refused(),
        }
        reached.map_err(|_| Why::Unreachable)
    }

    async fn serve(self, mut far: MeshStream, stop: &CancellationToken) -> Option<Connection> {
        match self {
            Self::Stream(mut stream, lease) => {
                let relayed = tokio::select! {
                    relayed = relay(&mut far, &mut stream) => relayed,
                    () = lease.backend.gone.cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
                };
                match relayed {
                    Ok(()) => far.into_connection(),
                    Err(_) => {
                        reset(stream);
                        None
                    }
                }
            }
            Self::Datagrams(socket, lease) => datagrams::serve(far, &socket, &lease, stop).await,
        }
    }
}

fn now_unix_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
