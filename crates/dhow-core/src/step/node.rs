//! Nodes come, go, drain and are labelled.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{files, jobs, replicas, runs, settings, volumes};
use crate::change::{Change, ChangeSink, NodeChange, ReplicaChange};
use crate::command::{Missing, NodeCommand, Outcome, Refused};
use crate::ids::{NodeId, ReplicaKey};
use crate::replica::{ReplicaEvent, RestartRule, step as step_machine};
use crate::spec::{TimeSpan, VolumeSupport};
use crate::state::{Drain, DrainRules, Liveness, Node, NodeInfo, NodeRole, State, Wanted};

pub(super) fn apply(
    state: &mut State,
    command: &NodeCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        NodeCommand::Register { node, info } => {
            register(state, *node, info, sink)?;
            return Ok(Outcome::Registered { node: *node });
        }
        NodeCommand::Lost { node } => lost(state, *node, sink)?,
        NodeCommand::Back { node } => back(state, *node, sink)?,
        NodeCommand::SetDrain { node, drain } => {
            let before = drain_of(state, *node);
            change_eligibility(state, *node, |node| {
                node.drain_rules = DrainRules::default();
                node.drain = match (*drain, node.is_idle()) {
                    (Drain::No, _) => Drain::No,
                    (Drain::Draining { shutdown } | Drain::Drained { shutdown }, true) => {
                        Drain::Drained { shutdown }
                    }
                    (Drain::Draining { shutdown } | Drain::Drained { shutdown }, false) => {
                        Drain::Draining { shutdown }
                    }
                };
            })?;
            tell_drain(state, *node, before, sink);
        }
        NodeCommand::Drain {
            node,
            shutdown,
            deadline_ms,
            ignore_system,
        } => {
            super::needs_level(state, 2)?;
            let ends_at = deadline_ms.map(|ms| state.time.after(TimeSpan::from_millis(ms)));
            let ignore_system = *ignore_system;
            let rules = DrainRules {
                ends_at,
                ignore_system,
            };
            let before = drain_of(state, *node);
            drain(state, *node, *shutdown, rules)?;
            tell_drain(state, *node, before, sink);
        }
        NodeCommand::Label { node, set, unset } => {
            label(state, *node, set, unset, sink)?;
        }
        NodeCommand::Remove { node } => remove(state, *node, sink)?,
        NodeCommand::TellsGenerations { node } => {
            super::needs_node_ids(state)?;
            replicas::node_mut(state, *node)
                .ok_or(Missing::Node(*node))?
                .is_plain = false;
            sink.tell(state, Change::Node(*node, NodeChange::Renewed));
        }
        NodeCommand::InternalTokenShown {
            node,
            number,
            earlier_until_unix_secs,
        } => {
            super::needs_level(state, State::COUNTS_INTERNAL_TOKENS)?;
            token_shown(state, *node, *number, *earlier_until_unix_secs)?;
        }
    }
    Ok(Outcome::Done)
}

/// From this level on it is kept where other nodes reach a node's proxy.
const MESH_LEVEL: u32 = 3;

/// A new node, or a known one with what it says of itself now.
pub(super) fn register(
    state: &mut State,
    id: NodeId,
    info: &Arc<NodeInfo>,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let revision = state.revision;
    let keeps_ids = state.keeps_node_ids();
    let info = &of_level(state.feature_level, info);
    if let Some(node) = replicas::node_mut(state, id) {
        let was_worker = node.info.role == NodeRole::Worker;
        if keeps_ids && was_worker != (info.role == NodeRole::Worker) {
            return Err(Refused::NodeRole(id));
        }
        if node.info != *info {
            node.info = info.clone();
            node.eligibility = revision;
            sink.tell(state, Change::Node(id, NodeChange::Renewed));
        }
        return Ok(());
    }
    if keeps_ids {
        state.check_new_node(id, info.role)?;
    } else if id <= state.last_node_id && info.role == NodeRole::Worker {
        // Fixed peers of raft and static clusters choose their ids; only ids of removed nodes are gone for good.
        return Err(Refused::NodeIdUsed(id));
    }
    let max = state.nodes_max();
    if state.nodes.len() >= max {
        return Err(Refused::TooManyNodes { max });
    }
    let in_turn = !keeps_ids || state.fresh_node_id().is_ok_and(|fresh| fresh == id);
    state.give_node_id(id, in_turn);
    state
        .nodes
        .insert(id, Arc::new(Node::new(id, info.clone(), revision)));
    sink.tell(state, Change::Node(id, NodeChange::Joined));
    Ok(())
}

/// What the cluster's level does not have is not kept: the node says it again once the level is higher.
fn of_level(level: u32, info: &Arc<NodeInfo>) -> Arc<NodeInfo> {
    let tries_settings = info.tries_settings && level >= settings::SINCE_LEVEL;
    let mesh_addr = info.mesh_addr.as_ref().filter(|_| level >= MESH_LEVEL);
    let mounts_files = info.mounts_files && level >= files::SINCE_LEVEL;
    let runs_steps = info.runs_steps && level >= jobs::SINCE_LEVEL;
    let support = match level >= volumes::SINCE_LEVEL {
        true => info.volumes,
        false => VolumeSupport::Named,
    };
    let as_it_is = tries_settings == info.tries_settings
        && support == info.volumes
        && mounts_files == info.mounts_files
        && runs_steps == info.runs_steps;
    if as_it_is && mesh_addr == info.mesh_addr.as_ref() {
        return info.clone();
    }
    Arc::new(NodeInfo {
        tries_settings,
        mounts_files,
        runs_steps,
        volumes: support,
        mesh_addr: mesh_addr.cloned(),
        ..info.as_ref().clone()
    })
}

/// Changes what placement asks of a node; plans made before no longer count.
fn change_eligibility(state: &mut State, id: NodeId, change: impl FnOnce(&mut Node)) -> Result<(), Refused> {
    let revision = state.revision;
    let node = replicas::node_mut(state, id).ok_or(Missing::Node(id))?;
    change(node);
    node.eligibility = revision;
    Ok(())
}

fn drain(state: &mut State, id: NodeId, shutdown: bool, rules: DrainRules) -> Result<(), Refused> {
    change_eligibility(state, id, |node| node.drain_rules = rules)?;
    let cleared = state.node(id).is_some_and(|node| state.is_cleared(node));
    if let Some(node) = replicas::node_mut(state, id) {
        node.drain = match cleared {
            true => Drain::Drained { shutdown },
            false => Drain::Draining { shutdown },
        };
    }
    Ok(())
}

fn token_shown(
    state: &mut State,
    id: NodeId,
    number: u32,
    earlier_until_unix_secs: i64,
) -> Result<(), Refused> {
    let node = replicas::node_mut(state, id).ok_or(Missing::Node(id))?;
    let mark = &mut node.internal_token;
    // The same token is often shown at two places at once.
    if number > mark.number {
        mark.number = number;
        mark.earlier_until_unix_secs = earlier_until_unix_secs;
    }
    Ok(())
}

fn back(state: &mut State, id: NodeId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let was_ready = state.node(id).is_some_and(|node| node.is_ready());
    change_eligibility(state, id, |node| node.liveness = Liveness::Ready)?;
    if !was_ready {
        sink.tell(state, Change::Node(id, NodeChange::Back));
    }
    Ok(())
}

/// What a node's drain is at the moment.
fn drain_of(state: &State, id: NodeId) -> Option<(Drain, DrainRules)> {
    state.node(id).map(|node| (node.drain, node.drain_rules))
}

/// A drain that was asked for again as it is has changed nothing.
fn tell_drain(state: &State, id: NodeId, before: Option<(Drain, DrainRules)>, sink: &mut dyn ChangeSink) {
    if let Some(node) = state.node(id).filter(|_| drain_of(state, id) != before) {
        sink.tell(state, Change::Node(id, NodeChange::Drain(node.drain)));
    }
}

fn lost(state: &mut State, id: NodeId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let since = state.time;
    if !state.node(id).ok_or(Missing::Node(id))?.is_ready() {
        return Ok(());
    }
    change_eligibility(state, id, |node| node.liveness = Liveness::Unreachable { since })?;
    sink.tell(state, Change::Node(id, NodeChange::Lost));
    let keys: Vec<ReplicaKey> = state
        .node(id)
        .map(|node| node.replica_keys().collect())
        .unwrap_or_default();
    for key in keys {
        let Some(replica) = state.replicas.get(&key) else {
            continue;
        };
        if replica.wanted == Wanted::Stop {
            // It is not the node's any more: should the node come back, it will stop what it is not assigned.
            replicas::give_up(state, &key, sink);
            continue;
        }
        replicas::update(state, &key, |replica| {
            // Every state takes this event, so there is no refusal to report.
            let _ = step_machine(
                &mut replica.machine,
                &ReplicaEvent::NodeLost,
                &RestartRule::default(),
            );
        });
        sink.tell(state, Change::Replica(key, id, ReplicaChange::Lost));
    }
    Ok(())
}

fn label(
    state: &mut State,
    id: NodeId,
    set: &BTreeMap<String, String>,
    unset: &[String],
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let mut is_other = false;
    change_eligibility(state, id, |node| {
        let mut labels = node.set_labels.as_ref().clone();
        unset.iter().for_each(|key| {
            labels.remove(key);
        });
        labels.extend(set.iter().map(|(key, value)| (key.clone(), value.clone())));
        is_other = *node.set_labels != labels;
        node.set_labels = Arc::new(labels);
    })?;
    if is_other {
        sink.tell(state, Change::Node(id, NodeChange::Labelled));
    }
    Ok(())
}

/// Only a node that has nothing, or cannot be reached: then what it had is given up.
fn remove(state: &mut State, id: NodeId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let node = state.node(id).ok_or(Missing::Node(id))?.clone();
    if node.is_ready() && !node.is_idle() {
        return Err(Refused::NodeInUse(id));
    }
    let keys: Vec<ReplicaKey> = node.replica_keys().collect();
    for key in keys {
        keep_done(state, &key);
        replicas::give_up(state, &key, sink);
        runs::settle(state, key.service, sink);
    }
    let bound: Vec<_> = state
        .services
        .iter()
        .filter(|(_, service)| service.volumes.values().any(|on| *on == id))
        .map(|(service, _)| *service)
        .collect();
    for service in bound {
        if let Some(service) = replicas::service_mut(state, service) {
            crate::maps::retain(&mut service.volumes, |_, on| *on != id);
        }
    }
    sink.tell(state, Change::Node(id, NodeChange::Removed));
    state.nodes.remove(&id);
    state.forget_server_id(id);
    state.note_removed(id, node.info.role);
    Ok(())
}

/// What a job has done stays done, though its replica is forgotten with its node.
fn keep_done(state: &mut State, key: &ReplicaKey) {
    let done = state
        .replicas
        .get(key)
        .is_some_and(|replica| replica.is_completed());
    if let Some(service) = replicas::service_mut(state, key.service)
        && done
        && service.is_current(key.generation)
        && service.spec().is_some_and(|spec| spec.runs_to_completion())
    {
        service.done.insert(key.slot);
    }
}
