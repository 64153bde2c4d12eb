//! The proxy's side of its control socket.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::balancer::{Balancer, ListenerKey};
use super::bind::Socket;
use super::descriptors;
use super::judge::Side;
use super::kept_sockets::StoreConnection;
use super::mesh::MeshIdentity;
use super::protocol::{self, HandOver, Hello, Reply, Request};
use super::store::Store;
use super::table::Table;
use super::tls::GivenCertificates;

/// Control connections at once: a daemon has a few, the next proxy one.
const CONNECTIONS_MAX: usize = 32;
/// How long anybody may wait for backends to drain in one request.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(3600);
/// The same for something else to be wanted of other deployments.
const WANTS_WAIT_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// What the control connections of a proxy share.
pub struct Control {
    pub store: Arc<Store>,
    pub build: String,
    /// The user whose word counts, and root's.
    pub owner: u32,
    pub balancer: Arc<Balancer>,
    /// The proxy accepts no more: another proxy has its listeners, or the daemon told it to stop.
    pub ended: AtomicBool,
    /// Notified when another proxy has the listeners.
    pub handed_over: Notify,
}

impl Control {
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
        while let Ok(permit) = room.clone().acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            if !self.may_speak(&stream) {
                continue;
            }
            let control = self.clone();
            tokio::spawn(async move {
                // Whoever closes or speaks nonsense loses the connection; there is nothing to undo.
                let _ = control.converse(stream).await;
                drop(permit);
            });
        }
    }

    /// Whether a caller may change the table: root and the owner may, whichever way anybody else reached the socket.
    fn may_speak(&self, stream: &UnixStream) -> bool {
        let uid = stream.peer_cred().map(|peer| peer.uid());
        uid.is_ok_and(|uid| uid == 0 || uid == self.owner)
    }

    async fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        loop {
            let request = match protocol::receive(&mut stream).await {
                Ok(request) => request,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let why = error.to_string();
                    return protocol::send(&mut stream, Reply::Refused { why }).await;
                }
                Err(error) => return Err(error),
            };
            match request {
                Request::Hello => {
                    let hello = self.hello().await;
                    protocol::send(&mut stream, Reply::Hello(hello)).await?;
                }
                Request::KeepSockets => {
                    let reply = self.keep_sockets(&stream).await?;
                    protocol::send(&mut stream, reply).await?;
                }
                Request::Apply(table) => {
                    let reply = self.apply(*table).await;
                    protocol::send(&mut stream, reply).await?;
                }
                Request::Identify(identity) => {
                    let reply = self.identify(identity).await;
                    protocol::send(&mut stream, reply).await?;
                }
                Request::Certify(given) => {
                    let reply = self.certify(&given).await;
                    protocol::send(&mut stream, reply).await?;
                }
                Request::Status => {
                    let status = self.balancer.status().await;
                    protocol::send(&mut stream, Reply::Status(status)).await?;
                }
                Request::Figures => {
                    let figures = self.balancer.figures();
                    protocol::send(&mut stream, Reply::Figures(figures)).await?;
                }
                Request::Relayed => {
                    let relayed = self.balancer.relayed();
                    protocol::send(&mut stream, Reply::Relayed(relayed)).await?;
                }
                Request::Wants {
                    seen,
                    wait_ms,
                    unheard,
                } => {
                    self.balancer.hear(!unheard);
                    let reply = self.wants(seen, wait_ms).await;
                    protocol::send(&mut stream, reply).await?;
                }
                Request::WaitDrained { ids, timeout_ms } => {
                    let wait = Duration::from_millis(timeout_ms).min(DRAIN_WAIT_MAX);
                    let ids = self.balancer.wait_drained(&ids, Instant::now() + wait).await;
                    protocol::send(&mut stream, Reply::Drained { ids }).await?;
                }
                Request::HandOver => self.hand_over(&mut stream).await?,
                Request::TookOver => {
                    self.end().await;
                    // The process ends when nothing is open: the answer goes first.
                    let told = protocol::send(&mut stream, Reply::Done).await;
                    self.handed_over.notify_one();
                    told?;
                }
            }
        }
    }

    async fn wants(&self, seen: u64, wait_ms: u64) -> Reply {
        let wait = Duration::from_millis(wait_ms).min(WANTS_WAIT_MAX);
        let (number, services) = self.balancer.wants(seen, wait).await;
        Reply::Wants {
            number,
            services,
            waiting: self.balancer.has_waiting(),
        }
    }

    async fn hello(&self) -> Hello {
        Hello {
            build: self.build.clone(),
            pid: std::process::id(),
            ended: self.ended.load(Ordering::Acquire),
            namespace: self.balancer.namespace(),
            is_held: self.balancer.kept.is_held().await,
        }
    }

    async fn keep_sockets(&self, stream: &UnixStream) -> io::Result<Reply> {
        let mut received = descriptors::receive(stream, 1).await?;
        let Some(store) = received.pop() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if !self.ended.load(Ordering::Acquire) {
            self.balancer
                .keep_in(StoreConnection::new(store)?, BTreeSet::new())
                .await;
        }
        Ok(Reply::Done)
    }

    async fn apply(&self, table: Table) -> Reply {
        if self.ended.load(Ordering::Acquire) {
            let why = "this proxy only finishes what it has: another one serves now".to_owned();
            return Reply::Refused { why };
        }
        let applied = match self.balancer.apply(table.clone(), Default::default()).await {
            Ok(applied) => applied,
            Err(error) => {
                let why = error.to_string();
                return Reply::Refused { why };
            }
        };
        let store = Arc::clone(&self.store);
        let saved = tokio::task::spawn_blocking(move || store.save(&table)).await;
        if let Ok(Err(error)) = saved {
            // It is served all the same; only a proxy that is killed now comes up with an older one.
            super::note(&format!("the table could not be saved: {error}"));
        }
        Reply::Applied(applied)
    }

    /// Takes a certificate, also in a proxy that only finishes what it has.
    async fn identify(&self, identity: MeshIdentity) -> Reply {
        if let Err(error) = self.balancer.identify(&identity) {
            let why = dhow_driver::driver::error_chain(&error);
            return Reply::Refused { why };
        }
        let store = Arc::clone(&self.store);
        let saved = tokio::task::spawn_blocking(move || store.save_identity(&identity)).await;
        if let Ok(Err(error)) = saved {
            // It is shown all the same; only a proxy that is killed now has none until its daemon gives it one.
            super::note(&format!(
                "what is shown to other nodes could not be saved: {error}"
            ));
        }
        Reply::Done
    }

    /// Takes certificates for clients, also in a proxy that only finishes what it has.
    async fn certify(&self, given: &GivenCertificates) -> Reply {
        let refused = self.balancer.certify(given);
        let (store, kept) = (Arc::clone(&self.store), self.balancer.certificates());
        let saved = tokio::task::spawn_blocking(move || store.save_certificates(&kept)).await;
        if let Ok(Err(error)) = saved {
            // They are shown all the same; only a proxy that is killed now has none until its daemon gives them.
            super::note(&format!(
                "the certificates of endpoints could not be saved: {error}"
            ));
        }
        Reply::Certified { refused }
    }

    /// Sends table and listeners. They are served here until the other says that it does.
    async fn hand_over(&self, stream: &mut UnixStream) -> io::Result<()> {
        if self.ended.load(Ordering::Acquire) {
            let why = "it has handed its listeners over already".to_owned();
            return protocol::send(stream, Reply::Refused { why }).await;
        }
        let (table, sockets) = self.balancer.sockets().await;
        let (own, others): (Vec<_>, Vec<_>) = sockets.iter().partition(|(key, _)| key.side == Side::Services);
        let named = |sockets: &[&(ListenerKey, Socket)]| {
            let keys = sockets.iter().map(|(key, _)| (key.transport, key.addr));
            keys.collect()
        };
        let hand_over = HandOver {
            table,
            listeners: named(&others),
            services: named(&own),
            namespace: self.balancer.namespace(),
        };
        protocol::send(stream, Reply::HandOver(Box::new(hand_over))).await?;
        let numbers: Vec<_> = others
            .iter()
            .chain(&own)
            .map(|(_, socket)| socket.as_fd())
            .collect();
        descriptors::send(stream, &numbers).await
    }

    /// Accepts nothing more; what is open finishes.
    pub async fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.balancer.end().await;
    }
}
