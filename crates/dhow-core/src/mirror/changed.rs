//! Which nodes must hear of a change: those whose assignment or drain is another one than before.

use std::collections::BTreeMap;

use imbl::ordmap::DiffItem;

use crate::ids::{NodeId, Revision};
use crate::state::State;

/// The nodes that are to do something else in `after` than in `before`, with the revision to tell them. The work
/// is proportional to the nodes that changed at all.
pub fn changed_nodes(before: &State, after: &State) -> BTreeMap<NodeId, Revision> {
    let changed = before.nodes.diff(&after.nodes).filter_map(|item| match item {
        DiffItem::Add(node, _) | DiffItem::Remove(node, _) => Some(*node),
        DiffItem::Update {
            old: (node, old),
            new: (_, new),
        } => {
            let same = old.assignments.revision == new.assignments.revision && old.drain == new.drain;
            (!same).then_some(*node)
        }
    });
    changed.map(|node| (node, after.revision)).collect()
}
