//! Nodes that follow what they are told, over the whole log of a generated cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::assignment::{Assignment, RoleAssignment, assignment_since};
use dhow_core::command::Entry;
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::spec::ServiceSpec;
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
                let (has, is_to_have) = (as_nodes_see(&now), as_nodes_see(&whole));
                assert_eq!(has, is_to_have, "node {node} after {entry:?}");
                assert_eq!((now.term, now.revision), (whole.term, whole.revision));
                told.insert((node, pace), now);
            }
        }
    }
}

/// Counts, and how and where replicas are placed, are no business of a node: they may be older there.
fn as_nodes_see(assignment: &Assignment) -> BTreeMap<ServiceKey, Vec<RoleAssignment>> {
    let mut services = assignment.services.clone();
    for role in services.values_mut().flatten() {
        let plain = ServiceSpec::default();
        role.spec = Arc::new(ServiceSpec {
            schedule: plain.schedule,
            scale: plain.scale,
            depends: plain.depends,
            rollout: plain.rollout,
            affinity: plain.affinity,
            spread_by: plain.spread_by,
            reschedule: plain.reschedule,
            priority: plain.priority,
            ..role.spec.as_ref().clone()
        });
    }
    services
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
