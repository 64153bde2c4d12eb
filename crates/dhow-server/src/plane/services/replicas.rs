//! The replicas that are there, those that are wanted and have no node yet, and those that were.

use std::collections::BTreeMap;

use dhow_core::ids::{DeploymentName, Generation, ReplicaKey, ServiceName, Slot, replica_id};
use dhow_core::plan::{PlanReport, Waiting};
use dhow_core::replica::Exit;
use dhow_core::spec::{RType, ServiceSpec};
use dhow_core::state::{EndedReplica, Replica, RevisionOutcome, Service, State};
use dhow_core::usage::ReplicaUsage;
use dhow_wire::{ReplicaStateName, ReplicaStatus};

use super::files;
use super::wall_times::WallTimes;
use crate::plane::runtime::Observed;

/// What is said of work that is not done again.
pub(super) const DONE_BEFORE: &str = "its work was done before, by a replica that is gone";

/// What is said of one that was given up, as on a node that was lost: it may run there to this day.
pub(super) const UNSEEN: &str = "nobody saw its end";

/// Which ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaFilter {
    pub deployment: Option<String>,
    pub service: Option<String>,
    /// Those that have ended and are remembered, too.
    pub all: bool,
}

impl ReplicaFilter {
    /// Whether something of this name was asked for.
    pub fn takes(&self, deployment: &DeploymentName, service: &ServiceName) -> bool {
        let fits =
            |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        fits(&self.deployment, deployment.as_str()) && fits(&self.service, service.as_str())
    }
}

/// By deployment and service, then by slot.
pub(super) fn list(
    report: &PlanReport,
    filter: &ReplicaFilter,
    observed: &Observed,
    times: &WallTimes<'_>,
) -> Vec<ReplicaStatus> {
    let state = times.state;
    let mut list = Vec::new();
    let services = state.service_ids.values().filter_map(|id| state.service(*id));
    for service in services.filter(|service| filter.takes(&service.key.deployment, &service.key.service)) {
        let revisions = revisions(state, service);
        let dated = |status: ReplicaStatus| with_revision(&revisions, status);
        // What earlier runs of a schedule have left is kept for its logs.
        let present = state.replicas_of(service.id);
        let present = present.filter(|(key, _)| filter.all || service.is_present(key.slot));
        let present = present.map(|(key, replica)| measured_status(service, key, replica, observed, times));
        list.extend(present.map(dated));
        list.extend(done_before(state, service));
        list.extend(absent(state, report, service));
        if filter.all {
            let ended = service
                .ended
                .iter()
                .map(|ended| ended_status(state, service, ended));
            list.extend(ended.map(dated));
        }
    }
    list
}

fn with_revision(revisions: &BTreeMap<Generation, u64>, status: ReplicaStatus) -> ReplicaStatus {
    let generation = status.generation.map(Generation);
    ReplicaStatus {
        revision: generation.and_then(|generation| revisions.get(&generation).copied()),
        ..status
    }
}

fn measured_status(
    service: &Service,
    key: &ReplicaKey,
    replica: &Replica,
    observed: &Observed,
    times: &WallTimes<'_>,
) -> ReplicaStatus {
    let used = measured(times.state, observed, key, replica);
    ReplicaStatus {
        started_unix_secs: started_unix_secs(times, service, replica, used),
        cpu_used_milli: used.map(|used| used.cpu_milli),
        memory_used_bytes: used.map(|used| used.memory_bytes),
        ..present_status(service, key, replica)
    }
}

/// Which replicas of a service a page of its listing shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaWindow {
    pub skip: usize,
    pub take: usize,
    /// Only those that are not healthy.
    pub only_ill: bool,
}

/// Some of the replicas of one service, by slot: those that are there, and then those that are wanted and are not. What
/// is passed over costs next to nothing.
pub(super) fn within(
    report: &PlanReport,
    service: &Service,
    window: ReplicaWindow,
    observed: &Observed,
    times: &WallTimes<'_>,
) -> Vec<ReplicaStatus> {
    let state = times.state;
    let revisions = revisions(state, service);
    let shown = |replica: &Replica| !window.only_ill || !(replica.is_healthy() || replica.is_completed());
    let mut passed = 0;
    let mut list: Vec<ReplicaStatus> = state
        .replicas_of(service.id)
        .filter(|(key, replica)| service.is_present(key.slot) && shown(replica))
        .inspect(|_| passed += 1)
        .skip(window.skip)
        .take(window.take)
        .map(|(key, replica)| {
            with_revision(
                &revisions,
                measured_status(service, key, replica, observed, times),
            )
        })
        .collect();
    let left = window.take - list.len();
    if left > 0 {
        let others = absent(state, report, service);
        list.extend(others.skip(window.skip.saturating_sub(passed)).take(left));
    }
    list
}

/// One that is there.
pub(super) fn one(key: &ReplicaKey, observed: &Observed, times: &WallTimes<'_>) -> Option<ReplicaStatus> {
    let service = times.state.service(key.service)?;
    let replica = times.state.replicas.get(key)?;
    let status = measured_status(service, key, replica, observed, times);
    Some(with_revision(&revisions(times.state, service), status))
}

/// The deployment's revision that each generation runs: the present one for what is to run now, else the newest one
/// that asked for the same.
fn revisions(state: &State, service: &Service) -> BTreeMap<Generation, u64> {
    let Some(deployment) = state.deployment(&service.key.deployment) else {
        return BTreeMap::new();
    };
    let asked_for = |spec: &ServiceSpec| {
        let history = deployment.history.iter().rev();
        let mut same = history.filter(|(_, record)| {
            let asked = record.spec.services.get(&service.key.service);
            record.outcome != RevisionOutcome::Conflicted
                && asked.is_some_and(|asked| !spec.rolls_into_at(asked, state.feature_level))
        });
        same.next().map(|(revision, _)| revision.0)
    };
    let known = service.generations.iter().filter_map(|(generation, info)| {
        let revision = match service.is_current(*generation) {
            true => Some(deployment.revision.0),
            false => asked_for(&info.spec),
        };
        Some((*generation, revision?))
    });
    known.collect()
}

fn blank(service: &Service, slot: Slot, state: ReplicaStateName) -> ReplicaStatus {
    let role = service
        .role(slot.role)
        .cloned()
        .unwrap_or_else(dhow_core::ids::RoleName::fallback);
    ReplicaStatus {
        deployment: service.key.deployment.to_string(),
        service: service.key.service.to_string(),
        id: replica_id(&service.key.service, &role, slot.index),
        role: role.to_string(),
        replica: slot.index,
        node_id: None,
        image: None,
        state,
        healthy: false,
        restarts: 0,
        pid: None,
        exit_code: None,
        generation: None,
        revision: None,
        started_unix_secs: None,
        cpu_used_milli: None,
        memory_used_bytes: None,
        live: None,
        message: None,
    }
}

fn image(service: &Service, key: &ReplicaKey) -> Option<String> {
    let role = service.role(key.slot.role)?;
    let spec = &service.info(key.generation)?.spec;
    let own = spec.group(role).and_then(|group| group.image.as_ref());
    own.or(spec.image.as_ref()).map(|image| image.name.clone())
}

fn present_status(service: &Service, key: &ReplicaKey, replica: &Replica) -> ReplicaStatus {
    let machine = &replica.machine;
    ReplicaStatus {
        node_id: Some(replica.node.0),
        image: image(service, key),
        healthy: replica.is_healthy(),
        restarts: machine.restarts,
        pid: machine.pid,
        exit_code: machine.exit.and_then(Exit::code),
        generation: Some(key.generation.0),
        message: trouble(replica).or_else(|| files::note(service, key, replica).map(|note| note.to_string())),
        ..blank(service, key.slot, machine.state.into())
    }
}

/// What the node of a running replica says of it.
pub(super) fn measured(
    state: &State,
    observed: &Observed,
    key: &ReplicaKey,
    replica: &Replica,
) -> Option<ReplicaUsage> {
    let name = state.replica_name(key).filter(|_| replica.is_running())?;
    observed.usage(replica.node)?.replica(&name).copied()
}

/// When what runs was started. Its node knows best, unless that is noted and it was measured before its last start.
pub(super) fn started_unix_secs(
    times: &WallTimes<'_>,
    service: &Service,
    replica: &Replica,
    used: Option<ReplicaUsage>,
) -> Option<i64> {
    let started = replica
        .is_running()
        .then(|| replica.started.unwrap_or(replica.since))?;
    let told = times.unix_secs(&service.key.deployment, started);
    let measured = used.and_then(|used| used.started_unix_secs);
    match replica.started {
        Some(_) => measured.max(told),
        None => measured.or(told),
    }
}

/// Slots whose work was done before and whose replicas are gone: a revision that was brought back does not do it again.
pub(super) fn done_before<'a>(
    state: &'a State,
    service: &'a Service,
) -> impl Iterator<Item = ReplicaStatus> + 'a {
    let done = service.wanted_slots().filter(|slot| service.is_done(*slot));
    let gone = done.filter(move |slot| !has_replica(state, service, *slot));
    gone.map(|slot| {
        let key = ReplicaKey {
            service: service.id,
            slot,
            generation: service.target,
        };
        ReplicaStatus {
            image: image(service, &key),
            exit_code: Some(0),
            message: Some(DONE_BEFORE.into()),
            ..blank(service, slot, ReplicaStateName::Exited)
        }
    })
}

/// What is wrong with it. A plain exit code has a place of its own.
fn trouble(replica: &Replica) -> Option<String> {
    let machine = &replica.machine;
    let says_more = machine.message.is_some() || machine.oom;
    says_more.then(|| machine.trouble()).flatten()
}

/// Wanted slots without a replica, with what they wait for. A system service's slots are its nodes', which the
/// planner alone counts.
fn absent<'a>(
    state: &'a State,
    report: &'a PlanReport,
    service: &'a Service,
) -> impl Iterator<Item = ReplicaStatus> + 'a {
    let counted = service.rtype() != RType::System;
    let wanted = service.wanted_slots().filter(move |_| counted);
    let empty = wanted.filter(move |slot| !service.is_done(*slot) && !has_replica(state, service, *slot));
    let waiting = report
        .services
        .get(&service.id)
        .map(|report| report.waiting.as_slice());
    empty.map(move |slot| {
        let key = ReplicaKey {
            service: service.id,
            slot,
            generation: service.target,
        };
        ReplicaStatus {
            image: image(service, &key),
            message: waiting.and_then(|waiting| why(waiting, slot)),
            ..blank(service, slot, ReplicaStateName::Pending)
        }
    })
}

fn has_replica(state: &State, service: &Service, slot: Slot) -> bool {
    let key = |generation| ReplicaKey {
        service: service.id,
        slot,
        generation: Generation(generation),
    };
    state.replicas.range(key(0)..=key(u32::MAX)).next().is_some()
}

/// Why a slot has no replica. The planner names a run of slots that wait for the same reason by its first one and its
/// length.
pub(super) fn why(waiting: &[Waiting], slot: Slot) -> Option<String> {
    let covers = |waiting: &&Waiting| {
        waiting.first.role == slot.role
            && slot.index >= waiting.first.index
            && slot.index - waiting.first.index < waiting.slots
    };
    let found = waiting.iter().find(covers);
    found.map(|waiting| waiting.why.to_string())
}

fn ended_status(state: &State, service: &Service, ended: &EndedReplica) -> ReplicaStatus {
    let key = ReplicaKey {
        service: service.id,
        slot: ended.slot,
        generation: ended.generation,
    };
    let is_plain = state.node(ended.node).is_some_and(|node| node.is_plain);
    let (ended_as, message) = match (ended.exit, &ended.message) {
        (Some(exit), message) if exit.is_success() => (ReplicaStateName::Exited, message.clone()),
        // Without an exit it never ran.
        (Some(_), message) | (None, message @ Some(_)) => (ReplicaStateName::Failed, message.clone()),
        // A worker that keeps no ledger only stops to speak of what it has ended.
        (None, None) if is_plain => (ReplicaStateName::Exited, Some(UNSEEN.into())),
        (None, None) => (ReplicaStateName::Lost, Some(UNSEEN.into())),
    };
    ReplicaStatus {
        node_id: Some(ended.node.0),
        image: image(service, &key),
        restarts: ended.restarts,
        exit_code: ended.exit.and_then(Exit::code),
        generation: Some(ended.generation.0),
        message: message.map(|message| message.to_string()),
        ..blank(service, ended.slot, ended_as)
    }
}
