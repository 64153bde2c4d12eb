//! What `step` says of an entry is all of what it did: whoever compares the states before and after finds nothing else,
//! and a refused entry changes nothing.

use std::collections::BTreeSet;

use dhow_core::change::{Change, ChangeSink, DeploymentChange, NodeChange, ReplicaChange, compare};
use dhow_core::command::Entry;
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_core::step::step;

/// What was said, each with its subject: what `step` knows better than a comparison is said in the comparison's words.
#[derive(Debug, Default)]
struct Said {
    changes: BTreeSet<String>,
    woken: BTreeSet<NodeId>,
    drained: BTreeSet<NodeId>,
    refused: usize,
}

impl ChangeSink for Said {
    fn tell(&mut self, _: &State, change: Change<'_>) {
        let text = match change {
            Change::Refused(_) => {
                self.refused += 1;
                return;
            }
            Change::Node(node, change) => {
                match change {
                    NodeChange::Joined | NodeChange::Removed | NodeChange::AssignmentChanged => {
                        self.woken.insert(node);
                    }
                    NodeChange::Drain(_) => {
                        self.drained.insert(node);
                    }
                    NodeChange::Renewed
                    | NodeChange::Lost
                    | NodeChange::Back
                    | NodeChange::Labelled
                    | NodeChange::Inventory { .. } => {}
                }
                format!("node {node} {change:?}")
            }
            Change::Deployment(name, change) => match change {
                DeploymentChange::Reverting { .. } => format!("{name} reverting"),
                DeploymentChange::Failed { .. } => format!("{name} failed"),
                DeploymentChange::RevertFailed { .. } => format!("{name} revert failed"),
                DeploymentChange::Deployed { .. }
                | DeploymentChange::Scaled { .. }
                | DeploymentChange::RestartAsked { .. }
                | DeploymentChange::StopAsked { .. }
                | DeploymentChange::StartAsked { .. }
                | DeploymentChange::RemovalAsked
                | DeploymentChange::Removed
                | DeploymentChange::Conflicted { .. }
                | DeploymentChange::Steered { .. }
                | DeploymentChange::Held { .. }
                | DeploymentChange::HoldEnded { .. }
                | DeploymentChange::HeldBack { .. }
                | DeploymentChange::Suspended { .. }
                | DeploymentChange::SuspensionOver
                | DeploymentChange::Stable { .. } => format!("{name} {change:?}"),
            },
            Change::Replica(key, _, change) => match change {
                ReplicaChange::StopAsked(_) => format!("{key:?} stop"),
                ReplicaChange::Reported(_) | ReplicaChange::Observed(_) => format!("{key:?} observed"),
                ReplicaChange::Placed
                | ReplicaChange::LeftOut(_)
                | ReplicaChange::TriesSettings
                | ReplicaChange::Diverged(_)
                | ReplicaChange::Late(_)
                | ReplicaChange::Lost
                | ReplicaChange::Removed => format!("{key:?} {change:?}"),
            },
            Change::Cluster(_) | Change::Service(..) => format!("{change:?}"),
        };
        self.changes.insert(text);
    }
}

/// Applies an entry and looks at what was said of it.
fn check(state: &mut State, entry: &Entry) {
    let before = state.clone();
    let (mut said, mut found) = (Said::default(), Said::default());
    let outcome = step(state, entry, &mut said);
    compare(&before, state, &mut found);
    let unsaid: Vec<&String> = found.changes.difference(&said.changes).collect();
    assert!(
        unsaid.is_empty(),
        "of {entry:?} nobody is told {unsaid:?}, only {said:?}"
    );
    assert!(
        found.drained.is_subset(&said.drained),
        "of {entry:?} drains are not told"
    );
    assert_eq!(found.woken, said.woken, "of {entry:?} other nodes are woken");
    let refused = usize::from(outcome.is_err());
    assert_eq!(said.refused, refused, "a refusal is told once: {entry:?}");
    assert!(
        outcome.is_ok() || said.changes.is_empty(),
        "{entry:?} is refused and said to have done {said:?}"
    );
}

/// Holds for every entry of a log, from the beginning.
pub fn check_all(log: &[Entry]) {
    let mut state = State::default();
    for entry in log {
        check(&mut state, entry);
    }
}
