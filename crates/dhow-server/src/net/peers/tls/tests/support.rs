//! Servers that say back what they hear.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::net::keys::{ClusterCa, ClusterKey, NODE_CERT_LIFETIME, NodeCert, NodeTls};
use crate::net::peers::tls::frame;
use crate::net::peers::tls::hello::{self, Hello, Reply};
use crate::net::peers::tls::security;
use crate::net::peers::tls::{Listening, PeerOptions, TlsTransport, listen};
use crate::net::peers::{Lane, PeerError, PeerHandler, PeerTransport};
use crate::net::refused_log::RefusedLog;

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Answers `who asked: question`; a question that begins with `hold` waits to be let go.
#[derive(Default)]
pub struct Echo {
    pub heard: AtomicU64,
    pub holding: Notify,
    pub go: Notify,
}

impl PeerHandler for Echo {
    fn answer(&self, from: u64, question: Bytes) -> BoxFuture<'_, Bytes> {
        Box::pin(async move {
            self.heard.fetch_add(1, Ordering::SeqCst);
            if question.starts_with(b"hold") {
                self.holding.notify_one();
                self.go.notified().await;
            }
            let mut answer = format!("{from}: ").into_bytes();
            answer.extend_from_slice(&question[..question.len().min(100)]);
            answer.into()
        })
    }
}

pub struct Server {
    pub transport: TlsTransport,
    pub echo: Arc<Echo>,
    pub addr: SocketAddr,
    pub cancel: CancellationToken,
    pub listening: Listening,
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

pub fn key() -> ClusterKey {
    ClusterKey::generate().unwrap()
}

pub fn tls(key: &ClusterKey, node: u64) -> NodeTls {
    NodeTls::new(key, NodeId(node), now()).unwrap()
}

/// With a certificate whose time is over.
pub fn expired(key: &ClusterKey, node: u64) -> NodeTls {
    let ca = Arc::new(ClusterCa::new(key).unwrap());
    let made = now() - i64::try_from(NODE_CERT_LIFETIME.as_secs()).unwrap() - 60;
    let cert = NodeCert::new(Arc::clone(&ca), NodeId(node), made, NODE_CERT_LIFETIME).unwrap();
    NodeTls::with(ca, Arc::new(cert))
}

pub fn transport(node: u64, tls: NodeTls) -> TlsTransport {
    TlsTransport::new(PeerOptions {
        node: NodeId(node),
        tls,
        cluster_id: Arc::default(),
        refused: RefusedLog::new(None, Arc::new(SystemClock::new())),
    })
}

impl Server {
    pub async fn start(node: u64, tls: NodeTls) -> Self {
        Self::start_at(node, tls, "127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(node: u64, tls: NodeTls, addr: SocketAddr) -> Self {
        let transport = transport(node, tls);
        let (echo, cancel) = (Arc::new(Echo::default()), CancellationToken::new());
        let handler = Arc::clone(&echo) as Arc<dyn PeerHandler>;
        let listening = listen(&transport, addr, handler, cancel.clone()).await.unwrap();
        Self {
            transport,
            echo,
            addr: listening.addr,
            cancel,
            listening,
        }
    }

    pub fn set_cluster(&self, id: &str) {
        self.transport.0.options.cluster_id.set(id.into()).unwrap();
    }

    pub fn heard(&self) -> u64 {
        self.echo.heard.load(Ordering::SeqCst)
    }

    /// Waits until so many were refused.
    pub async fn has_refused(&self, count: u64) {
        while self.transport.refused() < count {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.transport.refused(), count);
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        self.listening.task.await.unwrap();
    }
}

pub async fn ask(from: &TlsTransport, node: u64, addr: SocketAddr, text: &str) -> Result<String, PeerError> {
    ask_on(from, node, addr, Lane::Log, text).await
}

pub async fn ask_on(
    from: &TlsTransport,
    node: u64,
    addr: SocketAddr,
    lane: Lane,
    text: &str,
) -> Result<String, PeerError> {
    let question = Bytes::from(text.to_owned());
    let answer = from.ask(node, addr, lane, question, PATIENCE).await?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

/// Why a server could not be reached.
pub fn why(result: Result<String, PeerError>) -> String {
    match result.unwrap_err() {
        PeerError::Unreachable { why, .. } => why,
        other => panic!("{other}"),
    }
}

/// A connection of a server that says what the test wants.
pub async fn raw(tls: &NodeTls, to: u64, addr: SocketAddr) -> Box<dyn ByteStream> {
    let stream = TcpStream::connect(addr).await.unwrap();
    security::connect(tls, stream, to).await.unwrap()
}

pub fn hello(from: u64, to: u64) -> Hello {
    Hello {
        from,
        to,
        cluster_id: None,
        incarnation: 5,
    }
}

pub async fn greet(io: &mut Box<dyn ByteStream>, hello: &Hello) -> Reply {
    frame::write(io, &hello::encode(hello)).await.unwrap();
    hello::decode(&frame::read(io, 1_024).await.unwrap()).unwrap()
}
