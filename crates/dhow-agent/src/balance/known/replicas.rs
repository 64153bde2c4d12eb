//! Names of single replicas: which of them have an address of their own on this node.

use std::collections::BTreeSet;
use std::ops::Range;

use dhow_core::ids::DeploymentName;

use super::{Behind, Known};
use crate::balance::book::ReplicaKey;
use crate::proxy::{NamedReplica, NamedService};

/// Listeners for single replicas, of which each costs a descriptor: a quarter of what a table may have, so that those of
/// services always have room. A service whose replicas find no room here is called by its own name alone.
const REPLICA_LISTENERS_MAX: usize = 1024;

impl Known {
    /// The numbers that stand for services.
    pub fn service_numbers(&self) -> u32 {
        self.range.size() / 2
    }

    /// The numbers that stand for single replicas; the last address of a network is nobody's.
    pub fn replica_numbers(&self) -> Range<u32> {
        self.service_numbers()..self.range.size().saturating_sub(1)
    }

    /// The replicas that need a number.
    pub fn numbered_replicas(&self, behind: Behind<'_>) -> BTreeSet<ReplicaKey> {
        if self.dns.is_none() || !self.has_containers() {
            return BTreeSet::new();
        }
        let services = self.services_at_numbers(behind);
        let named = self.with_names(&services).into_iter();
        named.flat_map(|(_, replicas)| replicas).collect()
    }

    /// Gives replicas their names and addresses.
    pub(super) fn name_replicas(&self, services: &mut [NamedService]) {
        for (at, replicas) in self.with_names(services) {
            let named = replicas.into_iter().filter_map(|key| {
                let address = self.range.address(self.book.replica_number(&key)?)?;
                Some(NamedReplica { name: key.1, address })
            });
            if let Some(service) = services.get_mut(at) {
                service.replicas = named.collect();
            }
        }
    }

    /// The services whose replicas have names of their own, with these replicas: those of the deployments that have a
    /// replica here, small services first.
    fn with_names(&self, services: &[NamedService]) -> Vec<(usize, Vec<ReplicaKey>)> {
        let own = self.local.keys().chain(&self.kept).map(|key| &key.deployment);
        let own: BTreeSet<&str> = own.map(DeploymentName::as_str).collect();
        let mut found = Vec::new();
        for (at, service) in services.iter().enumerate() {
            let Ok(deployment) = DeploymentName::new(&service.deployment) else {
                continue;
            };
            if !own.contains(service.deployment.as_str()) {
                continue;
            }
            let backends = service.endpoints.iter().flat_map(|endpoint| &endpoint.backends);
            let replicas: BTreeSet<&str> = backends.filter_map(|backend| backend.replica()).collect();
            let keys = replicas
                .into_iter()
                .map(|replica| (deployment.clone(), replica.to_owned()));
            let keys: Vec<ReplicaKey> = keys.collect();
            found.push((keys.len() * service.endpoints.len(), at, keys));
        }
        found.sort_by_key(|(listeners, at, _)| (*listeners, *at));
        let mut room = REPLICA_LISTENERS_MAX;
        let fitting = found.into_iter().map_while(|(listeners, at, keys)| {
            room = room.checked_sub(listeners)?;
            Some((at, keys))
        });
        fitting.collect()
    }
}
