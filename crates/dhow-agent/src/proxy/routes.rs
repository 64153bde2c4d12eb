//! A listener's routes, made for looking up: which route takes a request, which backend of it gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dhow_core::spec::EndpointOptions;

use super::backend::{BackendState, Lease};
use super::canary::{CanaryMeter, Tally, Version};
use super::meters::{EndpointMeter, Meters};
use super::plain_path;
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
    /// Requests are sent to HTTPS at this port instead.
    pub redirect: Option<u16>,
    /// The secret with the certificate that the cluster orders for its host.
    pub ordered: Option<String>,
    certificate: Option<String>,
    pub options: EndpointOptions,
    /// Its service may have no replica: requests wait so long for the first one.
    pub cold_start: Option<Duration>,
    path: Option<String>,
    backends: Vec<Arc<BackendState>>,
    /// Where the next choice begins, so that equally busy backends take turns.
    next: AtomicUsize,
    /// Where some of the backends are a canary.
    canary: Option<Split>,
}

/// What divides the backends of a route while a canary is tried.
struct Split {
    meter: Arc<CanaryMeter>,
    /// The backends of the canary.
    tried: BTreeSet<String>,
}

impl Split {
    fn version(&self, backend: &BackendState) -> Version {
        match self.tried.contains(&backend.id) {
            true => Version::Canary,
            false => Version::Base,
        }
    }
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
            let meter = meters.of(&route.id);
            let canary = meter.try_canary(route.backends.iter().find_map(|backend| backend.canary));
            let tried = backends.clone().filter(|backend| backend.canary.is_some());
            let tried: BTreeSet<String> = tried.map(|backend| backend.id.clone()).collect();
            meter.set_asleep(route.asleep);
            let made = Arc::new(Route {
                id: route.id.clone(),
                who: route.who.clone(),
                meter,
                redirect: route.redirect,
                ordered: route.ordered.clone(),
                certificate: route.certificate.clone(),
                options: route.options.clone(),
                cold_start: route.cold_start_ms.map(Duration::from_millis),
                // The whole tree is the same as no path.
                path: route.path.clone().filter(|path| path != "/"),
                backends: backends.filter_map(|backend| state(route, backend)).collect(),
                next: AtomicUsize::new(0),
                canary: canary.map(|meter| Split { meter, tried }),
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

    /// A route that names the host wins over one that names all hosts below another, and that over one that takes all;
    /// then the longest path wins.
    ///
    /// A path that a replica may read as one of another route is taken by none: what is not for everybody there would be
    /// had by writing it differently.
    pub fn find(&self, host: &str, path: &str) -> Option<Arc<Route>> {
        let found = self.taking(host, path)?;
        let is_sure = match plain_path::plain(path) {
            Some(plain) => self
                .taking(host, &plain)
                .is_some_and(|other| Arc::ptr_eq(found, other)),
            None => true,
        };
        is_sure.then(|| Arc::clone(found))
    }

    fn taking(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        let takes = |route: &&Arc<Route>| route.takes(path);
        let mut named = self.of_host(host);
        let named = named.find_map(|routes| routes.iter().find(takes));
        named.or_else(|| self.any_host.iter().find(takes))
    }

    /// The routes that name a host, then those that name all hosts beside it.
    fn of_host(&self, host: &str) -> impl Iterator<Item = &Vec<Arc<Route>>> {
        let named = !self.by_host.is_empty();
        let host = match named {
            true => normal_host(host),
            false => String::new(),
        };
        let wild = host.split_once('.').filter(|_| named);
        let wild = wild.and_then(|(_, above)| self.by_host.get(&format!("*.{above}")));
        self.by_host.get(&host).into_iter().chain(wild)
    }

    /// The secret with the certificate for clients of a host. Who names none, as clients that were given an address, is
    /// shown the first.
    pub fn certificate(&self, host: Option<&str>) -> Option<&str> {
        let any = self.any_host.first();
        let found = match host {
            Some(host) => self.of_host(host).find_map(|routes| routes.first()).or(any),
            None => any.or_else(|| self.by_host.values().find_map(|routes| routes.first())),
        };
        found.and_then(|route| route.certificate.as_deref())
    }

    /// Whether the cluster orders the certificate of a host.
    pub fn is_ordered(&self, host: &str) -> bool {
        let named = self.by_host.get(&normal_host(host));
        named.is_some_and(|routes| routes.iter().any(|route| route.ordered.is_some()))
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
    /// Whether somebody is there to take requests, however busy.
    pub fn has_backend(&self) -> bool {
        self.backends.iter().any(|backend| !backend.is_draining())
    }

    fn takes(&self, path: &str) -> bool {
        let Some(prefix) = &self.path else { return true };
        path.strip_prefix(prefix.as_str())
            .is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
    }

    /// The path of its own that every request begins with.
    pub fn prefix(&self) -> Option<&str> {
        self.path.as_deref().map(|path| path.trim_end_matches('/'))
    }

    /// As [`Route::pick`], for a client that is to stay where it was: by an address it gets the same backend for as long
    /// as that is usable, by a backend's mark just that one.
    pub fn pick_for(&self, client: Option<StickyTo>, tried: &Tried) -> Option<Lease> {
        let usable = |backend: &&Arc<BackendState>| {
            !backend.is_draining() && !tried.has(backend) && !backend.is_avoided()
        };
        let mut backends = self.backends.iter().filter(usable);
        let chosen = match client {
            Some(StickyTo::Address(addr)) => {
                // A share of the clients stands for that share of the requests.
                let version = self
                    .canary
                    .as_ref()
                    .map(|split| split.meter.turn_of(rank(addr, &self.id)));
                let is_of = |backend: &Arc<BackendState>| self.version(backend) == version;
                backends.max_by_key(|backend| (is_of(backend), rank(addr, &backend.id)))
            }
            Some(StickyTo::Backend(mark)) => backends.find(|backend| mark_of(&backend.id) == mark),
            None => None,
        };
        chosen
            .and_then(|backend| backend.lease())
            .map(|lease| self.tallied(lease))
            .or_else(|| self.pick(tried))
    }

    /// Which version a backend is of, where a canary is tried.
    fn version(&self, backend: &BackendState) -> Option<Version> {
        self.canary.as_ref().map(|split| split.version(backend))
    }

    /// Has the request counted for the version that it goes to.
    fn tallied(&self, mut lease: Lease) -> Lease {
        let split = self.canary.as_ref();
        lease.tally = split.map(|split| Tally::new(&split.meter, split.version(&lease.backend)));
        lease
    }

    pub fn has(&self, backend: &Arc<BackendState>) -> bool {
        self.backends.iter().any(|ours| Arc::ptr_eq(ours, backend))
    }

    /// Claims the least busy backend that is neither draining nor in `tried`, of the version whose turn it is. One that
    /// refused a connection lately is taken only when there is no other, and the other version when there is none of this.
    pub fn pick(&self, tried: &Tried) -> Option<Lease> {
        let Some(split) = &self.canary else {
            return self.pick_usable(tried);
        };
        // What has failed elsewhere is no turn of its own.
        let turn = match tried.is_empty() {
            true => split.meter.turn(),
            false => Version::Base,
        };
        let of_turn = |backend: &Arc<BackendState>| split.version(backend) == turn;
        let lease = self
            .pick_among(|backend| of_turn(backend) && !tried.has(backend) && !backend.is_avoided())
            .or_else(|| self.pick_usable(tried))?;
        Some(self.tallied(lease))
    }

    fn pick_usable(&self, tried: &Tried) -> Option<Lease> {
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

/// Where a client is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickyTo {
    /// With whoever its address leads to.
    Address(IpAddr),
    /// With the backend of this mark.
    Backend(u64),
}

/// What a cookie says of a backend. It is the same on every node, and tells nobody a name.
pub fn mark_of(id: &str) -> u64 {
    mixed(id.bytes(), 0)
}

/// The backend of the highest rank has the client: when one goes, only its own clients move.
fn rank(client: IpAddr, id: &str) -> u64 {
    let client = match client.to_canonical() {
        IpAddr::V4(addr) => u64::from(addr.to_bits()),
        // A client has all addresses of its last 64 bits.
        IpAddr::V6(addr) => u64::try_from(addr.to_bits() >> 64).unwrap_or_default(),
    };
    mixed(id.bytes(), client)
}

/// Spreads bytes over a number; the same on every machine.
fn mixed(bytes: impl Iterator<Item = u8>, seed: u64) -> u64 {
    let mix = |number: u64| {
        let mut n = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    };
    bytes.fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte)))
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

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, backend: &Arc<BackendState>) -> bool {
        self.0.iter().any(|tried| Arc::ptr_eq(tried, backend))
    }
}
