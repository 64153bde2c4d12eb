//! Nodes whose workers know a service by its name alone. Two deployments may each have a service `web`: such a worker
//! would end the one when it is told of the other, so it never gets both.

use std::collections::BTreeMap;

use super::Planner;
use crate::ids::{DeploymentName, NodeId, ServiceName};
use crate::state::{Service, State, Wanted};

/// Which deployment's service of a name is on each of these nodes, what this plan places included.
pub(super) struct PlainNodes(BTreeMap<NodeId, BTreeMap<ServiceName, DeploymentName>>);

impl PlainNodes {
    fn of(state: &State) -> Self {
        let plain = state.nodes.values().filter(|node| node.is_plain);
        let nodes = plain.map(|node| {
            let here = node.replica_keys().filter_map(|key| {
                let replica = state.replicas.get(&key)?;
                let is_there = replica.wanted == Wanted::Run || replica.reserves();
                let key = &state.service(key.service).filter(|_| is_there)?.key;
                Some((key.service.clone(), key.deployment.clone()))
            });
            (node.id, here.collect())
        });
        Self(nodes.collect())
    }
}

impl Planner<'_> {
    /// Nodes that would not tell this service from another deployment's.
    pub(super) fn mistaking(&mut self, service: &Service) -> Vec<NodeId> {
        let plain = self.plain.get_or_insert_with(|| PlainNodes::of(self.state));
        let mistakes = |here: &BTreeMap<ServiceName, DeploymentName>| {
            let known = here.get(&service.key.service);
            known.is_some_and(|known| *known != service.key.deployment)
        };
        let nodes = plain.0.iter().filter(|(_, here)| mistakes(here));
        nodes.map(|(node, _)| *node).collect()
    }

    /// The service has a place there in this plan.
    pub(super) fn note_plain(&mut self, service: &Service, node: NodeId) {
        let plain = self.plain.get_or_insert_with(|| PlainNodes::of(self.state));
        if let Some(here) = plain.0.get_mut(&node) {
            let key = &service.key;
            here.entry(key.service.clone())
                .or_insert_with(|| key.deployment.clone());
        }
    }
}
