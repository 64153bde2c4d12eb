//! Another node as this one calls it: where its proxy is, warm connections to it, and whether it lives.

mod control;
mod dial;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::connection::{Connection, Frame, bad};
use super::connections::Connections;
use super::frame::{self, Answer, BadFrame, Kind, Opening, ShownTicket, Why};
use super::own::Own;
use super::stream::MeshStream;
use crate::proxy::backend::BackendState;
use crate::proxy::note;

/// Warm connections kept to one node: as many short streams at once find one.
const IDLE_MAX: usize = 64;
/// How long one is kept. The other side keeps them longer, so that none is closed just as it is used.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// From an opening to its answer: the other side may take two seconds to reach its replica.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no stream. Nothing of what was to be sent has been.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("node {node} refuses: {why}")]
    There { node: u64, why: Why },
    #[error("it is not known where node {node} is")]
    Unknown { node: u64 },
    #[error("node {node} is silent")]
    Silent { node: u64 },
    #[error("this node has no certificate for other nodes yet")]
    NoIdentity,
    #[error("too many streams to node {node} are open")]
    Busy { node: u64 },
    #[error("node {node} cannot be reached")]
    Io {
        node: u64,
        #[source]
        source: io::Error,
    },
    #[error("another node answers in place of node {node}")]
    OtherNode { node: u64 },
    #[error("node {relay} does not pass on to node {node}: {why}")]
    Relay { node: u64, relay: u64, why: Why },
}

impl Refused {
    /// Whether there is only no room at this moment: the node is there all the same.
    fn is_busy(&self) -> bool {
        match self {
            Self::There { why, .. } | Self::Relay { why, .. } => *why == Why::Busy,
            Self::Busy { .. } => true,
            Self::Unknown { .. }
            | Self::Silent { .. }
            | Self::NoIdentity
            | Self::Io { .. }
            | Self::OtherNode { .. } => false,
        }
    }
}

/// How a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Way {
    #[default]
    Unknown,
    At(SocketAddr),
    /// Through these nodes.
    Through(Arc<[u64]>),
}

/// What is known of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Nobody has asked lately.
    Unknown,
    Alive,
    /// Its replicas are passed over.
    Silent,
}

impl Health {
    fn number(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Alive => 1,
            Self::Silent => 2,
        }
    }
}

/// Another node, as the backends that run there share it.
pub struct Peer {
    pub node: u64,
    own: Arc<Own>,
    begin: Instant,
    way: Mutex<Way>,
    /// Which of those who pass on is tried first: the one that did last.
    relay: AtomicUsize,
    health: AtomicU8,
    /// Since the beginning, when a stream was last wanted.
    used_ms: AtomicU64,
    /// A control connection is kept.
    is_watched: AtomicBool,
    /// The last was used last.
    idle: Mutex<Vec<(Connection, Instant)>>,
    connections: Arc<Connections>,
    /// The last reason of its own that is in the log.
    said: Mutex<String>,
    /// The backends that are reached through it, so that the node can say that one is ending.
    backends: Mutex<Vec<Weak<BackendState>>>,
}

impl Peer {
    pub(super) fn new(node: u64, own: Arc<Own>) -> Self {
        Self {
            node,
            own,
            begin: Instant::now(),
            way: Mutex::default(),
            relay: AtomicUsize::new(0),
            health: AtomicU8::new(Health::Unknown.number()),
            used_ms: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            idle: Mutex::default(),
            connections: Arc::default(),
            said: Mutex::default(),
            backends: Mutex::default(),
        }
    }

    /// How it is reached from now on. Streams that are open stay.
    pub(super) fn set_way(&self, way: Way) {
        let mut now = lock(&self.way);
        if *now != way {
            *now = way;
            self.relay.store(0, Ordering::Relaxed);
            lock(&self.idle).clear();
        }
    }

    /// Ends everything that is open to it: it belongs to the cluster no more.
    pub(super) fn cut(&self) {
        lock(&self.idle).clear();
        self.connections.cut();
    }

    /// Its replicas are passed over for now.
    pub fn is_silent(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Silent.number()
    }

    #[cfg(test)]
    pub fn is_heard(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Alive.number()
    }

    pub fn add_backend(&self, backend: &Arc<BackendState>) {
        let mut backends = lock(&self.backends);
        backends.retain(|known| known.strong_count() > 0);
        backends.push(Arc::downgrade(backend));
    }

    /// Opens a stream to one of its replicas, or says why that cannot be; then another replica can be tried.
    pub async fn connect(self: &Arc<Self>, opening: Opening) -> Result<MeshStream, Refused> {
        let connected = self.try_connect(opening).await;
        if let Err(refused) = &connected {
            self.say(refused);
        }
        connected
    }

    /// Puts a reason into the log that does not pass by itself, once until there is another.
    fn say(&self, refused: &Refused) {
        let passes = match refused {
            Refused::There { why, .. } => match why {
                Why::Draining | Why::Gone | Why::Unreachable | Why::Busy | Why::NoTunnel => true,
                Why::NotMine | Why::NotAllowed | Why::Ticket | Why::NoRelay | Why::Other => false,
            },
            Refused::Silent { .. } | Refused::Busy { .. } => true,
            Refused::Relay { .. } => refused.is_busy(),
            Refused::Unknown { .. }
            | Refused::NoIdentity
            | Refused::Io { .. }
            | Refused::OtherNode { .. } => false,
        };
        let words = dhow_driver::driver::error_chain(refused);
        let mut said = lock(&self.said);
        if !passes && *said != words {
            note(&words);
            *said = words;
        }
    }

    async fn try_connect(self: &Arc<Self>, opening: Opening) -> Result<MeshStream, Refused> {
        self.used_ms.store(self.now_ms(), Ordering::Relaxed);
        self.watch();
        if self.is_silent() {
            return Err(Refused::Silent { node: self.node });
        }
        // A warm connection may have ended meanwhile, which says nothing about the node.
        while let Some(connection) = self.take() {
            match self.open(connection, &opening).await {
                Err(Refused::Io { .. }) => {}
                done => return done,
            }
        }
        // It may have fallen silent while a warm connection was waited for.
        if self.is_silent() {
            return Err(Refused::Silent { node: self.node });
        }
        let connection = self.dial().await?;
        self.open(connection, &opening).await
    }

    async fn open(
        self: &Arc<Self>,
        mut connection: Connection,
        opening: &Opening,
    ) -> Result<MeshStream, Refused> {
        let node = self.node;
        let ticket = self.own.ticket();
        let shown = match &ticket {
            None => ShownTicket::None,
            Some(ticket) if connection.ticket.as_ref() == Some(ticket) => ShownTicket::Again,
            Some(ticket) => ShownTicket::Whole(ticket.to_string()),
        };
        connection.ticket = ticket;
        let opening = Opening {
            ticket: shown,
            ..opening.clone()
        };
        let answered = timeout(ANSWER_TIMEOUT, ask(&mut connection, &opening)).await;
        let answered = answered.map_err(|_| io::Error::from(io::ErrorKind::TimedOut));
        match answered.flatten() {
            Ok(Answer::Accepted) => Ok(MeshStream::new(connection, Some(Arc::clone(self)))),
            Ok(Answer::Refused(why)) => {
                self.put(connection);
                Err(Refused::There { node, why })
            }
            Err(source) => Err(Refused::Io { node, source }),
        }
    }

    /// A warm connection, the one that was used last.
    fn take(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() < IDLE_TIMEOUT && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for the next stream.
    pub(super) fn put(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX && !self.is_silent() && connection.is_idle() {
            idle.push((connection, Instant::now()));
        }
    }

    /// Lets go of connections that nobody has used for a while.
    pub(super) fn sweep(&self) {
        lock(&self.idle).retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
    }

    /// Closes what is idle: nobody opens a stream any more.
    pub(super) fn end(&self) {
        lock(&self.idle).clear();
    }

    #[cfg(test)]
    pub fn open_connections(&self) -> usize {
        self.connections.count()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn ask(connection: &mut Connection, opening: &Opening) -> io::Result<Answer> {
    connection.send(Kind::Open, &frame::write_body(opening)).await?;
    match connection.frame().await? {
        Some(Frame {
            kind: Kind::Answer,
            body,
        }) => frame::read_body(Kind::Answer, &body).map_err(bad),
        Some(Frame { kind: found, .. }) => Err(bad(BadFrame::Place { found })),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves what they hold half changed.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
