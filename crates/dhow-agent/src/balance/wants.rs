//! Which services of other deployments this node wants to be told of: what the proxy's callers use, and what somebody looks
//! at through the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dhow_core::directory::INTERESTS_MAX;
use dhow_core::ids::{DeploymentName, ServiceKey, ServiceName};
use dhow_driver::driver::error_chain;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::proxy::{ProxyClient, ProxyError, Wanted, WantedService};

/// How long the proxy is waited for in one request; what was given up is noticed that late.
const POLL: Duration = Duration::from_secs(30);
/// The pause after an answer: a container that asks for thousands of names costs this node fifty requests a second, and the
/// first question of one that was silent waits for nothing.
const GAP: Duration = Duration::from_millis(20);
/// The pause after a request that was not answered: the proxy is being started.
const PAUSE: Duration = Duration::from_millis(500);
/// The same after one that the proxy does not know: it is of an earlier version, and about to be replaced.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// What somebody looks at is wanted for this long after.
const LOOK_KEPT_FOR: Duration = Duration::from_secs(60);
/// Services that are looked at at a time: an eighth of what a node may want.
const LOOKS_MAX: usize = INTERESTS_MAX / 8;

/// The services that are wanted, for the session to tell servers.
pub struct Wants {
    state: Arc<WantsState>,
    /// Asks the proxy that runs now.
    following: Mutex<Option<AbortHandle>>,
}

struct WantsState {
    by_proxy: Mutex<BTreeSet<ServiceKey>>,
    looked_at: Mutex<BTreeMap<ServiceKey, Instant>>,
    wanted: watch::Sender<BTreeSet<ServiceKey>>,
    /// Counts what the proxy says of requests that wait for a first replica.
    calling: watch::Sender<u64>,
    /// Whether anybody who decides hears this node.
    is_heard: watch::Sender<bool>,
}

impl Wants {
    /// What the daemon before this one wanted counts until the proxy has spoken.
    pub fn new(remembered: BTreeSet<ServiceKey>) -> Self {
        let state = WantsState {
            by_proxy: Mutex::new(remembered.clone()),
            looked_at: Mutex::default(),
            wanted: watch::Sender::new(remembered),
            calling: watch::Sender::new(0),
            is_heard: watch::Sender::new(true),
        };
        Self {
            state: Arc::new(state),
            following: Mutex::default(),
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<BTreeSet<ServiceKey>> {
        self.state.wanted.subscribe()
    }

    /// Follows that requests wait for a first replica.
    pub fn calling(&self) -> watch::Receiver<u64> {
        self.state.calling.subscribe()
    }

    /// Has the proxy know whether anybody who decides hears this node.
    pub fn hear(&self, is_heard: bool) {
        self.state
            .is_heard
            .send_if_modified(|known| std::mem::replace(known, is_heard) != is_heard);
    }

    pub fn now(&self) -> BTreeSet<ServiceKey> {
        self.state.wanted.borrow().clone()
    }

    /// Somebody looks at a service. Where many do so at other ones, what is known of it has to do.
    pub fn look_at(&self, service: &ServiceKey) {
        let mut looked_at = locked(&self.state.looked_at);
        if looked_at.len() < LOOKS_MAX || looked_at.contains_key(service) {
            looked_at.insert(service.clone(), Instant::now());
        }
        drop(looked_at);
        self.state.settle();
    }

    /// Asks this proxy until it is stopped; nothing changes where it is asked already.
    pub fn follow(&self, client: &Arc<ProxyClient>) {
        let mut following = locked(&self.following);
        if following.is_none() {
            let task = tokio::spawn(follow(Arc::clone(&self.state), Arc::clone(client)));
            *following = Some(task.abort_handle());
        }
    }

    /// There is no proxy any more, and nobody who calls.
    pub fn stop(&self) {
        if let Some(before) = locked(&self.following).take() {
            before.abort();
        }
        locked(&self.state.by_proxy).clear();
        self.state.settle();
    }
}

impl Drop for Wants {
    fn drop(&mut self) {
        if let Some(following) = locked(&self.following).take() {
            following.abort();
        }
    }
}

impl WantsState {
    /// Makes what is wanted of both sources.
    fn settle(&self) {
        let mut looked_at = locked(&self.looked_at);
        looked_at.retain(|_, at| at.elapsed() < LOOK_KEPT_FOR);
        let by_proxy = locked(&self.by_proxy);
        let all = by_proxy.iter().chain(looked_at.keys());
        let wanted: BTreeSet<ServiceKey> = all.take(INTERESTS_MAX).cloned().collect();
        drop(by_proxy);
        self.wanted.send_if_modified(|known| {
            let is_news = *known != wanted;
            *known = wanted;
            is_news
        });
    }
}

async fn follow(state: Arc<WantsState>, client: Arc<ProxyClient>) {
    // The first answer comes at once, whatever the proxy has counted.
    let (mut seen, mut wait) = (u64::MAX, Duration::ZERO);
    let mut heard = state.is_heard.subscribe();
    loop {
        let is_heard = *heard.borrow_and_update();
        let asked = tokio::select! {
            biased;
            asked = client.wants(seen, wait, is_heard) => asked,
            // It is to know at once: requests wait in vain.
            Ok(()) = heard.changed() => {
                wait = Duration::ZERO;
                continue;
            }
        };
        match asked {
            Ok(Wanted {
                number,
                services,
                is_waiting,
            }) => {
                (seen, wait) = (number, POLL);
                if is_waiting {
                    state.calling.send_modify(|count| *count = count.wrapping_add(1));
                }
                *locked(&state.by_proxy) = services.into_iter().filter_map(key).collect();
                state.settle();
                tokio::time::sleep(GAP).await;
            }
            Err(error) => {
                tracing::debug!(
                    why = error_chain(&error),
                    "the balancer does not say what it wants"
                );
                let is_refused = matches!(error, ProxyError::Refused { .. });
                tokio::time::sleep(if is_refused { REFUSED_PAUSE } else { PAUSE }).await;
            }
        }
    }
}

fn key(wanted: WantedService) -> Option<ServiceKey> {
    Some(ServiceKey {
        deployment: DeploymentName::new(&wanted.deployment).ok()?,
        service: ServiceName::new(&wanted.service).ok()?,
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Replaced as a whole under the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
