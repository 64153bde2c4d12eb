//! Which services of other deployments the callers of this node use: whoever asks for a name or calls an address makes the
//! node want to be told of the service, and one that nobody has used for a while is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhow_core::directory::INTERESTS_MAX;
use dhow_core::usage::EndpointFigures;
use tokio::sync::watch;

use super::table::{Names, WantedService};

/// A service that nobody has called or asked for in this time is given up. Its address stays: the next call brings it back.
pub const KEPT_FOR: Duration = Duration::from_secs(600);
/// The same of a name that there is not: long enough that a resolver which tries all of its search paths finds the answer
/// here, short enough that mistyped names make room.
pub const ABSENT_KEPT_FOR: Duration = Duration::from_secs(60);

/// The services in use; the name server, the listeners and the control connections share one.
pub struct Wants {
    book: Mutex<Book>,
    /// Counts the changes of what is wanted.
    changes: watch::Sender<u64>,
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
    is_absent: bool,
}

impl Default for Wants {
    fn default() -> Self {
        Self {
            book: Mutex::default(),
            // Whoever has followed another proxy has seen another count.
            changes: watch::Sender::new(u64::from(rand::random::<u32>())),
        }
    }
}

impl Wants {
    /// Somebody asks for it; false where so much is in use that there is no room for it.
    pub fn want(&self, service: &WantedService, now: Instant) -> bool {
        let mut book = self.lock();
        if let Some(known) = book.used.get_mut(service) {
            known.at = now;
            return true;
        }
        if book.used.len() >= INTERESTS_MAX && !book.make_room() {
            return false;
        }
        let used = Use {
            at: now,
            calls: 0,
            is_absent: false,
        };
        book.used.insert(service.clone(), used);
        drop(book);
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
        true
    }

    /// Somebody calls an endpoint of it, by the id of its route.
    pub fn called(&self, route: &str) {
        if let Some(service) = WantedService::of_route(route) {
            self.want(&service, Instant::now());
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
            used.is_absent = absent.contains(service) || deployments.contains(service.deployment.as_str());
        }
        if std::mem::replace(&mut book.has_begun, true) {
            return;
        }
        for service in &on_demand.asked {
            if book.used.len() < INTERESTS_MAX && !book.used.contains_key(service) {
                let used = Use {
                    at: now,
                    calls: 0,
                    is_absent: false,
                };
                book.used.insert(service.clone(), used);
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
        book.used.retain(|_, used| {
            let kept_for = if used.is_absent { ABSENT_KEPT_FOR } else { KEPT_FOR };
            now.saturating_duration_since(used.at) < kept_for
        });
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

    pub fn number(&self) -> u64 {
        *self.changes.borrow()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Nothing that runs under the lock leaves the map half changed.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Forgets the name that there is not and that was asked for longest ago.
    fn make_room(&mut self) -> bool {
        let absent = self.used.iter().filter(|(_, used)| used.is_absent);
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
        assert!(wants.want(&service("db"), begin) && wants.want(&service("web"), begin));
        assert_eq!(wants.number(), number + 2);
        assert!(wants.want(&service("db"), begin), "it is known");
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

    #[test]
    fn names_that_there_are_not_make_room() {
        let (wants, begin) = (Wants::default(), Instant::now());
        for n in 0..INTERESTS_MAX {
            assert!(wants.want(
                &service(&format!("s{n}")),
                begin + Duration::from_millis(n as u64)
            ));
        }
        assert!(!wants.want(&service("db"), begin), "all are in use");
        let names = Names {
            on_demand: Some(OnDemand {
                absent: vec![service("s7"), service("s9")],
                ..OnDemand::default()
            }),
            ..Names::default()
        };
        wants.learn(Some(&names), begin);
        assert!(wants.want(&service("db"), begin));
        let wanted = wants.wanted(&[], begin);
        assert!(!wanted.contains(&service("s7")) && wanted.contains(&service("s9")));
        let later = wants.wanted(&[], begin + ABSENT_KEPT_FOR + Duration::from_secs(1));
        assert!(!later.contains(&service("s9")) && later.contains(&service("s8")));
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
