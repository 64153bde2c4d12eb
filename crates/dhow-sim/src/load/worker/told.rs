//! What a worker is told of services, and what of it is counted: how late a change comes, whether anything comes that
//! nobody asked for, and whether all workers have the same in the end.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dhow_wire::grpc::proto::{Directory, DirectoryService, ReadyReplica, ServiceName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::load::latencies::Latencies;
use crate::load::squad::hash_of;
use crate::load::talk::{Interests, Views};

/// What all workers of a process share for it.
#[derive(Debug)]
pub struct Telling {
    pub interests: Interests,
    /// How often each worker changes one of its replicas; none: never.
    pub every: watch::Sender<Option<Duration>>,
    /// When each replica last changed, by a hash of its name, and whether it is ready since.
    changed: Mutex<HashMap<u64, (Instant, bool)>>,
    pub changes: AtomicU64,
    /// Messages with services in them, and the changes of replicas that they held.
    pub messages: AtomicU64,
    pub heard: AtomicU64,
    /// Messages to workers that run nothing and want nothing.
    pub to_idle: AtomicU64,
    /// Services that a worker neither runs nor wants.
    pub uninvited: AtomicU64,
    pub latencies: Latencies,
}

impl Telling {
    pub fn new(interests: Interests) -> Self {
        Self {
            interests,
            every: watch::Sender::new(None),
            changed: Mutex::default(),
            changes: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            to_idle: AtomicU64::new(0),
            uninvited: AtomicU64::new(0),
            latencies: Latencies::default(),
        }
    }

    /// A replica changes now.
    pub fn change(&self, replica: u64, is_ready: bool) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(replica, (Instant::now(), is_ready));
    }

    fn hear(&self, replica: u64, is_ready: bool) {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = changed.get(&replica).filter(|(_, now)| *now == is_ready);
        if let Some((at, _)) = found {
            self.latencies.add(at.elapsed());
        }
        self.heard.fetch_add(1, Ordering::Relaxed);
    }
}

/// The services that one worker knows: how many ready replicas each has, and a sum of their names.
#[derive(Debug, Default)]
pub struct View {
    services: BTreeMap<String, (u64, u64)>,
}

impl View {
    /// Takes in what a server tells.
    pub fn take(&mut self, told: &Directory, place: usize, telling: &Telling) {
        let is_idle = telling.interests.group_of(place).is_none();
        if !told.whole {
            telling.messages.fetch_add(1, Ordering::Relaxed);
            telling.to_idle.fetch_add(u64::from(is_idle), Ordering::Relaxed);
        }
        if told.whole {
            self.services.clear();
        }
        for service in &told.services {
            self.take_service(service, place, telling);
        }
    }

    fn take_service(&mut self, told: &DirectoryService, place: usize, telling: &Telling) {
        let name = format!("{}/{}", told.deployment, told.service);
        if !telling
            .interests
            .is_invited(place, &told.deployment, &told.service)
        {
            telling.uninvited.fetch_add(1, Ordering::Relaxed);
        }
        if told.gone {
            self.services.remove(&name);
            return;
        }
        if !told.changes_only {
            self.services.remove(&name);
        }
        let (count, sum) = self.services.entry(name).or_default();
        for ready in &told.ready {
            let hash = replica_hash(&told.deployment, &told.service, ready);
            (*count, *sum) = (*count + 1, *sum ^ hash);
            if told.changes_only {
                telling.hear(hash, true);
            }
        }
        for gone in &told.unready {
            let hash = replica_hash(&told.deployment, &told.service, gone);
            (*count, *sum) = (count.saturating_sub(1), *sum ^ hash);
            telling.hear(hash, false);
        }
    }

    pub fn add_to(&self, views: &mut Views) {
        for (service, (count, sum)) in &self.services {
            let seen = views.services.entry(service.clone()).or_default();
            seen.insert((*count, *sum));
        }
        views.known += self.services.len() as u64;
    }
}

fn replica_hash(deployment: &str, service: &str, ready: &ReadyReplica) -> u64 {
    hash_of(&(
        deployment,
        service,
        ready.role.as_str(),
        ready.index,
        ready.generation,
    ))
}

/// The same of a replica that a worker has.
pub fn hash_of_name(name: &dhow_core::ids::ReplicaName) -> u64 {
    hash_of(&(
        name.deployment.as_str(),
        name.service.as_str(),
        name.role.as_str(),
        name.index,
        name.generation.0,
    ))
}

/// What a worker wants of other deployments.
pub fn wanted(interests: &Interests, place: usize) -> Vec<ServiceName> {
    let wanted = interests.wanted_by(place);
    let names = wanted.map(|(deployment, service)| ServiceName { deployment, service });
    names.into_iter().collect()
}
