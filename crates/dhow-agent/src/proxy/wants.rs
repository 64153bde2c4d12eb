//! Which services of other deployments the callers of this node use: whoever asks for a name or calls an address makes the
//! node want to be told of the service, and one that nobody has used for a while is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhow_core::directory::INTERESTS_MAX;
use dhow_core::usage::EndpointFigures;
use tokio::sync::watch;

use super::table::{Names, WantedService};

/// A service that nobody has called or asked for in this time is given up. Its address stays: the next call brings it back.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// What one container may have asked for at a time: half of what all may, so that one that asks for whatever there is
/// leaves room to the others.
const INTERESTS_OF_ONE_MAX: usize = INTERESTS_MAX / 2;

/// The services in use; the name server, the listeners and the control connections share one.
pub struct Wants {
    book: Mutex<Book>,
    /// Counts the changes of what is wanted, and requests that begin to wait for a first replica.
    changes: watch::Sender<u64>,
    /// Nobody who decides hears this node: who waits for a first replica would do so in vain.
    is_unheard: AtomicBool,
}

#[derive(Default)]
struct Book {
    used: BTreeMap<WantedService, Use>,
    /// A table has been learnt: what an earlier proxy was told is known.
    has_begun: bool,
}

/// When a service was last used.
struct Use {
    at: Instant,
    /// The calls that were counted then.
    calls: u64,
    standing: Standing,
    /// The container that asked for it first; none where it is known by a call, or from an earlier proxy.
    asker: Option<IpAddr>,
}

/// What servers have said of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there, or they have not said anything yet.
    There,
    NoService,
    NoDeployment,
}

impl Use {
    fn begin(at: Instant, asker: Option<IpAddr>) -> Self {
        Self {
            at,
            calls: 0,
            standing: Standing::There,
            asker,
        }
    }
}

impl Default for Wants {
    fn default() -> Self {
        Self {
            book: Mutex::default(),
            // Whoever has followed another proxy has seen another count.
            changes: watch::Sender::new(u64::from(rand::random::<u32>())),
            is_unheard: AtomicBool::new(false),
        }
    }
}

impl Wants {
    /// Somebody asks for it; false where so much is in use that there is no room for it.
    pub fn want(&self, service: &WantedService, asker: Option<IpAddr>, now: Instant) -> bool {
        let mut book = self.lock();
        if let Some(known) = book.used.get_mut(service) {
            known.at = now;
            return true;
        }
        if !book.has_room(asker) {
            return false;
        }
        book.used.insert(service.clone(), Use::begin(now, asker));
        drop(book);
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
        true
    }

    /// Somebody has asked for it and found it, or that there is none: it stays known for as long as somebody does so. One
    /// that is known for another reason, such as a replica here, is wanted from now on, should that reason go.
    pub fn found(&self, service: &WantedService, asker: IpAddr, now: Instant) {
        let of_deployment = WantedService {
            deployment: service.deployment.clone(),
            service: String::new(),
        };
        let mut book = self.lock();
        let mut others = book.used.range_mut(of_deployment..);
        // Where there is no such deployment, one name of it stands for all.
        let first = others.next().map(|(first, used)| (&first.deployment, used));
        if let Some((deployment, used)) = first
            && *deployment == service.deployment
            && used.standing == Standing::NoDeployment
        {
            used.at = now;
            return;
        }
        drop(book);
        // One that finds no room is asked for again when it is needed.
        let _ = self.want(service, Some(asker), now);
    }

    /// Somebody calls an endpoint of it, by the id of its route.
    pub fn called(&self, route: &str) {
        if let Some(service) = WantedService::of_route(route) {
            self.want(&service, None, Instant::now());
        }
    }

    /// Learns from a table what there is not, and what an earlier proxy of this node was told on demand.
    pub fn learn(&self, names: Option<&Names>, now: Instant) {
        let Some(on_demand) = names.and_then(|names| names.on_demand.as_ref()) else {
            return;
        };
        let mut book = self.lock();
        let absent: BTreeSet<&WantedService> = on_demand.absent.iter().collect();
        let deployments: BTreeSet<&str> = on_demand.absent_deployments.iter().map(String::as_str).collect();
        for (service, used) in &mut book.used {
            used.standing = match deployments.contains(service.deployment.as_str()) {
                true => Standing::NoDeployment,
                false if absent.contains(service) => Standing::NoService,
                false => Standing::There,
            };
        }
        if std::mem::replace(&mut book.has_begun, true) {
            return;
        }
        for service in &on_demand.asked {
            if book.used.len() < INTERESTS_MAX && !book.used.contains_key(service) {
                book.used.insert(service.clone(), Use::begin(now, None));
            }
        }
    }

    /// What is wanted now, by what has passed each endpoint.
    pub fn wanted(&self, figures: &[EndpointFigures], now: Instant) -> Vec<WantedService> {
        let mut book = self.lock();
        let mut passed: BTreeMap<WantedService, (u64, u64)> = BTreeMap::new();
        for figures in figures {
            if let Some(service) = WantedService::of_route(&figures.id) {
                let (calls, open) = passed.entry(service).or_default();
                *calls = calls.saturating_add(figures.requests);
                *open = open.saturating_add(figures.open);
            }
        }
        for (service, used) in &mut book.used {
            let (calls, open) = passed.get(service).copied().unwrap_or_default();
            if open > 0 || calls != used.calls {
                (used.at, used.calls) = (now, calls);
            }
        }
        book.used
            .retain(|_, used| now.saturating_duration_since(used.at) < KEPT_FOR);
        book.used.keys().cloned().collect()
    }

    /// Waits until something else is wanted than at this count, and gives the newest count.
    pub async fn changed(&self, seen: u64) -> u64 {
        let mut changes = self.changes.subscribe();
        let changed = changes.wait_for(|number| *number != seen).await;
        changed.map_or(seen, |number| *number)
    }

    /// Another proxy serves now: whoever waits here is to ask that one.
    pub fn end(&self) {
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    /// A request waits for a first replica: the daemon is to hear of it.
    pub fn call(&self) {
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Takes whether anybody who decides hears this node.
    pub fn hear(&self, is_heard: bool) {
        self.is_unheard.store(!is_heard, Ordering::Relaxed);
    }

    pub fn is_heard(&self) -> bool {
        !self.is_unheard.load(Ordering::Relaxed)
    }

    pub fn number(&self) -> u64 {
        *self.changes.borrow()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Nothing that runs under the lock leaves the map half changed.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Whether there is room for one more; names that there are not make room for others.
    fn has_room(&mut self, asker: Option<IpAddr>) -> bool {
        let own = |used: &Use| asker.is_some() && used.asker == asker;
        let count = self.used.values().filter(|used| own(used)).count();
        (count < INTERESTS_OF_ONE_MAX || self.forget_absent(own))
            && (self.used.len() < INTERESTS_MAX || self.forget_absent(|_| true))
    }

    /// Forgets one of these that there is not: the one that was asked for longest ago. Whether there was any.
    fn forget_absent(&mut self, is_one: impl Fn(&Use) -> bool) -> bool {
        let absent = |used: &Use| match used.standing {
            Standing::NoService | Standing::NoDeployment => is_one(used),
            Standing::There => false,
        };
        let absent = self.used.iter().filter(|(_, used)| absent(used));
        let oldest = absent.min_by_key(|(_, used)| used.at);
        match oldest.map(|(service, _)| service.clone()) {
            Some(service) => self.used.remove(&service).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::table::OnDemand;

    fn service(name: &str) -> WantedService {
        WantedService {
            deployment: "shop".into(),
            service: name.into(),
        }
    }

    fn figures(route: &str, requests: u64, open: u64) -> EndpointFigures {
        EndpointFigures {
            id: route.into(),
            requests,
            open,
            ..EndpointFigures::default()
        }
    }

    #[test]
    fn what_is_not_used_is_given_up() {
        let (wants, begin) = (Wants::default(), Instant::now());
        let wanted = |figures: &[EndpointFigures], secs| {
            let wanted = wants.wanted(figures, begin + Duration::from_secs(secs));
            wanted.into_iter().map(|found| found.service).collect::<Vec<_>>()
        };
        let number = wants.number();
        assert!(wants.want(&service("db"), None, begin) && wants.want(&service("web"), None, begin));
        assert_eq!(wants.number(), number + 2);
        assert!(wants.want(&service("db"), None, begin), "it is known");
        assert_eq!(wants.number(), number + 2);
        assert_eq!(wanted(&[], 599), ["db", "web"]);
        // One is called, the other one has a connection open.
        assert_eq!(wanted(&[figures("shop/db/pg", 1, 0)], 599), ["db", "web"]);
        assert_eq!(wanted(&[figures("shop/db/pg", 1, 0)], 700), ["db"]);
        assert_eq!(wanted(&[figures("shop/db/pg", 1, 1)], 1_100), ["db"]);
        assert_eq!(wanted(&[figures("shop/db/pg", 1, 0)], 1_699), ["db"]);
        assert_eq!(wanted(&[figures("shop/db/pg", 1, 0)], 1_700), [""; 0]);
        wants.called("shop/db/pg");
        assert_eq!(wanted(&[], 0), ["db"]);
    }

    fn asker(n: u8) -> IpAddr {
        IpAddr::from([10, 88, 0, n])
    }

    fn absent(services: &[&str], deployments: &[&str]) -> Names {
        Names {
            on_demand: Some(OnDemand {
                absent: services.iter().map(|name| service(name)).collect(),
                absent_deployments: deployments.iter().map(|name| (*name).to_owned()).collect(),
                ..OnDemand::default()
            }),
            ..Names::default()
        }
    }

    #[test]
    fn names_that_there_are_not_make_room() {
        let (wants, begin) = (Wants::default(), Instant::now());
        let want = |name: &str, ms| wants.want(&service(name), None, begin + Duration::from_millis(ms));
        for n in 0..INTERESTS_MAX {
            assert!(want(&format!("s{n}"), n as u64));
        }
        assert!(!want("db", 0), "all are in use");
        wants.learn(Some(&absent(&["s7", "s9"], &[])), begin);
        assert!(want("db", 0));
        let wanted = wants.wanted(&[], begin);
        assert!(!wanted.contains(&service("s7")) && wanted.contains(&service("s9")));
    }

    #[test]
    fn one_container_that_asks_for_everything_leaves_room_to_others() {
        let (wants, begin) = (Wants::default(), Instant::now());
        let want = |name: &str, by| wants.want(&service(name), Some(asker(by)), begin);
        for n in 0..INTERESTS_OF_ONE_MAX {
            assert!(want(&format!("s{n}"), 2));
        }
        assert!(!want("one-more", 2));
        assert!(want("s0", 2), "what it has asked for it has");
        assert!(want("db", 3), "another one has its own");
        // Of names that there are not it has as many as it likes, one after the other.
        wants.learn(Some(&absent(&["s7"], &[])), begin);
        assert!(want("one-more", 2) && !want("yet-another", 2));
    }

    #[test]
    fn what_is_asked_for_again_stays() {
        let (wants, begin) = (Wants::default(), Instant::now());
        assert!(wants.want(&service("x"), None, begin));
        wants.learn(Some(&absent(&[], &["shop"])), begin);
        // Any name of a deployment that there is not keeps the one that is known, and no other.
        let later = begin + KEPT_FOR / 2;
        wants.found(&service("y"), asker(2), later);
        assert_eq!(wants.wanted(&[], begin + KEPT_FOR), [service("x")]);
        // What is there and was known for another reason is wanted for its own sake.
        wants.learn(Some(&absent(&["x"], &[])), begin);
        let number = wants.number();
        wants.found(&service("db"), asker(2), later);
        assert_eq!(wants.number(), number + 1);
        assert_eq!(wants.wanted(&[], later), [service("db"), service("x")]);
        wants.found(&service("db"), asker(2), later + KEPT_FOR / 2);
        assert_eq!(wants.wanted(&[], later + KEPT_FOR), [service("db")]);
    }

    #[test]
    fn what_an_earlier_proxy_was_told_is_still_wanted() {
        let (wants, begin) = (Wants::default(), Instant::now());
        let names = Names {
            on_demand: Some(OnDemand {
                asked: vec![service("db")],
                asleep: vec![service("web")],
                ..OnDemand::default()
            }),
            ..Names::default()
        };
        wants.learn(Some(&names), begin);
        assert_eq!(wants.wanted(&[], begin), [service("db")]);
        // Once it is given up, a table that still has it changes nothing.
        assert_eq!(wants.wanted(&[], begin + KEPT_FOR), []);
        wants.learn(Some(&names), begin + KEPT_FOR);
        assert_eq!(wants.wanted(&[], begin + KEPT_FOR), []);
    }
}
