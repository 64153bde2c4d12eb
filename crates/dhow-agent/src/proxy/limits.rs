//! How much at once: every connection holds a permit of its listener and one of the process. At the limit new
//! connections wait in the kernel's queue. A part of the process's permits is kept back for containers that have few
//! connections, so that neither one of them nor somebody outside can take the names of a node from all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::judge::Side;

/// Client connections of one listener, so that one service cannot take all.
pub const LISTENER_CONNECTIONS_MAX: usize = 16_384;
/// Requests of HTTP/2 at once at one listener, for the same reason: a connection may carry hundreds of them.
const LISTENER_REQUESTS_MAX: usize = LISTENER_CONNECTIONS_MAX;
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
/// One of so many permits is kept back, and so many containers at once may have their share of these.
const KEPT_BACK: usize = 16;

/// How often the log says that there is no room.
const TELL_FULL_INTERVAL: Duration = Duration::from_secs(60);

/// The whole process's.
#[derive(Clone)]
pub struct Limits {
    /// What everybody may take.
    common: Arc<Semaphore>,
    /// What is left for containers with few connections when that is gone.
    kept_back: Arc<Semaphore>,
    /// How many connections of a container are few.
    few: usize,
    crowd: Arc<Crowd>,
    pub connections_max: usize,
    /// When it was last told that there is no room.
    told_full: Arc<Mutex<Option<Instant>>>,
}

/// How many connections each container has.
#[derive(Default)]
struct Crowd(Mutex<HashMap<IpAddr, usize>>);

/// One connection of a container, as long as it is counted.
struct Counted {
    crowd: Arc<Crowd>,
    caller: IpAddr,
}

/// One connection's right to exist.
pub struct Permit {
    _process: OwnedSemaphorePermit,
    _listener: OwnedSemaphorePermit,
    is_kept_back: bool,
    _counted: Option<Counted>,
}

/// The right of one request of HTTP/2 to a connection to its replica.
pub struct RequestPermit {
    _process: OwnedSemaphorePermit,
    _listener: OwnedSemaphorePermit,
}

impl Limits {
    pub fn new(descriptors_max: u64) -> Self {
        let usable = descriptors_max.saturating_sub(RESERVED_DESCRIPTORS) / DESCRIPTORS_PER_CONNECTION;
        let connections_max = usize::try_from(usable)
            .unwrap_or(usize::MAX)
            .clamp(CONNECTIONS_MIN, Semaphore::MAX_PERMITS);
        let kept_back = connections_max / KEPT_BACK;
        Self {
            common: Arc::new(Semaphore::new(connections_max - kept_back)),
            kept_back: Arc::new(Semaphore::new(kept_back)),
            few: (kept_back / KEPT_BACK).max(1),
            crowd: Arc::default(),
            connections_max,
            told_full: Arc::default(),
        }
    }

    pub fn listener(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(LISTENER_CONNECTIONS_MAX))
    }

    /// What the requests of one listener share that come over HTTP/2.
    pub fn requests(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(LISTENER_REQUESTS_MAX))
    }

    /// Room for a request, at once or not at all: its client's connection has others.
    pub fn try_request(&self, requests: &Arc<Semaphore>) -> Option<RequestPermit> {
        let listener = requests.clone().try_acquire_owned().ok()?;
        Some(RequestPermit {
            _process: self.try_process()?,
            _listener: listener,
        })
    }

    /// Waits for room. `None` never happens while the process runs: nobody closes these.
    pub async fn permit(&self, listener: &Arc<Semaphore>, side: Side) -> Option<Permit> {
        let listener = listener.clone().acquire_owned().await.ok()?;
        let common = self.common.clone().acquire_owned();
        let (process, is_kept_back) = match side {
            Side::Host => (common.await.ok()?, false),
            Side::Services => tokio::select! {
                biased;
                permit = common => (permit.ok()?, false),
                permit = self.kept_back.clone().acquire_owned() => (permit.ok()?, true),
            },
        };
        Some(Permit {
            _process: process,
            _listener: listener,
            is_kept_back,
            _counted: None,
        })
    }

    /// Counts a connection of a container. `None` where the container has many, and the rest is for those who have few.
    pub fn count(&self, permit: Permit, caller: IpAddr) -> Option<Permit> {
        let mut crowd = self.crowd.lock();
        let own = crowd.get(&caller).copied().unwrap_or(0);
        if permit.is_kept_back && own >= self.few {
            return None;
        }
        crowd.insert(caller, own + 1);
        drop(crowd);
        let counted = Counted {
            crowd: Arc::clone(&self.crowd),
            caller,
        };
        Some(Permit {
            _counted: Some(counted),
            ..permit
        })
    }

    /// Whether it is time to tell that there is no room.
    pub fn tells_full(&self) -> bool {
        let mut told = self.told_full.lock().unwrap_or_else(PoisonError::into_inner);
        let tells = told.is_none_or(|told| told.elapsed() >= TELL_FULL_INTERVAL);
        if tells {
            *told = Some(Instant::now());
        }
        tells
    }

    /// One of those that everybody may take, at once or not at all: for UDP, where nothing waits, for requests of HTTP/2 and
    /// for other nodes.
    pub fn try_process(&self) -> Option<OwnedSemaphorePermit> {
        self.common.clone().try_acquire_owned().ok()
    }
}

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut crowd = self.crowd.lock();
        let left = crowd.get(&self.caller).map_or(0, |own| own.saturating_sub(1));
        match left {
            0 => crowd.remove(&self.caller),
            left => crowd.insert(self.caller, left),
        };
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// As many connections of one container as it gets, at most `wanted`.
    fn take(limits: &Limits, listener: &Arc<Semaphore>, caller: IpAddr, wanted: usize) -> Vec<Permit> {
        let one = || {
            let permit = limits.permit(listener, Side::Services).now_or_never()??;
            limits.count(permit, caller)
        };
        std::iter::from_fn(one).take(wanted).collect()
    }

    #[test]
    fn one_container_leaves_room_for_the_others() {
        let limits = Limits::new(20_000);
        let listener = limits.listener();
        let (hog, other) = (IpAddr::from([10, 88, 0, 2]), IpAddr::from([10, 88, 0, 3]));
        let hogged = take(&limits, &listener, hog, usize::MAX);
        assert_eq!(
            hogged.len(),
            limits.connections_max - limits.connections_max / KEPT_BACK
        );
        // Others still come in, with a few each, and are let in again once they have left.
        for _ in 0..3 {
            assert_eq!(take(&limits, &listener, other, usize::MAX).len(), limits.few);
        }
        // Nor can the host's callers take what is kept back.
        assert!(limits.permit(&listener, Side::Host).now_or_never().is_none());
        drop(hogged);
        assert!(limits.permit(&listener, Side::Host).now_or_never().is_some());
        assert!(limits.crowd.lock().is_empty());
    }

    #[test]
    fn requests_of_one_listener_leave_room_for_others() {
        let limits = Limits::new(DESCRIPTORS_WANTED);
        let (flooded, quiet) = (limits.requests(), limits.requests());
        let taken: Vec<_> = std::iter::from_fn(|| limits.try_request(&flooded)).collect();
        assert_eq!(taken.len(), LISTENER_REQUESTS_MAX);
        assert!(limits.try_request(&quiet).is_some());
        drop(taken);
        assert!(limits.try_request(&flooded).is_some());
    }

    #[test]
    fn a_process_with_few_descriptors_serves_too() {
        let limits = Limits::new(0);
        assert_eq!(limits.connections_max, CONNECTIONS_MIN);
        assert!(
            limits
                .permit(&limits.listener(), Side::Services)
                .now_or_never()
                .is_some()
        );
        assert!(limits.try_process().is_some());
    }
}
