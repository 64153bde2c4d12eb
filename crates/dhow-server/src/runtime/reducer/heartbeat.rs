//! What a heartbeat is answered with, from the state alone.

use dhow_core::ids::NodeId;
use dhow_core::mirror::{self, RolloutId};
use dhow_core::state::{Phase, State};
use dhow_wire::BootstrapRollout;
use dhow_wire::names::deployment_on_wire;

use crate::runtime::input::HeartbeatReply;
use crate::runtime::limits::BOOTSTRAP_MAX;

/// Compares what a node says of itself with its mirror. `is_ahead` says that reports of the node are on their way:
/// then a difference is no news.
pub(super) fn reply(
    state: &State,
    host: NodeId,
    rollout: Option<&RolloutId>,
    current_digest: Option<&str>,
    is_ahead: bool,
) -> HeartbeatReply {
    let Some(node) = state.node(host) else {
        return HeartbeatReply::default();
    };
    let differs = current_digest.is_some_and(|told| !is_ahead && told != mirror::digest(state, host));
    HeartbeatReply {
        replay_from: differs.then_some(node.session.seq),
        bootstrap_rollouts: open_rollouts(state, host, rollout),
    }
}

/// The rollouts that are under way and have replicas assigned to the node, but for the one that it names.
fn open_rollouts(state: &State, host: NodeId, named: Option<&RolloutId>) -> Vec<BootstrapRollout> {
    let Some(node) = state.node(host) else {
        return Vec::new();
    };
    let open = node.assignments.services().filter_map(|(id, _)| {
        let service = state.service(id)?;
        let deployment = state.deployment(&service.key.deployment)?;
        let is_open = match deployment.phase {
            Phase::Deploying | Phase::Reverting | Phase::Failed => true,
            Phase::Stable | Phase::Reverted | Phase::Removing => false,
        };
        let id = RolloutId {
            deployment: deployment.name.clone(),
            revision: deployment.revision,
        };
        (is_open && named != Some(&id)).then(|| BootstrapRollout {
            rollout_id: id.to_string(),
            service: service.key.service.to_string(),
            deployment: deployment_on_wire(&deployment.name),
            generation: Some(service.target.0),
        })
    });
    open.take(BOOTSTRAP_MAX).collect()
}
