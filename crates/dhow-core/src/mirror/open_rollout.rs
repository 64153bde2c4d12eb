//! The rollouts that are open for a node, so that it pulls their images before its turn.

use std::sync::Arc;

use super::RolloutId;
use crate::ids::{Generation, NodeId, ServiceName};
use crate::spec::ServiceSpec;
use crate::state::{Phase, Service, State};

/// A service of a rollout that is under way and has replicas assigned to a node. Servers hand it to a node that does not
/// name the rollout; its agent prepares for it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRollout {
    pub id: RolloutId,
    pub service: ServiceName,
    pub generation: Generation,
    /// What each role of the service will run, each one once.
    pub specs: Vec<Arc<ServiceSpec>>,
}

/// The rollouts that are open for a node, but for those that it names; so many services at most.
pub fn open_rollouts(
    state: &State,
    node: NodeId,
    is_named: impl Fn(&RolloutId) -> bool,
    services_max: usize,
) -> Vec<OpenRollout> {
    let services = state.node(node).into_iter();
    let services = services.flat_map(|node| node.assignments.services());
    let open = services.filter_map(|(id, _)| {
        let service = state.service(id)?;
        let deployment = state.deployment(&service.key.deployment)?;
        let is_open = match deployment.phase {
            Phase::Deploying | Phase::Reverting | Phase::Failed | Phase::RevertFailed => true,
            Phase::Stable | Phase::Reverted | Phase::Removing => false,
        };
        let id = RolloutId {
            deployment: deployment.name.clone(),
            revision: deployment.revision,
        };
        (is_open && !is_named(&id)).then(|| OpenRollout {
            id,
            service: service.key.service.clone(),
            generation: service.target,
            specs: specs_of(service),
        })
    });
    open.take(services_max).collect()
}

fn specs_of(service: &Service) -> Vec<Arc<ServiceSpec>> {
    let mut specs: Vec<Arc<ServiceSpec>> = Vec::new();
    let Some(info) = service.info(service.target) else {
        return specs;
    };
    for role in service.roles.iter() {
        let spec = Arc::new(info.spec.for_role(role));
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}
