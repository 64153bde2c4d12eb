//! What a heartbeat is answered with, from the state alone.

use dhow_core::ids::NodeId;
use dhow_core::mirror::{self, RolloutId, open_rollouts};
use dhow_core::state::State;

use crate::plane::runtime::input::HeartbeatReply;
use crate::plane::runtime::limits::BOOTSTRAP_MAX;

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
        bootstrap_rollouts: open_rollouts(state, host, |id| rollout == Some(id), BOOTSTRAP_MAX),
    }
}
