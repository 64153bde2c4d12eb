//! What nodes are told of services: the index that follows what `step` touches is the one of the whole state, whoever is
//! not concerned has nothing new to hear, and who applies all changes has the whole.

use std::collections::BTreeMap;

use dhow_core::command::Entry;
use dhow_core::directory::{Directory, DirectoryIndex, Touched};
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_core::step::step;

/// Entries that are taken in together: a server does so for 50 ms.
const TOGETHER: usize = 3;

/// Follows a log from the beginning; gives how many changes nodes were told.
pub fn check(log: &[Entry]) -> usize {
    let mut state = State::default();
    let mut index = DirectoryIndex::default();
    let mut told: BTreeMap<NodeId, Directory> = BTreeMap::new();
    let mut changes = 0;
    for entries in log.chunks(TOGETHER) {
        let mut touched = Touched::default();
        for entry in entries {
            let _ = step(&mut state, entry, &mut touched);
        }
        let concerned = index.refresh(&state, &touched);
        assert_eq!(index, DirectoryIndex::of(&state), "after {entries:?}");
        for node in state.nodes.keys() {
            let now = index.directory(&state, *node);
            let known = told.entry(*node).or_default();
            let change = now.since(Some(known));
            if change.is_empty() {
                continue;
            }
            assert!(
                concerned.all || concerned.nodes.contains(node),
                "node {node} is not woken after {entries:?} and has to hear {change:?}"
            );
            changes += 1;
            known.apply(change);
            assert_eq!(*known, now);
            let mut whole = Directory::default();
            whole.apply(now.since(None));
            assert_eq!(whole, now);
        }
    }
    changes
}
