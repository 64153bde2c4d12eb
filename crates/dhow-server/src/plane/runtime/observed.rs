//! What a leader hears of nodes and keeps in memory alone: what they use, their leases as listings show them, and how far
//! the states of the other servers are. Written by the gateway, the sessions in this process and the leases;
//! read by listings and by whoever waits for the other servers. A new leader hears it anew. Nothing is decided by it but
//! about canaries and the counts of adaptive services, and what their figures come to is an entry of the log.

mod loads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::plan::CanaryBook;
use dhow_core::state::State;
use dhow_core::usage::{CanaryCount, NodeUsage};

use tokio::sync::Notify;

use super::holder_progress::HolderProgress;

/// A lease in wall time, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLease {
    pub acquired_unix_secs: i64,
    pub renewed_unix_secs: i64,
    pub ttl_secs: u32,
    pub grace_secs: u32,
}

/// The tables of what nodes use and of their leases, in the leader's memory; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    tables: Arc<Mutex<Tables>>,
    holders: HolderProgress,
    /// Told whenever requests wait for a first replica.
    called: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Tables {
    usages: BTreeMap<NodeId, Heard>,
    /// Over all nodes that were heard lately.
    calls: BTreeMap<ServiceKey, BTreeMap<String, CallSum>>,
    leases: BTreeMap<NodeId, SeenLease>,
    /// What nodes have counted of canaries, of those nodes that have.
    canaries: BTreeMap<NodeId, Vec<CanaryCount>>,
}

/// What a node has told of its use, and when.
#[derive(Clone, Debug)]
struct Heard {
    usage: Arc<NodeUsage>,
    at_ms: u64,
    /// Its calls are in the sums.
    is_counted: bool,
}

/// Calls of an endpoint over all nodes: requests and errors in thousandths a second, and those under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CallSum {
    requests_milli: u64,
    errors_milli: u64,
    in_flight: u64,
    waiting: u64,
}

impl Tables {
    fn add_calls(&mut self, usage: &NodeUsage) {
        for rate in &usage.endpoints {
            let of_service = self.calls.entry(rate.service.clone()).or_default();
            let sum = of_service.entry(rate.endpoint.clone()).or_default();
            sum.requests_milli = sum.requests_milli.saturating_add(rate.requests_milli);
            sum.errors_milli = sum.errors_milli.saturating_add(rate.errors_milli);
            sum.in_flight = sum.in_flight.saturating_add(rate.in_flight);
            sum.waiting = sum.waiting.saturating_add(rate.waiting);
        }
    }

    fn take_calls(&mut self, usage: &NodeUsage) {
        for rate in &usage.endpoints {
            let Some(of_service) = self.calls.get_mut(&rate.service) else {
                continue;
            };
            if let Some(sum) = of_service.get_mut(&rate.endpoint) {
                sum.requests_milli = sum.requests_milli.saturating_sub(rate.requests_milli);
                sum.errors_milli = sum.errors_milli.saturating_sub(rate.errors_milli);
                sum.in_flight = sum.in_flight.saturating_sub(rate.in_flight);
                sum.waiting = sum.waiting.saturating_sub(rate.waiting);
            }
            of_service.retain(|_, calls| *calls != CallSum::default());
            if of_service.is_empty() {
                self.calls.remove(&rate.service);
            }
        }
    }
}

impl Observed {
    /// A node of the state has said what it uses. Those that are no longer in the state are forgotten then.
    pub fn used(&self, state: &State, node: NodeId, usage: NodeUsage, now_ms: u64) {
        if state.node(node).is_none() {
            return;
        }
        let mut tables = self.tables();
        match usage.canaries.is_empty() {
            true => tables.canaries.remove(&node),
            false => tables.canaries.insert(node, usage.canaries.clone()),
        };
        tables.add_calls(&usage);
        let is_called = usage.endpoints.iter().any(|rate| rate.waiting > 0);
        let heard = Heard {
            usage: Arc::new(usage),
            at_ms: now_ms,
            is_counted: true,
        };
        if let Some(before) = tables
            .usages
            .insert(node, heard)
            .filter(|before| before.is_counted)
        {
            tables.take_calls(&before.usage);
        }
        if is_called {
            self.called.notify_one();
        }
        if tables.usages.len() > state.nodes.len() {
            let is_gone = |node: &NodeId| state.node(*node).is_none();
            let gone: Vec<NodeId> = tables.usages.keys().copied().filter(is_gone).collect();
            for node in gone {
                if let Some(heard) = tables.usages.remove(&node).filter(|heard| heard.is_counted) {
                    tables.take_calls(&heard.usage);
                }
            }
        }
    }

    /// Calls and errors of an endpoint over all nodes, in thousandths a second; none where nobody called lately.
    pub fn calls(&self, service: &ServiceKey, endpoint: &str) -> Option<(u64, u64)> {
        let tables = self.tables();
        let sum = tables.calls.get(service)?.get(endpoint)?;
        (sum.requests_milli > 0 || sum.errors_milli > 0).then_some((sum.requests_milli, sum.errors_milli))
    }

    /// What all nodes together have counted of the canaries of this state.
    pub fn canaries(&self, state: &State) -> CanaryBook {
        let mut book = CanaryBook::new();
        let tables = self.tables();
        let known = tables
            .canaries
            .iter()
            .filter(|(node, _)| state.node(**node).is_some());
        for count in known.flat_map(|(_, counts)| counts) {
            let id = state.service_ids.get(&count.service);
            let service = id.and_then(|id| state.service(*id));
            let base = service.and_then(|service| service.canary_base());
            if let (Some(id), Some(base)) = (id, base.filter(|base| base.0 == count.number)) {
                let sum = book.entry((*id, base)).or_default();
                *sum = sum.plus(count.figures);
            }
        }
        book
    }

    pub fn usage(&self, node: NodeId) -> Option<Arc<NodeUsage>> {
        let tables = self.tables();
        tables.usages.get(&node).map(|heard| Arc::clone(&heard.usage))
    }

    /// A lease was given or renewed.
    pub fn renewed(&self, node: NodeId, now_unix_secs: i64, ttl_secs: u32, grace_secs: u32) {
        let mut tables = self.tables();
        let known = tables.leases.get(&node).map(|lease| lease.acquired_unix_secs);
        let lease = SeenLease {
            acquired_unix_secs: known.unwrap_or(now_unix_secs),
            renewed_unix_secs: now_unix_secs,
            ttl_secs,
            grace_secs,
        };
        tables.leases.insert(node, lease);
    }

    /// Leases that have run out, or of nodes that are gone.
    pub fn ended(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut tables = self.tables();
        for node in nodes {
            tables.leases.remove(&node);
        }
    }

    /// This server keeps no leases from now on, or keeps them anew.
    pub fn forget_leases(&self) {
        self.tables().leases.clear();
    }

    /// How far the states of the other servers are.
    pub fn holders(&self) -> &HolderProgress {
        &self.holders
    }

    pub fn lease(&self, node: NodeId) -> Option<SeenLease> {
        self.tables().leases.get(&node).copied()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is whole before the lock is let go of, so one left by a panic is sound.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
