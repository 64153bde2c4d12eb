//! One backend as the proxy sees it while it runs: how much it has to do, whether it may get more, and the
//! idle connections to it. Shared by every route that names it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::http::pool::Pool;

/// How long a backend that refused a connection is passed over: doubled with each further refusal.
const AVOID_FIRST: Duration = Duration::from_millis(250);
/// Six doublings: a backend that comes back is used again within this time.
const AVOID_MAX: Duration = Duration::from_secs(10);

/// A backend by the replica's name and one of its addresses.
pub type BackendKey = (String, SocketAddr);

/// One backend of the running proxy: its counts, its idle connections, and whether it is avoided for a moment.
pub struct BackendState {
    pub id: String,
    pub addr: SocketAddr,
    pub pool: Pool,
    /// Ends what is still open to it, some time after no table names it any more.
    pub gone: CancellationToken,
    draining: AtomicBool,
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
    pub fn new(key: BackendKey, idle: Arc<Notify>) -> Self {
        let (id, addr) = key;
        Self {
            id,
            addr,
            pool: Pool::default(),
            gone: CancellationToken::new(),
            draining: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            total: AtomicU64::new(0),
            refused_total: AtomicU64::new(0),
            refused_in_row: AtomicU32::new(0),
            avoid_until_ms: AtomicU64::new(0),
            idle,
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

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
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
        let until_ms = self.avoid_until_ms.load(Ordering::Relaxed);
        until_ms != 0 && until_ms > now_ms()
    }

    /// Claims the backend for one request or connection; `None` when it has begun to drain meanwhile.
    pub fn lease(self: &Arc<Self>) -> Option<Lease> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let lease = Lease {
            backend: self.clone(),
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
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.backend.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && self.backend.is_draining() {
            self.backend.idle.notify_waiters();
        }
    }
}

/// Milliseconds on this process's own clock, never 0.
fn now_ms() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    millis(BEGIN.elapsed()).saturating_add(1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
