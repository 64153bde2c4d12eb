//! Nodes that follow what they are told, over the whole log of a generated cluster.

use std::collections::BTreeMap;

use dhow_core::assignment::{Assignment, RoleAssignment, assignment_since};
use dhow_core::command::Entry;
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::state::State;
use dhow_core::step::step;

use super::ops::NODES;

/// How often a node asks, in entries of the log.
const PACES: [usize; 3] = [1, 7, 40];

/// Applies the log entry by entry. Whoever asks at whatever pace, and takes one change after the other, has what a node
/// has that is told everything; and a change names only services of which something has changed.
pub fn check(log: &[Entry]) {
    let mut state = State::default();
    let mut told: BTreeMap<(NodeId, usize), Assignment> = BTreeMap::new();
    for (at, entry) in log.iter().enumerate() {
        let _ = step(&mut state, entry, &mut ());
        for node in (1..=NODES).map(NodeId) {
            let Some(whole) = assignment_since(&state, node, None) else {
                // It was removed, and begins anew where it comes back.
                told.retain(|(known, _), _| *known != node);
                continue;
            };
            for pace in PACES.into_iter().filter(|pace| at % pace == 0) {
                let known = told.remove(&(node, pace));
                let now = ask(&state, node, known, pace == 1);
                assert_eq!(now.services, whole.services, "node {node} after {entry:?}");
                assert_eq!((now.term, now.revision), (whole.term, whole.revision));
                told.insert((node, pace), now);
            }
        }
    }
}

fn ask(state: &State, node: NodeId, known: Option<Assignment>, is_eager: bool) -> Assignment {
    let last = known.as_ref().map(|known| known.revision);
    let news = assignment_since(state, node, last);
    match (known, news) {
        (None, None) => panic!("node {node} has nothing and is told nothing"),
        (None, Some(news)) => {
            assert!(news.whole, "whoever has nothing is told everything");
            news
        }
        (Some(known), None) => Assignment {
            term: Some(state.term),
            ..known
        },
        (Some(mut known), Some(news)) => {
            assert!(news.revision > known.revision);
            if is_eager && !news.whole {
                assert_changed(&known.services, &news);
            }
            known.follow(news);
            known
        }
    }
}

fn assert_changed(known: &BTreeMap<ServiceKey, Vec<RoleAssignment>>, news: &Assignment) {
    for (service, roles) in &news.services {
        let known = known.get(service).map_or([].as_slice(), Vec::as_slice);
        assert_ne!(known, roles, "{service} has not changed");
    }
}
