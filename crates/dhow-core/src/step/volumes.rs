//! Which node keeps a volume: what people do to it, and what older servers do not know of it.

use super::deployment::present;
use super::{needs_level, replicas};
use crate::command::{DeploymentCommand, Missing, Outcome, Refused};
use crate::ids::{DeploymentName, NodeId, RoleId, ServiceId, Slot};
use crate::spec::DeploymentSpec;
use crate::state::{Service, State};

/// From this level on services that share a volume run on one node, and volumes have sizes.
pub(crate) const SINCE_LEVEL: u32 = DeploymentSpec::VOLUMES_SINCE;

/// A spec with such rules is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.needs_volume_rules() {
        true => needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

pub(super) fn apply(state: &mut State, command: &DeploymentCommand) -> Result<Outcome, Refused> {
    if let DeploymentCommand::BindVolume {
        deployment,
        volume,
        node,
        kept,
    } = command
    {
        bind(state, (deployment, volume), *node, *kept)?;
    }
    Ok(Outcome::Done)
}

/// A node has a volume from now on, or has it no more. Refused while a replica there uses it.
fn bind(
    state: &mut State,
    (deployment, volume): (&DeploymentName, &str),
    node: NodeId,
    kept: bool,
) -> Result<(), Refused> {
    present(state, deployment)?;
    needs_level(state, SINCE_LEVEL)?;
    state.node(node).ok_or(Missing::Node(node))?;
    let mounts = |service: &&Service| {
        let spec = service.spec();
        spec.is_some_and(|spec| spec.binding_volumes().contains(volume))
    };
    let services = state
        .deployment(deployment)
        .into_iter()
        .flat_map(|known| known.services.values());
    let services = services.filter_map(|id| state.service(*id).map(AsRef::as_ref));
    let users: Vec<ServiceId> = services.filter(mounts).map(|service| service.id).collect();
    let is_used = users.iter().flat_map(|id| state.replicas_of(*id));
    if is_used
        .filter(|(_, replica)| replica.node == node)
        .any(|(_, replica)| replica.reserves())
    {
        return Err(Refused::NotNow("a replica on that node uses the volume"));
    }
    for id in users {
        let Some(service) = replicas::service_mut(state, id) else {
            continue;
        };
        match kept {
            true => keep(service, node),
            false => lose(service, node),
        }
    }
    Ok(())
}

/// The first slot that no node is bound to goes to the node from now on.
fn keep(service: &mut Service, node: NodeId) {
    if service.volumes.values().any(|kept| *kept == node) {
        return;
    }
    let slot = |index| Slot {
        role: RoleId(0),
        index,
    };
    let free = (0..=u32::MAX).find(|index| !service.volumes.contains_key(&slot(*index)));
    if let Some(index) = free {
        service.volumes.insert(slot(index), node);
    }
}

/// Its slots may go elsewhere, unless another volume keeps them there.
fn lose(service: &mut Service, node: NodeId) {
    let has_others = service
        .spec()
        .is_some_and(|spec| spec.binding_volumes().len() > 1);
    if !has_others {
        crate::maps::retain(&mut service.volumes, |_, kept| *kept != node);
    }
}
