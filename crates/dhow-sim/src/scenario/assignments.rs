//! `assignments`: what a node that has seen a revision would be told now.

use dhow_core::assignment::{RoleAssignment, assignment_since};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::State;

pub(super) fn assignments(state: &State, node: NodeId, since: Revision) -> Vec<String> {
    if state.node(node).is_none() {
        return vec![format!("there is no node {node}")];
    }
    // Whoever has seen nothing has no revision to name.
    let last = Some(since).filter(|since| *since > Revision(0));
    let Some(told) = assignment_since(state, node, last) else {
        return vec!["nothing new".into()];
    };
    let what = match told.whole {
        true => "everything",
        false => "what changed",
    };
    let mut lines = vec![format!("revision {}, {what}", told.revision)];
    lines.extend(
        told.services
            .iter()
            .map(|(service, roles)| match roles.is_empty() {
                true => format!("{service} is gone"),
                false => format!("{service} is {}", ids(roles)),
            }),
    );
    lines
}

fn ids(roles: &[RoleAssignment]) -> String {
    let ids = roles.iter().flat_map(|alike| {
        let indices = alike.indices.iter();
        indices.map(move |index| format!("{}-{index}#{}", alike.role, alike.generation))
    });
    ids.collect::<Vec<_>>().join(", ")
}
