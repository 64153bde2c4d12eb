//! Questions that several readers ask of the state.

use std::sync::Arc;

use super::{Deployment, Node, Replica, Service, State};
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
        let waiting = service.cron_runs > 0
            && service
                .wanted_slots()
                .any(|slot| !service.is_done(slot) && !has_replica(slot));
        let mut replicas = self.replicas_of(service.id);
        waiting || replicas.any(|(_, replica)| !replica.machine.state.is_ended())
    }

    /// How many replicas a service should have now.
    pub fn desired(&self, service: &Service) -> u32 {
        match service.rtype() {
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
