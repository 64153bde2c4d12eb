//! What a leader hears of nodes and keeps in memory alone: what they use, their leases as listings show them, and how far
//! the states of the other servers are. Written by the gateway, the sessions in this process and the leases;
//! read by listings and by whoever waits for the other servers. A new leader hears it anew. Nothing is decided by it but
//! about canaries, and what their figures come to is an entry of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::plan::CanaryBook;
use dhow_core::state::State;
use dhow_core::usage::{CanaryCount, NodeUsage};

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
}

#[derive(Debug, Default)]
struct Tables {
    usages: BTreeMap<NodeId, Arc<NodeUsage>>,
    /// Over all nodes: calls and errors, in thousandths a second.
    calls: BTreeMap<ServiceKey, BTreeMap<String, (u64, u64)>>,
    leases: BTreeMap<NodeId, SeenLease>,
    /// What nodes have counted of canaries, of those nodes that have.
    canaries: BTreeMap<NodeId, Vec<CanaryCount>>,
}

impl Tables {
    fn add_calls(&mut self, usage: &NodeUsage) {
        for rate in &usage.endpoints {
            let of_service = self.calls.entry(rate.service.clone()).or_default();
            let (requests, errors) = of_service.entry(rate.endpoint.clone()).or_default();
            *requests = requests.saturating_add(rate.requests_milli);
            *errors = errors.saturating_add(rate.errors_milli);
        }
    }

    fn take_calls(&mut self, usage: &NodeUsage) {
        for rate in &usage.endpoints {
            let Some(of_service) = self.calls.get_mut(&rate.service) else {
                continue;
            };
            if let Some((requests, errors)) = of_service.get_mut(&rate.endpoint) {
                *requests = requests.saturating_sub(rate.requests_milli);
                *errors = errors.saturating_sub(rate.errors_milli);
            }
            of_service.retain(|_, calls| *calls != (0, 0));
            if of_service.is_empty() {
                self.calls.remove(&rate.service);
            }
        }
    }
}

impl Observed {
    /// A node of the state has said what it uses. Those that are no longer in the state are forgotten then.
    pub fn used(&self, state: &State, node: NodeId, usage: NodeUsage) {
        if state.node(node).is_none() {
            return;
        }
        let mut tables = self.tables();
        match usage.canaries.is_empty() {
            true => tables.canaries.remove(&node),
            false => tables.canaries.insert(node, usage.canaries.clone()),
        };
        tables.add_calls(&usage);
        if let Some(before) = tables.usages.insert(node, Arc::new(usage)) {
            tables.take_calls(&before);
        }
        if tables.usages.len() > state.nodes.len() {
            let is_gone = |node: &NodeId| state.node(*node).is_none();
            let gone: Vec<NodeId> = tables.usages.keys().copied().filter(is_gone).collect();
            for usage in gone
                .iter()
                .filter_map(|node| tables.usages.remove(node))
                .collect::<Vec<_>>()
            {
                tables.take_calls(&usage);
            }
        }
    }

    /// Calls and errors of an endpoint over all nodes, in thousandths a second; none where nobody called lately.
    pub fn calls(&self, service: &ServiceKey, endpoint: &str) -> Option<(u64, u64)> {
        self.tables().calls.get(service)?.get(endpoint).copied()
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
        self.tables().usages.get(&node).cloned()
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
