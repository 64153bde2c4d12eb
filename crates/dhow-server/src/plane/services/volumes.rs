//! Who uses a volume, as the state has it.

use std::collections::BTreeSet;

use dhow_core::ids::{DeploymentName, NodeId};
use dhow_core::spec::{ServiceSpec, Storage};
use dhow_core::state::State;

/// What the state says about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeUsage {
    /// Services of the present revision that mount it.
    pub services: Vec<String>,
    /// Replicas that use it.
    pub replicas: Vec<String>,
    /// Whether a present or kept revision names it.
    pub is_named: bool,
}

/// Who uses a volume, on one node or on any.
pub(crate) fn usage(state: &State, deployment: &str, volume: &str, node: Option<NodeId>) -> VolumeUsage {
    let mut usage = VolumeUsage::default();
    let Some(known) = DeploymentName::new(deployment)
        .ok()
        .and_then(|name| state.deployment(&name))
    else {
        return usage;
    };
    for service in known.services.values().filter_map(|id| state.service(*id)) {
        if !service.removing && service.spec().is_some_and(|spec| mounts(spec, volume)) {
            usage.services.push(service.key.service.to_string());
        }
        for (key, replica) in state.replicas_of(service.id) {
            let is_there = node.is_none_or(|node| replica.node == node) && replica.reserves();
            let info = service.info(key.generation);
            if is_there && info.is_none_or(|info| mounts(&info.spec, volume)) {
                usage
                    .replicas
                    .extend(state.replica_name(key).map(|name| name.id()));
            }
        }
    }
    let in_records = known
        .history
        .values()
        .flat_map(|record| record.spec.services.values());
    usage.is_named = !usage.services.is_empty()
        || !usage.replicas.is_empty()
        || in_records.into_iter().any(|spec| mounts(spec, volume));
    usage
}

/// The nodes to which services are bound by a volume.
pub(crate) fn kept_on(state: &State, deployment: &DeploymentName, volume: &str) -> BTreeSet<NodeId> {
    let services = state
        .deployment(deployment)
        .into_iter()
        .flat_map(|known| known.services.values());
    services
        .filter_map(|id| state.service(*id))
        .filter(|service| {
            service
                .spec()
                .is_some_and(|spec| spec.binding_volumes().contains(volume))
        })
        .flat_map(|service| service.volumes.values().copied())
        .collect()
}

fn mounts(spec: &ServiceSpec, volume: &str) -> bool {
    let mut named = spec.storage.iter().filter_map(Storage::volume);
    named.any(|name| name == volume)
}
