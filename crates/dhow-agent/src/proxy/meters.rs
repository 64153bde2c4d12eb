//! What passes each endpoint: counted by relaxed atomics where it passes, and read when the daemon asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhow_core::rollout::Figures;
use dhow_core::usage::{EndpointFigures, LATENCY_BOUNDS_US};

use super::canary::CanaryMeter;
use super::table::Canary;
use super::wants::Wants;

/// How long what was counted of a canary is told after its last replica has gone: one that crashes is back by then, with
/// the longest pause between two starts.
const CANARY_KEPT: Duration = Duration::from_secs(5 * 60);

/// The canary of an endpoint, and since when none of it is ready.
struct KnownCanary {
    meter: Arc<CanaryMeter>,
    gone: Option<Instant>,
}

/// Requests that wait for a first replica, at one endpoint of a node: each costs a connection and up to 64 KiB of headers,
/// and what comes beyond them would meet one replica that has just begun.
const WAITING_MAX: u64 = 100;

/// A request that waits for a first replica.
pub struct Waiting(Arc<EndpointMeter>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counts of one endpoint. Every route to it has the same ones, whichever address it is called at.
#[derive(Default)]
pub struct EndpointMeter {
    requests: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    open: AtomicU64,
    waiting: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    latency: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    latency_sum_us: AtomicU64,
    /// Its service was given up: a call says that it is wanted.
    asleep: AtomicBool,
    canary: Mutex<Option<KnownCanary>>,
    wake: Option<(String, Arc<Wants>)>,
}

impl EndpointMeter {
    pub fn set_asleep(&self, is_asleep: bool) {
        self.asleep.store(is_asleep, Ordering::Relaxed);
    }

    /// The turns and counts of the endpoint's canary, where there is one: those that there are, for the same one.
    pub fn try_canary(&self, canary: Option<Canary>) -> Option<Arc<CanaryMeter>> {
        let mut known = self.canary();
        let Some(canary) = canary else {
            if let Some(known) = known.as_mut() {
                known.gone.get_or_insert_with(Instant::now);
            }
            return None;
        };
        let before = known.take().map(|known| known.meter);
        let meter = match before {
            Some(meter) if meter.canary == canary => meter,
            Some(meter) if meter.canary.number == canary.number => Arc::new(meter.with_share(canary)),
            Some(_) | None => Arc::new(CanaryMeter::new(canary)),
        };
        *known = Some(KnownCanary {
            meter: Arc::clone(&meter),
            gone: None,
        });
        Some(meter)
    }

    fn canary(&self) -> MutexGuard<'_, Option<KnownCanary>> {
        // Nothing that runs under the lock leaves it half changed.
        self.canary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted of a canary, also of one that is just being started again.
    fn canary_figures(&self) -> Option<(u32, Figures)> {
        let mut known = self.canary();
        let is_over = |known: &KnownCanary| known.gone.is_some_and(|since| since.elapsed() > CANARY_KEPT);
        if known.as_ref().is_some_and(is_over) {
            *known = None;
        }
        let meter = &known.as_ref()?.meter;
        Some((meter.canary.number, meter.figures()))
    }

    fn wake(&self) {
        if let Some((id, wants)) = self.wake.as_ref().filter(|_| self.asleep.load(Ordering::Relaxed)) {
            wants.called(id);
        }
    }

    /// Whether anybody who decides hears that requests wait here.
    pub fn is_heard(&self) -> bool {
        self.wake.as_ref().is_none_or(|(_, wants)| wants.is_heard())
    }

    /// A request waits for a first replica until this is dropped; none where as many wait as may.
    pub fn wait(self: &Arc<Self>) -> Option<Waiting> {
        let more = |count: u64| (count < WAITING_MAX).then_some(count + 1);
        let order = Ordering::Relaxed;
        self.waiting.fetch_update(order, order, more).ok()?;
        if let Some((_, wants)) = &self.wake {
            wants.call();
        }
        Some(Waiting(Arc::clone(self)))
    }

    /// Somebody who may not call was turned away.
    pub fn refuse(&self) {
        add(&self.refused, 1);
    }

    fn figures(&self, id: &str) -> EndpointFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EndpointFigures {
            id: id.to_owned(),
            requests: read(&self.requests),
            errors: read(&self.errors),
            refused: read(&self.refused),
            received_bytes: read(&self.received_bytes),
            sent_bytes: read(&self.sent_bytes),
            open: read(&self.open),
            waiting: read(&self.waiting),
            latency: self.latency.iter().map(read).collect(),
            latency_sum_us: read(&self.latency_sum_us),
            canary: self.canary_figures(),
        }
    }
}

pub fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// One request, connection or session: counted when it begins, and open until it is dropped.
pub struct Call {
    pub meter: Arc<EndpointMeter>,
    begun: Instant,
}

impl Call {
    pub fn begin(meter: &Arc<EndpointMeter>) -> Self {
        add(&meter.requests, 1);
        add(&meter.open, 1);
        meter.wake();
        Self {
            meter: Arc::clone(meter),
            begun: Instant::now(),
        }
    }

    /// The answer begins, or a replica is connected to.
    pub fn answered(&self) {
        let took_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let class = LATENCY_BOUNDS_US.partition_point(|bound| *bound < took_us);
        if let Some(class) = self.meter.latency.get(class) {
            add(class, 1);
        }
        add(&self.meter.latency_sum_us, took_us);
    }

    /// No replica took it, or the one that did has failed.
    pub fn failed(&self) {
        add(&self.meter.errors, 1);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.meter.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The meters of all endpoints that the last table names, by the id of their routes.
#[derive(Default)]
pub struct Meters {
    meters: Mutex<BTreeMap<String, Arc<EndpointMeter>>>,
    /// Told of calls to what was given up.
    pub wants: Arc<Wants>,
}

impl Meters {
    pub fn of(&self, id: &str) -> Arc<EndpointMeter> {
        let mut meters = self.lock();
        let meter = meters.entry(id.to_owned()).or_insert_with(|| {
            Arc::new(EndpointMeter {
                wake: Some((id.to_owned(), Arc::clone(&self.wants))),
                ..EndpointMeter::default()
            })
        });
        Arc::clone(meter)
    }

    /// Forgets those of endpoints that are there no more.
    pub fn retain(&self, ids: &BTreeSet<&str>) {
        self.lock().retain(|id, _| ids.contains(id.as_str()));
    }

    /// What has passed, of those endpoints that were called.
    pub fn figures(&self) -> Vec<EndpointFigures> {
        let meters = self.lock();
        let figures = meters.iter().map(|(id, meter)| meter.figures(id));
        figures
            .filter(|figures| figures.requests > 0 || figures.refused > 0)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<EndpointMeter>>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::canary::{Tally, Version};
    use super::*;

    #[test]
    fn a_call_is_open_until_its_end_and_counted_once() {
        let meters = Meters::default();
        assert_eq!(meters.figures(), [], "nobody has called");
        let meter = meters.of("shop/db/pg");
        let call = Call::begin(&meter);
        call.answered();
        add(&meter.received_bytes, 7);
        let [now] = &meters.figures()[..] else {
            panic!("one endpoint was called");
        };
        assert_eq!(
            (now.requests, now.errors, now.open, now.received_bytes),
            (1, 0, 1, 7)
        );
        assert_eq!(now.latency.iter().sum::<u64>(), 1);
        call.failed();
        drop(call);
        meter.refuse();
        let ended = &meters.figures()[0];
        assert_eq!(
            (ended.requests, ended.errors, ended.open, ended.refused),
            (1, 1, 0, 1)
        );
        meters.retain(&BTreeSet::new());
        assert_eq!(meters.figures(), []);
    }

    #[test]
    fn so_many_requests_wait_and_no_more() {
        let meters = Meters::default();
        let meter = meters.of("shop/web/http");
        let calling = meters.wants.number();
        let waiting: Vec<Waiting> = (0..WAITING_MAX).filter_map(|_| meter.wait()).collect();
        assert_eq!(waiting.len(), 100);
        assert!(meter.wait().is_none());
        assert_ne!(meters.wants.number(), calling, "the daemon hears of it");
        let _call = Call::begin(&meter);
        assert_eq!(meters.figures()[0].waiting, 100);
        drop(waiting);
        assert_eq!(meters.figures()[0].waiting, 0);
        assert!(meter.wait().is_some());
        meters.wants.hear(false);
        assert!(!meter.is_heard());
    }

    #[test]
    fn a_canary_that_crashes_or_gets_another_share_is_counted_on() {
        let meter = EndpointMeter::default();
        let canary = |number, of| Some(Canary { number, share: 1, of });
        let count = |canary| {
            let split = meter.try_canary(canary).expect("a canary");
            drop(Tally::new(&split, Version::Canary));
        };
        let counted = || {
            meter
                .canary_figures()
                .map(|(number, figures)| (number, figures.canary.requests))
        };
        assert_eq!(counted(), None);
        count(canary(2, 4));
        assert!(meter.try_canary(None).is_none(), "it has crashed");
        count(canary(2, 4));
        count(canary(2, 9));
        assert_eq!(counted(), Some((2, 3)));
        count(canary(3, 9));
        assert_eq!(counted(), Some((3, 1)), "another one is counted anew");
    }
}
