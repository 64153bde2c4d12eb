//! How much at once: every connection holds a permit of its listener and one of the process. At the limit
//! nothing is refused: new connections wait in the kernel's queue.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Client connections of one listener, so that one service cannot take all.
pub const LISTENER_CONNECTIONS_MAX: usize = 16_384;
/// Sessions of one UDP listener: a descriptor each.
pub const UDP_SESSIONS_MAX: usize = 4096;
/// Kept back for listeners, control connections, logs.
const RESERVED_DESCRIPTORS: u64 = 512;
/// Enough for the connections of 32 full listeners; more than the kernel's own limit for a process by default.
const DESCRIPTORS_WANTED: u64 = 1 << 20;
/// A client's connection and the one to its backend.
const DESCRIPTORS_PER_CONNECTION: u64 = 2;
/// With hundreds of descriptors only, some connections are served nevertheless.
const CONNECTIONS_MIN: usize = 64;

/// The whole process's.
#[derive(Clone)]
pub struct Limits {
    process: Arc<Semaphore>,
    pub connections_max: usize,
}

/// One connection's right to exist.
pub struct Permit {
    _process: OwnedSemaphorePermit,
    _listener: OwnedSemaphorePermit,
}

impl Limits {
    pub fn new(descriptors_max: u64) -> Self {
        let usable = descriptors_max.saturating_sub(RESERVED_DESCRIPTORS) / DESCRIPTORS_PER_CONNECTION;
        let connections_max = usize::try_from(usable)
            .unwrap_or(usize::MAX)
            .clamp(CONNECTIONS_MIN, Semaphore::MAX_PERMITS);
        Self {
            process: Arc::new(Semaphore::new(connections_max)),
            connections_max,
        }
    }

    pub fn listener(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(LISTENER_CONNECTIONS_MAX))
    }

    /// Waits for room. `None` never happens while the process runs: nobody closes these.
    pub async fn permit(&self, listener: &Arc<Semaphore>) -> Option<Permit> {
        let listener = listener.clone().acquire_owned().await.ok()?;
        let process = self.process.clone().acquire_owned().await.ok()?;
        Some(Permit {
            _process: process,
            _listener: listener,
        })
    }

    /// One of the process's, at once or not at all: for UDP, where nothing waits.
    pub fn try_process(&self) -> Option<OwnedSemaphorePermit> {
        self.process.clone().try_acquire_owned().ok()
    }
}

/// Takes as many descriptors as the host allows; gives how many that is.
pub fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let both = |count| Rlimit {
        current: count,
        maximum: count,
    };
    let is_short = limit.maximum.is_some_and(|maximum| maximum < DESCRIPTORS_WANTED);
    // Only root may have more than it was given.
    if !is_short || setrlimit(Resource::Nofile, both(Some(DESCRIPTORS_WANTED))).is_err() {
        let _ = setrlimit(Resource::Nofile, both(limit.maximum));
    }
    // None is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
