//! The control plane's mirror of a node in one short text, so that a heartbeat can say what its node runs
//! without listing it. The agent makes the text from its own machines, the reducer from the state; where the two
//! differ, one of them has missed something. Pure; it never says which of the two is right.

mod open_rollout;
mod report_answer;
mod report_body;
mod rollout_id;

use crate::ids::{NodeId, ReplicaName};
use crate::replica::{Machine, ReplicaState};
use crate::state::State;

pub use open_rollout::{OpenRollout, open_rollouts};
pub use report_answer::{ReportAnswer, known_answer, report_command};
pub use report_body::ReportBody;
pub use rollout_id::{BadRolloutId, RolloutId};

/// The digest of what the state believes of a node: its assigned replicas and those that are still stopping.
pub fn digest(state: &State, node: NodeId) -> String {
    let keys = state.node(node).into_iter().flat_map(|node| node.replica_keys());
    digest_of(keys.filter_map(|key| {
        let replica = state.replicas.get(&key)?;
        Some((state.replica_name(&key)?, &replica.machine))
    }))
}

/// The digest of a number of replicas, in whatever order they come. An agent passes those that it is assigned,
/// and those that it was told to stop until their end is durable. A replica that has not begun says nothing yet:
/// it may be placed and not heard of.
pub fn digest_of<'a>(replicas: impl IntoIterator<Item = (ReplicaName, &'a Machine)>) -> String {
    let mut begun: Vec<(ReplicaName, &Machine)> = replicas
        .into_iter()
        .filter(|(_, machine)| machine.state != ReplicaState::Pending)
        .collect();
    begun.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut hasher = blake3::Hasher::new();
    for (name, machine) in begun {
        // No name holds a space or a line break, so no two lists give the same text.
        let line = format!(
            "{} {} {} {} {} {} {} {}\n",
            name.deployment,
            name.service,
            name.role,
            name.index,
            name.generation,
            state_letter(machine.state),
            u8::from(machine.healthy),
            machine.restarts,
        );
        hasher.update(line.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// A letter for each state. Peers of different versions compare digests, so a letter is never used anew.
fn state_letter(state: ReplicaState) -> char {
    match state {
        ReplicaState::Pending => 'p',
        ReplicaState::Pulling => 'i',
        ReplicaState::Starting => 's',
        ReplicaState::Running => 'r',
        ReplicaState::Backoff => 'b',
        ReplicaState::Stopping => 't',
        ReplicaState::Exited => 'x',
        ReplicaState::Failed => 'f',
        ReplicaState::Lost => 'l',
    }
}

#[cfg(test)]
mod tests;
