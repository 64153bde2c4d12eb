//! One backend as the proxy sees it while it runs: how much it has to do, whether it may get more, and the
//! idle connections to it. Shared by every route that names it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::canary::Tally;
use super::http::pool::Pool;
use super::limits::RequestPermit;
use super::mesh::Peer;
use super::meters::Call;

/// How long a backend that refused a connection is passed over: doubled with each further refusal.
const AVOID_FIRST: Duration = Duration::from_millis(250);
/// Six doublings: a backend that comes back is used again within this time.
const AVOID_MAX: Duration = Duration::from_secs(10);

/// How long another node's word that its replica is ending counts. By then the table says it, or it is so no more.
const TOLD_MAX: Duration = Duration::from_secs(10);

/// A backend by the replica's name and where it is.
pub type BackendKey = (String, PlaceKey);

/// Where a backend is, as it is told apart from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceKey {
    Here(SocketAddr),
    There {
        node: u64,
        /// A replica of another node has no address here: its node finds it by the endpoint's name.
        endpoint: String,
    },
}

/// Where a backend is, and who brings a stream there.
pub enum BackendPlace {
    Here(SocketAddr),
    There { peer: Arc<Peer>, endpoint: String },
}

/// One backend of the running proxy: its counts, its idle connections, and whether it is avoided for a moment.
pub struct BackendState {
    pub id: String,
    pub place: BackendPlace,
    pub pool: Pool,
    /// Ends what is still open to it, some time after no table names it any more.
    pub gone: CancellationToken,
    draining: AtomicBool,
    /// Until when its node's word that it is ending counts.
    told_until_ms: AtomicU64,
    in_flight: AtomicU32,
    total: AtomicU64,
    refused_total: AtomicU64,
    /// Refused connections since the last one that was accepted.
    refused_in_row: AtomicU32,
    avoid_until_ms: AtomicU64,
    /// Shared by all: told whenever one of them has become idle.
    idle: Arc<Notify>,
}

impl BackendState {
    pub fn new(id: String, place: BackendPlace, idle: Arc<Notify>) -> Self {
        Self {
            id,
            place,
            pool: Pool::default(),
            gone: CancellationToken::new(),
            draining: AtomicBool::new(false),
            told_until_ms: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            total: AtomicU64::new(0),
            refused_total: AtomicU64::new(0),
            refused_in_row: AtomicU32::new(0),
            avoid_until_ms: AtomicU64::new(0),
            idle,
        }
    }

    /// Its address, where it is a replica of this node.
    pub fn addr(&self) -> Option<SocketAddr> {
        match &self.place {
            BackendPlace::Here(addr) => Some(*addr),
            BackendPlace::There { .. } => None,
        }
    }

    /// Its node, where that is another one.
    pub fn node(&self) -> Option<u64> {
        match &self.place {
            BackendPlace::Here(_) => None,
            BackendPlace::There { peer, .. } => Some(peer.node),
        }
    }

    /// Sequentially consistent with [`BackendState::lease`]: whoever sees nothing in flight after this has
    /// returned knows that nothing new begins.
    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::SeqCst);
        if draining {
            self.pool.clear();
        }
    }

    /// Its node says that it is ending, before a table does: it gets nothing new, and idle connections are closed.
    pub fn told_to_drain(&self) {
        let until_ms = now_ms().saturating_add(millis(TOLD_MAX));
        self.told_until_ms.store(until_ms, Ordering::SeqCst);
        self.pool.clear();
    }

    /// Whether a table says so.
    pub fn is_marked_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub fn is_draining(&self) -> bool {
        self.is_marked_draining() || is_ahead(&self.told_until_ms)
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub fn refused_total(&self) -> u64 {
        self.refused_total.load(Ordering::Relaxed)
    }

    pub fn is_avoided(&self) -> bool {
        let is_silent = match &self.place {
            BackendPlace::Here(_) => false,
            BackendPlace::There { peer, .. } => peer.is_silent(),
        };
        is_silent || is_ahead(&self.avoid_until_ms)
    }

    /// Claims the backend for one request or connection; `None` when it has begun to drain meanwhile.
    pub fn lease(self: &Arc<Self>) -> Option<Lease> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let lease = Lease {
            backend: self.clone(),
            call: None,
            permit: None,
            tally: None,
        };
        if self.is_draining() {
            return None;
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        Some(lease)
    }

    pub fn refused(&self) {
        self.refused_total.fetch_add(1, Ordering::Relaxed);
        let doublings = self.refused_in_row.fetch_add(1, Ordering::Relaxed).min(16);
        let pause = AVOID_FIRST.saturating_mul(1 << doublings).min(AVOID_MAX);
        let until_ms = now_ms().saturating_add(millis(pause));
        self.avoid_until_ms.store(until_ms, Ordering::Relaxed);
    }

    pub fn accepted(&self) {
        if self.refused_in_row.load(Ordering::Relaxed) != 0 {
            self.refused_in_row.store(0, Ordering::Relaxed);
            self.avoid_until_ms.store(0, Ordering::Relaxed);
        }
    }
}

/// One request or connection on a backend, counted until it is dropped.
pub struct Lease {
    pub backend: Arc<BackendState>,
    /// What it is part of, where that ends with it.
    pub call: Option<Call>,
    /// Its right to a descriptor, where the client's connection has none for it.
    pub permit: Option<RequestPermit>,
    /// Where a canary is tried: counts how it goes.
    pub tally: Option<Tally>,
}

impl Lease {
    /// The replica did not answer, broke off, or answered that it failed.
    pub fn fails(&self) {
        if let Some(tally) = &self.tally {
            tally.fails();
        }
    }

    /// What came of it says nothing about the replica.
    pub fn says_nothing(&self) {
        if let Some(tally) = &self.tally {
            tally.says_nothing();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.backend.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && self.backend.is_draining() {
            self.backend.idle.notify_waiters();
        }
    }
}

/// Whether a moment is still to come; 0 is none.
fn is_ahead(moment_ms: &AtomicU64) -> bool {
    let moment_ms = moment_ms.load(Ordering::Relaxed);
    moment_ms != 0 && moment_ms > now_ms()
}

/// Milliseconds on this process's own clock, never 0.
fn now_ms() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    millis(BEGIN.elapsed()).saturating_add(1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
