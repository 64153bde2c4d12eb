//! Questions that several readers ask of the state.

use std::sync::Arc;

use super::{Deployment, Node, Replica, ScheduleRun, Service, State, Wanted};
use crate::ids::{
    DeploymentName, Generation, NodeId, ReplicaKey, ReplicaName, RoleId, ServiceId, ServiceKey, ServiceName,
    Slot,
};
use crate::spec::RType;

impl State {
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    pub fn deployment(&self, name: &DeploymentName) -> Option<&Arc<Deployment>> {
        self.deployments.get(name)
    }

    pub fn service(&self, id: ServiceId) -> Option<&Arc<Service>> {
        self.services.get(&id)
    }

    pub fn service_named(&self, deployment: &DeploymentName, service: &ServiceName) -> Option<&Arc<Service>> {
        let key = ServiceKey {
            deployment: deployment.clone(),
            service: service.clone(),
        };
        self.services.get(self.service_ids.get(&key)?)
    }

    /// The replicas of a service in the order of their slots, old generations before new.
    pub fn replicas_of(&self, service: ServiceId) -> impl Iterator<Item = (&ReplicaKey, &Arc<Replica>)> {
        let first = |service| ReplicaKey {
            service,
            slot: Slot {
                role: RoleId(0),
                index: 0,
            },
            generation: Generation(0),
        };
        let last = ReplicaKey {
            service,
            slot: Slot {
                role: RoleId(u16::MAX),
                index: u32::MAX,
            },
            generation: Generation(u32::MAX),
        };
        self.replicas.range(first(service)..=last)
    }

    /// The names behind a key.
    pub fn replica_name(&self, key: &ReplicaKey) -> Option<ReplicaName> {
        let service = self.service(key.service)?;
        Some(ReplicaName {
            deployment: service.key.deployment.clone(),
            service: service.key.service.clone(),
            role: service.role(key.slot.role)?.clone(),
            index: key.slot.index,
            generation: key.generation,
        })
    }

    /// The key behind names, where the service and the role are known.
    pub fn replica_key(&self, name: &ReplicaName) -> Option<ReplicaKey> {
        let service = self.service_named(&name.deployment, &name.service)?;
        let slot = Slot {
            role: service.role_id(&name.role)?,
            index: name.index,
        };
        Some(ReplicaKey {
            service: service.id,
            slot,
            generation: name.generation,
        })
    }

    /// Whether a drain has nothing left to do on the node: nothing runs there, or only what may stay.
    pub fn is_cleared(&self, node: &Node) -> bool {
        let may_stay = |key: ReplicaKey| {
            let runs = self.replicas.get(&key).is_some_and(|replica| replica.reserves());
            let system = |service: &Arc<Service>| service.rtype() == RType::System;
            !runs || self.service(key.service).is_some_and(system)
        };
        node.is_idle() || (node.drain_rules.ignore_system && node.replica_keys().all(may_stay))
    }

    /// Whether the last run of a cron service has not ended: the next one waits for that.
    pub fn has_run_under_way(&self, service: &Service) -> bool {
        let has_replica = |slot: Slot| {
            let key = |generation| ReplicaKey {
                service: service.id,
                slot,
                generation: Generation(generation),
            };
            self.replicas.range(key(0)..=key(u32::MAX)).next().is_some()
        };
        if !service.runs.is_empty() {
            return service.open_runs().next().is_some();
        }
        let waiting = service.cron_runs > 0
            && service
                .wanted_slots()
                .any(|slot| !service.is_done(slot) && !has_replica(slot));
        let mut replicas = self.replicas_of(service.id);
        waiting || replicas.any(|(_, replica)| !replica.machine.state.is_ended())
    }

    /// Whether every slot of a run has come to its end, and whether all have done their work. None while one has not.
    pub fn run_end(&self, service: &Service, run: &ScheduleRun) -> Option<bool> {
        let mut all_done = true;
        // The last ones are begun last, and end last.
        for slot in run.slots().rev().filter(|slot| !service.is_done(*slot)) {
            let key = |generation| ReplicaKey {
                service: service.id,
                slot,
                generation: Generation(generation),
            };
            let mut found = self.replicas.range(key(0)..=key(u32::MAX));
            let stays = found.find(|(_, replica)| replica.wanted == Wanted::Run)?.1;
            if !stays.machine.state.is_ended() {
                return None;
            }
            all_done &= stays.is_completed();
        }
        Some(all_done)
    }

    /// How many replicas a service should have now.
    pub fn desired(&self, service: &Service) -> u32 {
        match service.rtype() {
            RType::Service | RType::Job | RType::Cron if service.stopped.is_some() => 0,
            RType::Cron if !service.removing && !service.runs.is_empty() => service
                .present_runs()
                .fold(0, |sum, run| sum.saturating_add(run.count_total())),
            RType::Service | RType::Job | RType::Cron => {
                if service.removing {
                    0
                } else {
                    service.count_total()
                }
            }
            RType::System => crate::plan::system_nodes(self, service),
        }
    }
}
