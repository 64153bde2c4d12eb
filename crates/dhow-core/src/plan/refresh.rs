//! Brings the cache up to a snapshot by what has changed since the last one.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::cache::PlanCache;
use super::nodes::node_row;
use super::view::is_counted;
use crate::ids::{DeploymentName, NodeId, ServiceId};
use crate::spec::RType;
use crate::state::{Deployment, Node, Replica, Service, State};
use crate::time::ClusterTime;

impl PlanCache {
    pub(super) fn refresh(&mut self, state: &State, now: ClusterTime) {
        let seen = std::mem::take(&mut self.seen);
        let nodes_changed = self.follow_nodes(&seen, state);
        let importance_changed = self.follow_services(&seen, state);
        self.follow_deployments(&seen, state);
        self.follow_replicas(&seen, state);
        if nodes_changed {
            self.dirty.extend(self.system.iter().copied());
        }
        if nodes_changed || importance_changed {
            // A node has room, or a service has become less important than one that waits for its room.
            self.dirty.extend(self.blocked.iter().copied());
        }
        self.dirty.append(&mut self.held_back);
        self.take_due_timers(now);
        self.wake_mates(state);
        self.wake_dependents(state);
        let gone: Vec<ServiceId> = self
            .dirty
            .iter()
            .filter(|id| !state.services.contains_key(*id))
            .copied()
            .collect();
        gone.into_iter().for_each(|id| self.drop_service(id));
        self.seen = state.clone();
    }

    fn follow_nodes(&mut self, seen: &State, state: &State) -> bool {
        let mut changed = false;
        for item in seen.nodes.diff(&state.nodes) {
            changed = true;
            match item {
                DiffItem::Add(_, node) => self.follow_node(None, node),
                DiffItem::Update {
                    old: (_, old),
                    new: (_, node),
                } => self.follow_node(Some(old), node),
                DiffItem::Remove(id, node) => {
                    self.table.remove(*id);
                    self.forget_node(*id);
                    self.touch_services_on(node);
                }
            }
        }
        changed
    }

    fn follow_node(&mut self, old: Option<&Arc<Node>>, node: &Arc<Node>) {
        self.table.upsert(node_row(node));
        self.forget_node(node.id);
        if node.is_draining() {
            self.draining.insert(node.id);
        }
        if !node.stopping.is_empty() {
            self.stopping.insert(node.id);
        }
        // What a node may be used for has changed: its own replicas may have to leave, or may stay after all.
        if old.is_some_and(|old| old.eligibility != node.eligibility) || node.is_draining() {
            self.touch_services_on(node);
        }
    }

    fn forget_node(&mut self, id: NodeId) {
        self.draining.remove(&id);
        self.stopping.remove(&id);
    }

    fn touch_services_on(&mut self, node: &Node) {
        for (service, _) in node.assignments.services() {
            self.dirty.insert(service);
            self.summaries.remove(&service);
        }
    }

    fn follow_replicas(&mut self, seen: &State, state: &State) {
        for item in seen.replicas.diff(&state.replicas) {
            let (key, old, new) = match item {
                DiffItem::Add(key, new) => (key, None, Some(new)),
                DiffItem::Remove(key, old) => (key, Some(old), None),
                DiffItem::Update {
                    old: (_, old),
                    new: (key, new),
                } => (key, Some(old), Some(new)),
            };
            self.dirty.insert(key.service);
            let Some(summary) = self.summaries.get_mut(&key.service) else {
                continue;
            };
            let Some(service) = state.service(key.service) else {
                continue;
            };
            let Some(info) = service.target_info() else {
                continue;
            };
            let counts = |replica: &Replica| is_counted(state, service, info, (key, false), replica);
            summary.follow(key.slot, old.map(Arc::as_ref), new.map(Arc::as_ref), counts);
        }
    }

    /// Whether one that may have replicas is as important as before no more. A new one has none yet, and one that is
    /// gone has none left.
    fn follow_services(&mut self, seen: &State, state: &State) -> bool {
        let mut importance_changed = false;
        for item in seen.services.diff(&state.services) {
            match item {
                DiffItem::Add(id, service) => self.follow_service(*id, service),
                DiffItem::Update {
                    old: (_, old),
                    new: (id, service),
                } => {
                    importance_changed |= priority(old) != priority(service);
                    self.follow_service(*id, service);
                }
                DiffItem::Remove(id, service) => {
                    self.waiting.remove(&(service.key.deployment.clone(), *id));
                    self.drop_service(*id);
                    self.touch_deployment(state, &service.key.deployment);
                }
            }
        }
        importance_changed
    }

    fn follow_service(&mut self, id: ServiceId, service: &Service) {
        self.dirty.insert(id);
        match service.rtype() {
            RType::System => self.system.insert(id),
            RType::Service | RType::Job | RType::Cron => self.system.remove(&id),
        };
        let place = (service.key.deployment.clone(), id);
        if service.released || service.removing {
            self.waiting.remove(&place);
        } else {
            self.waiting.insert(place);
        }
    }

    fn follow_deployments(&mut self, seen: &State, state: &State) {
        for item in seen.deployments.diff(&state.deployments) {
            match item {
                DiffItem::Add(name, deployment) => self.follow_deployment(name, None, deployment),
                DiffItem::Update {
                    old: (_, old),
                    new: (name, deployment),
                } => {
                    self.follow_deployment(name, Some(old), deployment);
                }
                DiffItem::Remove(name, _) => {
                    self.under_way.remove(name);
                }
            }
        }
    }

    fn follow_deployment(&mut self, name: &DeploymentName, old: Option<&Deployment>, new: &Deployment) {
        if new.is_under_way() {
            self.under_way.insert(name.clone());
        } else {
            self.under_way.remove(name);
        }
        let moved = old.is_none_or(|old| {
            (old.phase, old.revision, old.last_good) != (new.phase, new.revision, new.last_good)
        });
        if moved {
            self.dirty.extend(new.services.values().copied());
        }
    }

    fn touch_deployment(&mut self, state: &State, name: &DeploymentName) {
        if let Some(deployment) = state.deployment(name) {
            self.dirty.extend(deployment.services.values().copied());
        }
    }

    /// Services that share a volume are looked at together: where one of them goes, the others follow.
    fn wake_mates(&mut self, state: &State) {
        let touched = self.dirty.iter().filter_map(|id| state.service(*id));
        let mates: Vec<ServiceId> = touched
            .flat_map(|service| state.volume_mates(service))
            .map(|mate| mate.id)
            .collect();
        self.dirty.extend(mates);
    }

    /// A service that waits for others is looked at whenever one of its deployment is.
    fn wake_dependents(&mut self, state: &State) {
        if self.waiting.is_empty() {
            return;
        }
        let touched: std::collections::BTreeSet<DeploymentName> = self
            .dirty
            .iter()
            .filter_map(|id| state.service(*id))
            .map(|service| service.key.deployment.clone())
            .collect();
        let woken: Vec<ServiceId> = self
            .waiting
            .iter()
            .filter(|(name, _)| touched.contains(name))
            .map(|(_, id)| *id)
            .collect();
        self.dirty.extend(woken);
    }
}

fn priority(service: &Service) -> Option<u8> {
    service.spec().map(|spec| spec.priority)
}
