//! What nodes are told of services: the index that follows what `step` touches is the one of the whole state, whoever is
//! not concerned has nothing new to hear, and who applies all changes has the whole.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::command::Entry;
use dhow_core::directory::{
    Directory, DirectoryChange, DirectoryIndex, Interest, InterestBook, ToldListings, Touched,
};
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::state::State;
use dhow_core::step::step;

/// Entries that are taken in together: a server does so for 50 ms.
const TOGETHER: usize = 3;

/// One node that follows its directory.
struct Node {
    interest: Interest,
    told: ToldListings,
    has: Directory,
}

impl Node {
    fn new(book: &mut InterestBook, id: NodeId, interest: Interest) -> Self {
        book.begin(id, 1, 0, interest.clone());
        Self {
            interest,
            told: ToldListings::default(),
            has: Directory::default(),
        }
    }
}

/// Follows a log from the beginning, with nodes that want everything and with nodes that have asked for every third
/// service that there will ever be; gives how many changes nodes were told.
pub fn check(log: &[Entry]) -> usize {
    let mut state = State::default();
    let mut keys: BTreeSet<ServiceKey> = BTreeSet::new();
    for entry in log {
        let _ = step(&mut state, entry, &mut Touched::default());
        keys.extend(state.services.values().map(|service| service.key.clone()));
    }
    let some: BTreeSet<ServiceKey> = keys.into_iter().step_by(3).collect();
    check_with(log, &Interest::All) + check_with(log, &Interest::In(some))
}

fn check_with(log: &[Entry], interest: &Interest) -> usize {
    let mut state = State::default();
    let mut index = DirectoryIndex::default();
    let mut book = InterestBook::default();
    let mut nodes: BTreeMap<NodeId, Node> = BTreeMap::new();
    let mut changes = 0;
    for entries in log.chunks(TOGETHER) {
        let mut touched = Touched::default();
        for entry in entries {
            let _ = step(&mut state, entry, &mut touched);
        }
        let mut concerned = index.refresh(&state, &touched);
        assert_eq!(index, DirectoryIndex::of(&state), "after {entries:?}");
        for id in state.nodes.keys() {
            let node = nodes.entry(*id);
            node.or_insert_with(|| Node::new(&mut book, *id, interest.clone()));
        }
        book.add_to(&mut concerned);
        let here = nodes.iter_mut().filter(|(id, _)| state.nodes.contains_key(*id));
        for (id, node) in here {
            let now = index.directory(&state, *id, &node.interest);
            let expected = now.since(Some(&node.has));
            let mut change = node.told.look(&index, &state, *id, &node.interest);
            if change.whole {
                assert_eq!(change, now.since(None));
                node.has.apply(change.clone());
                change = expected;
            } else {
                assert_eq!(change, expected, "after {entries:?}");
            }
            if change == DirectoryChange::default() {
                continue;
            }
            assert!(
                concerned.all || concerned.nodes.contains(id),
                "node {id} is not woken after {entries:?} and has to hear {change:?}"
            );
            changes += 1;
            node.has.apply(change);
            assert_eq!(node.has, now);
            let mut whole = Directory::default();
            whole.apply(now.since(None));
            assert_eq!(whole, now);
        }
    }
    changes
}
