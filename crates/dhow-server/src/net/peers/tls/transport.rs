//! Asks other servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dhow_core::ids::NodeId;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connection::{Connection, Unanswered};
use super::contacts::{Contacts, PeerCounts};
use super::frame;
use super::hello::{self, Hello, Reply};
use super::limits::{CONNECT_TIMEOUT, HELLO_BYTES_MAX};
use super::link::Link;
use super::refusals::Refusals;
use super::security;
use crate::net::keys::NodeTls;
use crate::net::peers::{FRAME_BYTES_MAX, Lane, PeerError, PeerTransport};
use crate::net::refused_log::RefusedLog;
use crate::net::tcp;

/// The cluster's id, set once it is known.
pub type ClusterIdCell = Arc<OnceLock<Arc<str>>>;

/// What the channel of a server needs to know.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    pub node: NodeId,
    pub tls: NodeTls,
    pub cluster_id: ClusterIdCell,
    /// Takes a line for each caller that the listener refuses.
    pub refused: RefusedLog,
}

/// The way from this server to the others over TLS, which the raft log asks through; clones share connections, which
/// end with the last of them.
#[derive(Clone)]
pub struct TlsTransport(pub(super) Arc<TransportState>);

/// What the clones of a transport and the listener share.
pub(super) struct TransportState {
    pub options: PeerOptions,
    /// Drawn at the start of this process.
    pub incarnation: u64,
    pub contacts: Arc<Contacts>,
    /// Of callers.
    pub refusals: Refusals,
    /// By those who were called.
    rejections: Arc<Refusals>,
    links: Mutex<BTreeMap<(u64, Lane), Arc<Link>>>,
    /// The process that each peer was when it last called.
    processes: Mutex<BTreeMap<u64, u64>>,
    end: CancellationToken,
    _end: DropGuard,
}

impl TlsTransport {
    pub fn new(options: PeerOptions) -> Self {
        let end = CancellationToken::new();
        Self(Arc::new(TransportState {
            options,
            incarnation: rand::random(),
            contacts: Arc::default(),
            refusals: Refusals::default(),
            rejections: Arc::default(),
            links: Mutex::default(),
            processes: Mutex::default(),
            _end: end.clone().drop_guard(),
            end,
        }))
    }

    /// The last sign of life of a server, from whichever side the connection was made.
    pub fn last_heard(&self, node: NodeId) -> Option<Instant> {
        self.0.contacts.last_heard(node.0)
    }

    /// The same on a clock that counts milliseconds, of which `now_monotonic_ms` is the present.
    pub fn last_heard_ms(&self, node: NodeId, now_monotonic_ms: u64) -> Option<u64> {
        let ago_ms = u64::try_from(self.last_heard(node)?.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(now_monotonic_ms.saturating_sub(ago_ms))
    }

    /// Whether the last attempt to ask it failed, and nothing was heard since.
    pub fn is_unreachable(&self, node: NodeId) -> bool {
        self.0.contacts.is_unreachable(node.0)
    }

    pub fn counts(&self, node: NodeId) -> PeerCounts {
        self.0.contacts.counts(node.0)
    }

    /// How many callers were refused.
    pub fn refused(&self) -> u64 {
        self.0.refusals.count()
    }

    /// A peer has called as this process: connections to an earlier one are of no use any more.
    pub(super) fn meet(&self, node: u64, incarnation: u64) {
        let mut processes = self.0.processes.lock().unwrap_or_else(PoisonError::into_inner);
        if processes.insert(node, incarnation) == Some(incarnation) {
            return;
        }
        drop(processes);
        for lane in [Lane::Log, Lane::Snapshot] {
            self.0.link(node, lane).drop_others_than(incarnation);
        }
    }
}

impl TransportState {
    pub fn cluster_id(&self) -> Option<&str> {
        self.options.cluster_id.get().map(|id| id.as_ref())
    }

    fn link(&self, node: u64, lane: Lane) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(links.entry((node, lane)).or_default())
    }

    /// One attempt at a connection, with its own patience.
    fn connect(
        &self,
        node: u64,
        addr: SocketAddr,
    ) -> impl Future<Output = Result<Connection, String>> + Send + 'static {
        let hello = Hello {
            from: self.options.node.0,
            to: node,
            cluster_id: self.cluster_id().map(str::to_owned),
            incarnation: self.incarnation,
        };
        let tls = self.options.tls.clone();
        let (contacts, end) = (Arc::clone(&self.contacts), self.end.clone());
        let rejections = Arc::clone(&self.rejections);
        async move {
            let connecting = async {
                let stream = reach(addr).await?;
                let opened = open(&tls, stream, hello, contacts, &end).await;
                opened.inspect_err(|why| rejections.tell_of_reached(addr.ip(), why))
            };
            let connected = tokio::select! {
                connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting) => connected,
                () = end.cancelled() => return Err("this server is shutting down".into()),
            };
            connected.unwrap_or_else(|_| Err("it does not answer".into()))
        }
    }

    async fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        lane: Lane,
        question: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, PeerError> {
        let size_bytes = question.len();
        if size_bytes > FRAME_BYTES_MAX {
            return Err(PeerError::TooLarge { size_bytes });
        }
        let unreachable = |why: &str| PeerError::Unreachable {
            node,
            addr,
            why: why.to_owned(),
        };
        let deadline = tokio::time::Instant::now() + timeout;
        let link = self.link(node, lane);
        let connection = link.connection(addr, || self.connect(node, addr));
        let connection = match tokio::time::timeout_at(deadline, connection).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(why)) => return Err(unreachable(&why)),
            Err(_) => return Err(unreachable("it does not answer")),
        };
        match tokio::time::timeout_at(deadline, connection.ask(question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Unanswered::NotSent(why))) => Err(unreachable(&why)),
            Ok(Err(Unanswered::Broken(why))) => Err(PeerError::Broken { node, why }),
            Err(_) => {
                connection.judge_silence();
                Err(PeerError::TimedOut { node })
            }
        }
    }
}

async fn reach(addr: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|error| error.to_string())?;
    tcp::prepare(&stream);
    Ok(stream)
}

/// Proves who this is and hears who the other is.
async fn open(
    tls: &NodeTls,
    stream: TcpStream,
    hello: Hello,
    contacts: Arc<Contacts>,
    end: &CancellationToken,
) -> Result<Connection, String> {
    let node = hello.to;
    let mut stream = security::connect(tls, stream, node).await?;
    let failed = |error: std::io::Error| crate::net::keys::tls_refusal(&error);
    frame::write(&mut stream, &hello::encode(&hello))
        .await
        .map_err(failed)?;
    let reply = frame::read(&mut stream, HELLO_BYTES_MAX).await.map_err(failed)?;
    let incarnation = match hello::decode(&reply).map_err(|unread| unread.to_string())? {
        Reply::Refused(refusal) => return Err(format!("it refuses this server: {refusal}")),
        Reply::Welcome { cluster_id, .. }
            if !hello::is_same_cluster(cluster_id.as_deref(), hello.cluster_id.as_deref()) =>
        {
            return Err(hello::Refusal::Cluster.to_string());
        }
        Reply::Welcome { incarnation, .. } => incarnation,
    };
    contacts.heard(node);
    contacts.connected(node);
    Ok(Connection::start(stream, node, incarnation, contacts, end))
}

impl PeerTransport for TlsTransport {
    fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        lane: Lane,
        question: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, PeerError>> {
        Box::pin(async move {
            let contacts = &self.0.contacts;
            contacts.asked(node);
            let answer = self.0.ask(node, addr, lane, question, timeout).await;
            match &answer {
                Ok(_) => contacts.answered(node),
                // That says nothing about the peer.
                Err(PeerError::TooLarge { .. }) => {}
                Err(
                    PeerError::Unreachable { .. } | PeerError::TimedOut { .. } | PeerError::Broken { .. },
                ) => {
                    contacts.failed(node);
                }
            }
            answer
        })
    }
}
