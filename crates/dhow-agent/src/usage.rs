//! Measures what the node and its replicas use, every few seconds, and hands it to the session, which tells it with the
//! next heartbeat. It only measures: nothing is decided by it, and nothing waits for it.

mod calling;
mod calls;
mod canaries;
mod host;
mod rates;

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::usage::{NodeUsage, ReplicaUsage};
use dhow_driver::driver::ReplicaStatus;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::balance::Balancer;
use crate::drivers::Drivers;
use crate::limits::{FOLLOWED_EVERY, USAGE_EVERY, USAGE_SETTLES};
use crate::session::Session;
use calling::Calling;
use calls::CallRates;
use host::HostFigures;
use rates::Rates;

/// The agent's task that measures what the node and its replicas use.
pub struct Meter {
    pub drivers: Drivers,
    pub balancer: Arc<dyn Balancer>,
    pub names: watch::Receiver<Arc<BTreeSet<ReplicaName>>>,
    pub session: Arc<dyn Session>,
}

impl Meter {
    /// Measures until it is dropped.
    pub async fn run(mut self) {
        let mut rates = Rates::default();
        let (mut host, mut calls) = (None, CallRates::default());
        let mut calling = Calling::of(&*self.balancer, &*self.session);
        let pace = self.session.pace();
        loop {
            self.names.borrow_and_update();
            let mut usage = self.measure(&mut rates, &mut host).await;
            if let Some(figures) = self.balancer.figures().await {
                usage.canaries = canaries::counted(&figures);
                let rates = calls.since(&figures, Instant::now());
                // What passed before the first look is not known.
                usage.tells_calls = rates.is_some();
                usage.endpoints = rates.unwrap_or_default();
            }
            let is_followed = pace.borrow().follows_load;
            let pause = match is_followed || !usage.canaries.is_empty() {
                true => FOLLOWED_EVERY,
                false => USAGE_EVERY,
            };
            self.session.usage(usage.clone(), is_followed);
            tokio::select! {
                () = sleep(pause) => {}
                () = others(&mut self.names) => {}
                never = calling.tell(usage, &*self.balancer, &*self.session) => match never {},
            }
        }
    }

    async fn measure(&self, rates: &mut Rates, host: &mut Option<HostFigures>) -> NodeUsage {
        let names = self.names.borrow().clone();
        rates.retain(&names);
        let mut usage = NodeUsage::default();
        for name in names.iter().take(NodeUsage::REPLICAS_MAX) {
            if let Some(used) = self.measure_replica(name, rates).await {
                usage.replicas.push((name.clone(), used));
            }
        }
        // A host that cannot be measured uses at least what its replicas do.
        let sum = |of: fn(&ReplicaUsage) -> u64| usage.replicas.iter().map(|(_, used)| of(used)).sum();
        (usage.cpu_milli, usage.memory_bytes) = (sum(|used| used.cpu_milli), sum(|used| used.memory_bytes));
        let now = tokio::task::spawn_blocking(HostFigures::read)
            .await
            .ok()
            .flatten();
        if let Some(now) = now {
            usage.memory_bytes = now.memory_used_bytes;
            usage.cpu_milli = match host {
                Some(before) => now.cpu_milli_since(before),
                None => usage.cpu_milli,
            };
            *host = Some(now);
        }
        usage
    }

    /// What a replica uses; none where it does not run.
    async fn measure_replica(&self, name: &ReplicaName, rates: &mut Rates) -> Option<ReplicaUsage> {
        let driver = self.drivers.having(name).await?;
        let running = match driver.inspect(name).await.ok()? {
            ReplicaStatus::Running(running) => running,
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => return None,
        };
        let started_unix_secs = i64::try_from(running.started_unix_ms / 1_000).ok();
        // One whose figures cannot be had runs all the same.
        let usage = driver.usage(name).await.unwrap_or_default();
        Some(ReplicaUsage {
            cpu_milli: rates.cpu_milli(name, running.pid, usage.cpu_us, Instant::now()),
            memory_bytes: usage.memory_bytes,
            started_unix_secs,
        })
    }
}

/// Waits until there are other replicas, and a moment longer: they rarely come alone.
async fn others(names: &mut watch::Receiver<Arc<BTreeSet<ReplicaName>>>) {
    if names.changed().await.is_err() {
        // The keeper is gone, and this with it.
        std::future::pending::<()>().await;
    }
    sleep(USAGE_SETTLES).await;
}
