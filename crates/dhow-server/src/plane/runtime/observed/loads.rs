//! The load of adaptive services, added up from what nodes have told lately.

use std::collections::BTreeMap;

use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::scaler::{Bounds, Load, LoadBook};
use dhow_core::spec::{ScaleSpec, ScaleTargets};
use dhow_core::state::{Service, State, Wanted};
use dhow_core::usage::NodeUsage;

use super::{Observed, Tables};

/// Figures of a node that is heard at least this often are old after so long: it measures every 10 s, and tells with its
/// next heartbeat.
const OLD_AFTER_MS: u64 = 30_000;

impl Observed {
    /// What all nodes together have told of each adaptive service. What is old counts for nothing from here on, until its
    /// node tells again.
    pub fn loads(&self, state: &State, now_ms: u64) -> LoadBook {
        let adaptive: Vec<&Service> = state
            .services
            .values()
            .map(AsRef::as_ref)
            .filter(|service| service.spec().is_some_and(|spec| Bounds::of(spec).is_some()))
            .collect();
        if adaptive.is_empty() {
            return LoadBook::new();
        }
        let mut tables = self.tables();
        tables.forget_old(now_ms);
        let all_tell = tables.all_tell(state);
        let full: Vec<NodeId> = tables.full_nodes();
        let loads = adaptive.into_iter().map(|service| {
            let mut load = tables.load_of(state, service);
            load.is_whole &= all_tell && tables.names_everywhere(&full, &service.key);
            (service.id, load)
        });
        loads.collect()
    }

    /// The same of one service, for people.
    pub fn load(&self, state: &State, service: &Service) -> Load {
        self.tables().load_of(state, service)
    }

    /// Waits until requests wait for a first replica somewhere.
    pub async fn called_for(&self) {
        self.called.notified().await;
    }
}

impl Tables {
    /// Takes what nodes told too long ago out of the sums.
    fn forget_old(&mut self, now_ms: u64) {
        let leases = &self.leases;
        let old = self.usages.iter_mut().filter_map(|(node, heard)| {
            // In a large cluster nodes are heard less often.
            let heard_every = leases.get(node).map_or(0, |lease| {
                u64::from(lease.ttl_secs.saturating_add(lease.grace_secs)).saturating_mul(1_000)
            });
            let old_at_ms = heard.at_ms.saturating_add(heard_every.max(OLD_AFTER_MS));
            let is_old = heard.is_counted && now_ms > old_at_ms;
            is_old.then(|| {
                heard.is_counted = false;
                heard.usage.clone()
            })
        });
        for usage in old.collect::<Vec<_>>() {
            self.take_calls(&usage);
        }
    }

    fn fresh(&self, node: NodeId) -> Option<&NodeUsage> {
        let heard = self.usages.get(&node).filter(|heard| heard.is_counted)?;
        Some(&heard.usage)
    }

    /// Whether every node that can be reached has told what passes it: requests for a service may arrive anywhere.
    fn all_tell(&self, state: &State) -> bool {
        let mut nodes = state.nodes.values().filter(|node| node.is_ready());
        nodes.all(|node| self.fresh(node.id).is_some_and(|usage| usage.tells_calls))
    }

    /// Nodes that have more to tell than one message takes.
    fn full_nodes(&self) -> Vec<NodeId> {
        let all = self.usages.iter();
        all.filter(|(_, heard)| heard.usage.endpoints.len() >= NodeUsage::ENDPOINTS_MAX)
            .map(|(node, _)| *node)
            .collect()
    }

    /// Whether each of these has named the service.
    fn names_everywhere(&self, nodes: &[NodeId], service: &ServiceKey) -> bool {
        nodes.iter().all(|node| {
            let mut named = self.fresh(*node).into_iter().flat_map(|usage| &usage.endpoints);
            named.any(|rate| rate.service == *service)
        })
    }

    fn load_of(&self, state: &State, service: &Service) -> Load {
        let mut load = Load {
            is_whole: true,
            ..Load::default()
        };
        let endpoints = self.calls.get(&service.key).map(BTreeMap::values);
        for sum in endpoints.into_iter().flatten() {
            load.requests_milli = load.requests_milli.saturating_add(sum.requests_milli);
            load.in_flight = load.in_flight.saturating_add(sum.in_flight);
            load.waiting = load.waiting.saturating_add(sum.waiting);
        }
        if is_measured(service) {
            self.add_used(state, service, &mut load);
        }
        load
    }

    /// Adds what its replicas use. Of one that is just being started nothing is known yet.
    fn add_used(&self, state: &State, service: &Service, load: &mut Load) {
        let replicas = state.replicas_of(service.id);
        for (key, replica) in replicas.filter(|(_, replica)| replica.wanted == Wanted::Run) {
            let name = state.replica_name(key);
            let usage = self.fresh(replica.node);
            let used = name.and_then(|name| usage?.replica(&name).copied());
            match used {
                Some(used) => {
                    load.cpu_milli = load.cpu_milli.saturating_add(used.cpu_milli);
                    load.memory_bytes = load.memory_bytes.saturating_add(used.memory_bytes);
                }
                None => load.is_whole = false,
            }
        }
    }
}

/// Whether what its replicas use says how many there are to be.
fn is_measured(service: &Service) -> bool {
    let targets = service.spec().map(|spec| &spec.scale);
    matches!(
        targets,
        Some(ScaleSpec::Adaptive {
            targets: ScaleTargets { cpu: Some(_), .. } | ScaleTargets { memory: Some(_), .. },
            ..
        })
    )
}
