//! A listener's routes, made for looking up: which route takes a request, which backend of it gets it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::backend::{BackendState, Lease};
use super::meters::{EndpointMeter, Meters};
use super::table::{self, Peer, Rule, normal_host};

/// How many usable backends one choice compares. Among this many the least busy one is as good as the least
/// busy of all, and the cost of a choice does not grow with the service.
const COMPARED_MAX: usize = 16;

/// The routes of one listener, by host and path.
#[derive(Default)]
pub struct RouteSet {
    by_host: BTreeMap<String, Vec<Arc<Route>>>,
    any_host: Vec<Arc<Route>>,
}

/// One route: who may use it, the path that it takes and the backends that it spreads requests over.
pub struct Route {
    pub id: String,
    pub who: Rule,
    pub meter: Arc<EndpointMeter>,
    path: Option<String>,
    backends: Vec<Arc<BackendState>>,
    /// Where the next choice begins, so that equally busy backends take turns.
    next: AtomicUsize,
}

impl RouteSet {
    pub fn new(
        routes: &[table::Route],
        meters: &Meters,
        mut state: impl FnMut(&table::Route, &table::Backend) -> Option<Arc<BackendState>>,
    ) -> Self {
        let mut set = Self::default();
        for route in routes {
            let backends = route.backends.iter();
            let made = Arc::new(Route {
                id: route.id.clone(),
                who: route.who.clone(),
                meter: meters.of(&route.id),
                // The whole tree is the same as no path.
                path: route.path.clone().filter(|path| path != "/"),
                backends: backends.filter_map(|backend| state(route, backend)).collect(),
                next: AtomicUsize::new(0),
            });
            let same_host = match &route.host {
                Some(host) => set.by_host.entry(normal_host(host)).or_default(),
                None => &mut set.any_host,
            };
            same_host.push(made);
        }
        for same_host in set.by_host.values_mut().chain([&mut set.any_host]) {
            same_host.sort_by_key(|route| std::cmp::Reverse(route.path.as_ref().map_or(0, String::len)));
        }
        set
    }

    /// A route that names the host wins over one that takes all; then the longest path wins.
    pub fn find(&self, host: &str, path: &str) -> Option<Arc<Route>> {
        let takes = |route: &&Arc<Route>| route.takes(path);
        let named = if self.by_host.is_empty() {
            None
        } else {
            let same_host = self.by_host.get(&normal_host(host));
            same_host.and_then(|routes| routes.iter().find(takes))
        };
        named.or_else(|| self.any_host.iter().find(takes)).cloned()
    }

    /// Whether who calls has to be known.
    pub fn is_judged(&self) -> bool {
        self.all().any(|route| matches!(route.who, Rule::Judged(_)))
    }

    /// One of the routes, where every one refuses this caller.
    pub fn refusing(&self, peer: &Peer) -> Option<&Arc<Route>> {
        let admitted = self.all().any(|route| route.who.admits(peer));
        if admitted { None } else { self.all().next() }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.by_host.values().flatten().chain(&self.any_host)
    }

    /// The one route of a `Tcp` or `Udp` listener.
    pub fn only(&self) -> Option<&Arc<Route>> {
        self.any_host.first()
    }
}

impl Route {
    fn takes(&self, path: &str) -> bool {
        let Some(prefix) = &self.path else { return true };
        path.strip_prefix(prefix.as_str())
            .is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
    }

    pub fn has(&self, backend: &Arc<BackendState>) -> bool {
        self.backends.iter().any(|ours| Arc::ptr_eq(ours, backend))
    }

    /// Claims the least busy backend that is neither draining nor in `tried`. One that refused a connection
    /// lately is taken only when there is no other.
    pub fn pick(&self, tried: &Tried) -> Option<Lease> {
        self.pick_among(|backend| !tried.has(backend) && !backend.is_avoided())
            .or_else(|| self.pick_among(|backend| !tried.has(backend)))
    }

    fn pick_among(&self, usable: impl Fn(&Arc<BackendState>) -> bool) -> Option<Lease> {
        let count = self.backends.len();
        // A backend that begins to drain between the choice and the claim is seen as draining next time:
        // there are at most as many rounds as backends.
        for _ in 0..count {
            let start = self.next.fetch_add(1, Ordering::Relaxed) % count;
            let (before, after) = self.backends.split_at(start);
            let candidates = after.iter().chain(before);
            let chosen = candidates
                .filter(|backend| !backend.is_draining() && usable(backend))
                .take(COMPARED_MAX)
                .min_by_key(|backend| backend.in_flight())?;
            if let Some(lease) = chosen.lease() {
                return Some(lease);
            }
        }
        None
    }
}

/// The backends that one request has failed on.
#[derive(Default)]
pub struct Tried(Vec<Arc<BackendState>>);

impl Tried {
    pub fn add(&mut self, backend: &Arc<BackendState>) {
        self.0.push(backend.clone());
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn has(&self, backend: &Arc<BackendState>) -> bool {
        self.0.iter().any(|tried| Arc::ptr_eq(tried, backend))
    }
}
