//! What nodes report of their replicas.

use super::{completed, replicas, runs, settings};
use crate::change::{Change, ChangeSink, NodeChange, ReplicaChange};
use crate::command::{AgentCommand, AgentEvent, InventoryItem, Missing, Outcome, Refused};
use crate::ids::{NodeId, ReplicaKey};
use crate::replica::{Machine, ReplicaState, RestartRule, step as step_machine};
use crate::state::{Node, Replica, Session, State, Wanted};
use crate::time::ClusterTime;

pub(super) fn apply(
    state: &mut State,
    command: &AgentCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        AgentCommand::Report {
            node,
            incarnation,
            first_seq,
            events,
        } => report(state, *node, *incarnation, *first_seq, events, sink),
        AgentCommand::Inventory {
            node,
            incarnation,
            seq,
            replicas,
        } => inventory(
            state,
            *node,
            Session {
                incarnation: *incarnation,
                seq: *seq,
            },
            replicas,
            sink,
        ),
    }
}

/// Applies events that are new, in their order: a repeated one counts once, a missing one is asked for.
fn report(
    state: &mut State,
    id: NodeId,
    incarnation: u64,
    first_seq: u64,
    events: &[AgentEvent],
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let session = state.node(id).ok_or(Missing::Node(id))?.session;
    if session.incarnation != incarnation {
        return Err(Refused::Incarnation {
            node: id,
            known: session.incarnation,
            found: incarnation,
        });
    }
    let expected = session.seq.saturating_add(1);
    if first_seq > expected {
        return Err(Refused::Gap {
            node: id,
            expected,
            found: first_seq,
            replay_from: session.seq,
        });
    }
    let known = usize::try_from(expected - first_seq).unwrap_or(usize::MAX);
    let mut diverged = Vec::new();
    let mut seq = session.seq;
    for event in events.iter().skip(known) {
        seq = seq.saturating_add(1);
        if !apply_event(state, id, event, sink) {
            diverged.push(event.replica);
        }
    }
    if let Some(node) = replicas::node_mut(state, id) {
        node.session.seq = seq;
    }
    Ok(Outcome::Reported {
        durable_seq: seq,
        diverged,
    })
}

/// Moves the mirror. Events of a replica that has meanwhile gone elsewhere are late news and no divergence.
fn apply_event(state: &mut State, node: NodeId, told: &AgentEvent, sink: &mut dyn ChangeSink) -> bool {
    let (key, event) = (&told.replica, &told.event);
    let Some(replica) = state.replicas.get(key).filter(|replica| replica.node == node) else {
        sink.tell(state, Change::Replica(*key, node, ReplicaChange::Late(event)));
        return true;
    };
    let (was_healthy, wanted) = (replica.is_healthy(), replica.wanted);
    let (rule, now) = (rule_of(state, key), noting(state));
    let mut legal = true;
    // Servers of an older version do not count these.
    let counts = state.feature_level >= 2;
    replicas::update(state, key, |replica| {
        let before = replica.machine.pid;
        let (was, failures) = (replica.machine.state, replica.machine.failures);
        legal = step_machine(&mut replica.machine, event, &rule).is_ok();
        note_start(replica, before, now);
        let failed = replica.machine.failures > failures && was != ReplicaState::Pulling;
        if counts && failed {
            replica.node_failures = replica.node_failures.saturating_add(1);
        }
        bound_failures(replica);
    });
    settings::tried(state, key, event);
    let change = match legal {
        true => ReplicaChange::Reported(event),
        false => ReplicaChange::Diverged(event),
    };
    sink.tell(state, Change::Replica(*key, node, change));
    settle(state, key, (was_healthy, wanted), sink);
    legal
}

/// The time at which starts are noted; servers before level 2 do not note them.
fn noting(state: &State) -> Option<ClusterTime> {
    (state.feature_level >= 2).then_some(state.time)
}

/// Another process than before: it was started now. One that was lost and found again is the same.
fn note_start(replica: &mut Replica, before: Option<u32>, now: Option<ClusterTime>) {
    if now.is_some() && replica.is_running() && replica.machine.pid != before {
        replica.started = now;
        replica.read = None;
    }
}

fn rule_of(state: &State, key: &ReplicaKey) -> RestartRule {
    state
        .service(key.service)
        .and_then(|service| service.info(key.generation))
        .map_or_else(RestartRule::default, |info| RestartRule::of(&info.spec))
}

/// What follows from a replica's new state: progress of its rollout, or its end.
fn settle(
    state: &mut State,
    key: &ReplicaKey,
    (was_healthy, wanted): (bool, Wanted),
    sink: &mut dyn ChangeSink,
) {
    let Some(replica) = state.replicas.get(key) else {
        return;
    };
    let (healthy, ended) = (replica.is_healthy(), replica.machine.state.is_ended());
    if wanted == Wanted::Stop && ended {
        replicas::retire(state, key, sink);
        return;
    }
    completed::note(state, key);
    if ended {
        runs::settle(state, key.service, sink);
    }
    if healthy && !was_healthy {
        let now = state.time;
        if let Some(service) = replicas::service_mut(state, key.service)
            && service.is_current(key.generation)
        {
            service.progressed = now;
        }
    }
}

/// From this level on a late account is refused.
const LATE_LEVEL: u32 = 2;

/// Whether a node's whole account of itself was overtaken by what it told since: it would take the mirror back. A plain
/// worker has no numbers. An agent of the first version, which tries no settings, does not go on above the number that the
/// control plane has where a power cut took the end of its ledger: its account is the newest that there is.
fn is_late(node: &Node, told: Session) -> bool {
    let known = node.session;
    let is_same_life = told.incarnation != 0 && told.incarnation == known.incarnation;
    is_same_life && told.seq < known.seq && node.info.tries_settings
}

/// Takes a node's whole account of itself in place of what the mirror believed.
fn inventory(
    state: &mut State,
    id: NodeId,
    session: Session,
    items: &[InventoryItem],
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let node = state.node(id).ok_or(Missing::Node(id))?;
    if state.feature_level >= LATE_LEVEL && is_late(node, session) {
        return Err(Refused::OldInventory {
            node: id,
            known: node.session.seq,
            found: session.seq,
        });
    }
    let keys: Vec<ReplicaKey> = node.replica_keys().collect();
    let replicas = items.len();
    sink.tell(state, Change::Node(id, NodeChange::Inventory { replicas }));
    let told: std::collections::BTreeMap<ReplicaKey, &Machine> =
        items.iter().map(|item| (item.replica, &item.machine)).collect();
    for key in keys {
        let Some(replica) = state.replicas.get(&key) else {
            continue;
        };
        let (was_healthy, wanted) = (replica.is_healthy(), replica.wanted);
        match (told.get(&key), wanted) {
            (Some(machine), _) => {
                let now = noting(state);
                replicas::update(state, &key, |replica| {
                    let before = replica.machine.pid;
                    replica.machine = (*machine).clone();
                    note_start(replica, before, now);
                    bound_failures(replica);
                });
                observed(state, &key, sink);
                settle(state, &key, (was_healthy, wanted), sink);
            }
            (None, Wanted::Stop) => replicas::retire(state, &key, sink),
            (None, Wanted::Run) => {
                replicas::update(state, &key, begin_again);
                observed(state, &key, sink);
            }
        }
    }
    if let Some(node) = replicas::node_mut(state, id) {
        node.session = session;
    }
    Ok(Outcome::Reported {
        durable_seq: session.seq,
        diverged: Vec::new(),
    })
}

/// Tells how a replica is found, whether or not that is news.
fn observed(state: &State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    if let Some(replica) = state.replicas.get(key) {
        let change = ReplicaChange::Observed(&replica.machine);
        sink.tell(state, Change::Replica(*key, replica.node, change));
    }
}

/// What the machine has forgotten is forgotten here too.
fn bound_failures(replica: &mut crate::state::Replica) {
    replica.node_failures = replica.node_failures.min(replica.machine.failures);
}

/// A replica that its node knows nothing of starts from the beginning; one that had ended, or not begun, stays so.
fn begin_again(replica: &mut Replica) {
    if replica.machine.state.is_ended() || replica.machine.state == ReplicaState::Pending {
        return;
    }
    let restarts = replica.machine.restarts.saturating_add(1);
    replica.machine = Machine {
        restarts,
        ..Machine::default()
    };
    bound_failures(replica);
}
