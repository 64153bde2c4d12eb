//! Replicas that are to go elsewhere. They are marked; the planner carries it out within what their rollouts promise, whoever
//! leads, and the mark goes with the replica.

use super::places::SINCE_LEVEL;
use super::replicas;
use crate::command::{Outcome, Refused, ReplicaMove};
use crate::ids::ReplicaKey;
use crate::rebalance::{MOVES_MAX, is_movable, may_move};
use crate::state::State;

/// Marks those that may still be moved; without any, takes all marks back.
pub(super) fn apply(state: &mut State, moves: &[ReplicaMove]) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    if moves.len() > MOVES_MAX as usize {
        return Err(Refused::NotNow("a rebalance has at most 1,000 moves"));
    }
    if moves.is_empty() {
        stop(state);
        return Ok(Outcome::Done);
    }
    let possible: Vec<&ReplicaMove> = moves.iter().filter(|made| is_possible(state, made)).collect();
    if possible.is_empty() {
        return Err(Refused::NotNow(
            "the replicas have changed since the moves were worked out",
        ));
    }
    for ReplicaMove { replica, to, .. } in possible {
        replicas::update(state, replica, |replica| replica.moves_to = Some(*to));
    }
    Ok(Outcome::Done)
}

fn is_possible(state: &State, made: &ReplicaMove) -> bool {
    let key = &made.replica;
    let (Some(service), Some(replica)) = (state.service(key.service), state.replicas.get(key)) else {
        return false;
    };
    let is_open = state.node(made.to).is_some_and(|node| node.is_open());
    is_open
        && made.from != made.to
        && replica.node == made.from
        && may_move(state, service)
        && is_movable(state, service, key, replica)
}

/// What has not gone yet stays.
fn stop(state: &mut State) {
    let marked: Vec<ReplicaKey> = state
        .replicas
        .iter()
        .filter(|(_, replica)| replica.moves_to.is_some())
        .map(|(key, _)| *key)
        .collect();
    for key in marked {
        replicas::update(state, &key, |replica| replica.moves_to = None);
    }
}
