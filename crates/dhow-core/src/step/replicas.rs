//! The only code that adds, changes and removes replicas, so that a node's load, its assignments and the
//! replicas themselves always tell the same story.

use std::sync::Arc;

use crate::amount::Amount;
use crate::change::{Change, ChangeSink, NodeChange, ReplicaChange};
use crate::ids::{NodeId, ReplicaKey, ServiceId, ServiceKey};
use crate::replica::{Machine, ReplicaState};
use crate::spec::NodeMode;
use crate::state::{AssignedReplica, EndedReplica, Node, Replica, Service, State, Taken, Wanted};

pub(super) fn node_mut(state: &mut State, id: NodeId) -> Option<&mut Node> {
    state.nodes.get_mut(&id).map(Arc::make_mut)
}

pub(super) fn service_mut(state: &mut State, id: ServiceId) -> Option<&mut Service> {
    state.services.get_mut(&id).map(Arc::make_mut)
}

fn assigned(key: &ReplicaKey) -> AssignedReplica {
    AssignedReplica {
        slot: key.slot,
        generation: key.generation,
    }
}

fn demand(state: &State, key: &ReplicaKey) -> Amount {
    state.service(key.service).map_or(Amount::ZERO, |service| {
        service.demand(key.generation, key.slot.role)
    })
}

fn name(state: &State, key: &ReplicaKey) -> Option<ServiceKey> {
    state.service(key.service).map(|service| service.key.clone())
}

/// Makes a new replica on a node that was checked before.
pub(super) fn put(
    state: &mut State,
    key: ReplicaKey,
    node: NodeId,
    mode: NodeMode,
    sink: &mut dyn ChangeSink,
) {
    let (revision, now) = (state.revision, state.time);
    let amount = demand(state, &key);
    let replica = Replica {
        node,
        wanted: Wanted::Run,
        machine: Machine::default(),
        placed: now,
        since: now,
        healthy_since: None,
        started: None,
        node_failures: 0,
        trial: None,
        read: None,
        moves_to: None,
    };
    state.replicas.insert(key, Arc::new(replica));
    if let Some(found) = node_mut(state, node) {
        found.assignments.add(key.service, assigned(&key), revision);
        reserve(found, amount);
        if mode != NodeMode::Shared {
            found.taken = Some(Taken {
                service: key.service,
                mode,
            });
        }
    }
    sink.tell(state, Change::Replica(key, node, ReplicaChange::Placed));
    sink.tell(state, Change::Node(node, NodeChange::AssignmentChanged));
}

fn reserve(node: &mut Node, amount: Amount) {
    node.used = node.used.plus(amount);
    node.reserving = node.reserving.saturating_add(1);
}

fn release(state: &mut State, id: NodeId, key: &ReplicaKey, amount: Amount) {
    let Some(node) = node_mut(state, id) else { return };
    node.used = node.used.minus(amount);
    node.reserving = node.reserving.saturating_sub(1);
    if node.taken.is_some_and(|taken| taken.service == key.service) {
        let taken = claim(state, id, key.service);
        if let Some(node) = node_mut(state, id) {
            node.taken = taken;
        }
    }
}

/// The replicas that reserve something on a node.
pub(super) fn tenants<'a>(state: &'a State, node: &'a Node) -> impl Iterator<Item = ReplicaKey> + 'a {
    node.replica_keys()
        .filter(|key| state.replicas.get(key).is_some_and(|replica| replica.reserves()))
}

/// What is left of a service's claim to have a node for itself: its mode may have changed meanwhile.
fn claim(state: &State, id: NodeId, service: ServiceId) -> Option<Taken> {
    let (node, found) = (state.node(id)?, state.service(service)?);
    let modes = tenants(state, node)
        .filter(|key| key.service == service)
        .filter_map(|key| Some(found.info(key.generation)?.spec.node_mode));
    let mode = modes.max().unwrap_or_default();
    (mode != NodeMode::Shared).then_some(Taken { service, mode })
}

/// Takes a replica off its node's assignment; it goes on being known until it has ended.
pub(super) fn unassign(state: &mut State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    let (revision, name) = (state.revision, name(state, key));
    let Some(replica) = state.replicas.get_mut(key) else {
        return;
    };
    let replica = Arc::make_mut(replica);
    if replica.wanted == Wanted::Stop {
        return;
    }
    replica.wanted = Wanted::Stop;
    let node = replica.node;
    if let Some(found) = node_mut(state, node) {
        found
            .assignments
            .remove(key.service, name.as_ref(), assigned(key), revision);
        found.stopping.insert(*key);
        sink.tell(state, Change::Node(node, NodeChange::AssignmentChanged));
    }
}

/// Asks a replica to end. One that has ended, is on a lost node or was not begun with is gone at once: nobody
/// would report its end. A node that has begun meanwhile finds it gone from its assignment and ends it.
pub(super) fn stop(state: &mut State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    let Some(replica) = state.replicas.get(key) else {
        return;
    };
    match replica.machine.state {
        ReplicaState::Exited | ReplicaState::Failed | ReplicaState::Lost | ReplicaState::Pending => {
            give_up(state, key, sink);
        }
        ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Backoff
        | ReplicaState::Stopping => unassign(state, key, sink),
    }
}

/// Changes a replica; what it reserves follows from its state before and after.
pub(super) fn update(state: &mut State, key: &ReplicaKey, change: impl FnOnce(&mut Replica)) {
    let amount = demand(state, key);
    let now = state.time;
    let Some(replica) = state.replicas.get_mut(key) else {
        return;
    };
    let replica = Arc::make_mut(replica);
    let before = (replica.machine.state, replica.reserves());
    change(replica);
    if replica.machine.state != before.0 {
        replica.since = now;
    }
    replica.healthy_since = match (replica.is_healthy(), replica.healthy_since) {
        (true, Some(since)) => Some(since),
        (true, None) => Some(now),
        (false, _) => None,
    };
    let (node, reserves) = (replica.node, replica.reserves());
    if before.1 == reserves {
        return;
    }
    match reserves {
        true => {
            if let Some(node) = node_mut(state, node) {
                reserve(node, amount);
            }
        }
        false => release(state, node, key, amount),
    }
}

/// Forgets a replica and frees what it had.
pub(super) fn remove(state: &mut State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    let (revision, amount, name) = (state.revision, demand(state, key), name(state, key));
    let Some(node) = state.replicas.get(key).map(|replica| replica.node) else {
        return;
    };
    sink.tell(state, Change::Replica(*key, node, ReplicaChange::Removed));
    let Some(replica) = state.replicas.remove(key) else {
        return;
    };
    if let Some(found) = node_mut(state, node) {
        found
            .assignments
            .remove(key.service, name.as_ref(), assigned(key), revision);
        found.stopping.remove(key);
        if replica.wanted == Wanted::Run {
            sink.tell(state, Change::Node(node, NodeChange::AssignmentChanged));
        }
    }
    if replica.reserves() {
        release(state, node, key, amount);
    }
}

/// Forgets a replica without its node's word that it is gone: whatever takes its place has another key.
pub(super) fn give_up(state: &mut State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    if let Some(service) = service_mut(state, key.service)
        && (service.target == key.generation || service.canary_base() == Some(key.generation))
    {
        service.spent = true;
    }
    retire(state, key, sink);
}

/// Forgets a replica that has ended, and notes it among the service's last ones.
pub(super) fn retire(state: &mut State, key: &ReplicaKey, sink: &mut dyn ChangeSink) {
    let Some(replica) = state.replicas.get(key).cloned() else {
        return;
    };
    let machine = &replica.machine;
    // Servers before level 2 did not note that memory was wanting.
    let message = match machine.oom && state.feature_level >= 2 {
        true => machine.trouble().map(Arc::from),
        false => machine.message.clone(),
    };
    let ended = EndedReplica {
        slot: key.slot,
        generation: key.generation,
        node: replica.node,
        exit: replica.machine.exit,
        restarts: replica.machine.restarts,
        ended: state.time,
        message,
    };
    remove(state, key, sink);
    if let Some(service) = service_mut(state, key.service) {
        service.ended.push_back(Arc::new(ended));
        while service.ended.len() > State::ENDED_MAX {
            service.ended.pop_front();
        }
    }
}
