//! What people ask of deployments.

use std::sync::Arc;

use imbl::OrdMap;

use super::scaled::{self, Scaled};
use super::{
    callers, cluster, completed, conflicted, files, jobs, places, quarantine, rebalance, replicas, restart,
    rollout, runs, scaling, service, settings, sources, stages, stopped, volumes,
};
use crate::change::{Change, ChangeSink, DeploymentChange, ReplicaChange, StopCause};
use crate::command::{DeploymentCommand, Missing, Outcome, Refused, ScaleChange};
use crate::ids::{DeploymentName, DeploymentRevision, NodeId, ReplicaKey, RoleId, ServiceId, ServiceName};
use crate::replica::ReplicaState;
use crate::spec::{DeploymentSpec, RType, TimeSpan};
use crate::state::{Deployment, Phase, RevisionOutcome, RevisionRecord, State, Suspension, Wanted};
use crate::time::ClusterTime;

pub(super) fn apply(
    state: &mut State,
    command: &DeploymentCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        DeploymentCommand::Deploy {
            spec,
            author,
            wall_unix_secs,
            force,
        } => {
            let new = NewRevision::asked(spec, author, *wall_unix_secs).by_force(*force);
            deploy_by_hand(state, &new, sink)
        }
        DeploymentCommand::Remove { deployment } => remove_by_hand(state, deployment, sink),
        DeploymentCommand::Scale { deployment, changes } => scale(state, deployment, changes, sink),
        DeploymentCommand::Restart { deployment, service } => {
            restart::restart(state, deployment, service.as_ref(), sink)
        }
        DeploymentCommand::Rollback {
            deployment,
            to,
            author,
            wall_unix_secs,
        } => rollback(state, (deployment, *to), (author, *wall_unix_secs), sink),
        DeploymentCommand::ApplyManifests {
            version,
            specs,
            wall_unix_secs,
            source,
            commit,
            why,
        } => {
            let from = (source.as_ref(), commit.as_ref());
            let set = sources::BroughtSet::new(from, (version, specs), *why, *wall_unix_secs);
            sources::apply_set(state, &set, sink)
        }
        DeploymentCommand::RecordConflicted {
            spec,
            author,
            wall_unix_secs,
        } => conflicted::record(state, spec, author, *wall_unix_secs, sink),
        DeploymentCommand::BindVolume { .. } => volumes::apply(state, command),
        DeploymentCommand::StartRun { deployment, service } => runs::start(state, deployment, service, sink),
        DeploymentCommand::Steer {
            deployment,
            service,
            action,
            author,
        } => stages::steer(state, deployment, service.as_ref(), (*action, author), sink),
        DeploymentCommand::Stop { .. } | DeploymentCommand::Start { .. } => {
            stopped::apply(state, command, sink)
        }
        DeploymentCommand::Rebalance { moves, .. } => rebalance::apply(state, moves),
        DeploymentCommand::Hold { .. } | DeploymentCommand::EndHold { .. } => {
            scaling::apply(state, command, sink)
        }
        DeploymentCommand::Suspending {
            for_ms,
            until_unix_secs,
            author,
            command,
        } => {
            let until = state.time.after(TimeSpan::from_millis(*for_ms));
            let suspension = Suspension::new(until, *until_unix_secs, author);
            sources::suspend(state, &suspension, command, sink)
        }
    }
}

fn remove_by_hand(
    state: &mut State,
    name: &DeploymentName,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    sources::check_removal(state, name)?;
    remove(state, name, sink)?;
    Ok(Outcome::Done)
}

fn deploy_by_hand(
    state: &mut State,
    new: &NewRevision<'_>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    sources::check_hand(state, &new.spec.deployment)?;
    deploy(state, new, false, sink)
}

fn rollback(
    state: &mut State,
    (name, to): (&DeploymentName, Option<DeploymentRevision>),
    (author, wall_unix_secs): (&Arc<str>, i64),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let (back_to, recorded) = rollback_target(state, name, to)?;
    sources::check_hand(state, name)?;
    let spec = scaled::as_written(&recorded);
    let new = NewRevision {
        brings_back: Some(back_to),
        scaled: scaled::kept(state, present(state, name)?, &recorded),
        ..NewRevision::asked(&spec, author, wall_unix_secs)
    };
    deploy(state, &new, false, sink)
}

/// A revision to be.
pub(super) struct NewRevision<'a> {
    pub spec: &'a Arc<DeploymentSpec>,
    pub author: &'a Arc<str>,
    pub wall_unix_secs: i64,
    pub brings_back: Option<DeploymentRevision>,
    /// Counts that people asked for and that it keeps.
    pub scaled: Scaled,
    /// Even what was taken back before.
    pub force: bool,
}

impl<'a> NewRevision<'a> {
    /// As a file asks for it.
    pub fn asked(spec: &'a Arc<DeploymentSpec>, author: &'a Arc<str>, wall_unix_secs: i64) -> Self {
        Self {
            spec,
            author,
            wall_unix_secs,
            brings_back: None,
            scaled: Scaled::new(),
            force: false,
        }
    }

    pub fn by_force(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// What is kept of it.
    fn record(&self, asked: ClusterTime) -> RevisionRecord {
        RevisionRecord {
            spec: self.spec.clone(),
            asked,
            wall_unix_secs: self.wall_unix_secs,
            author: self.author.clone(),
            outcome: RevisionOutcome::Rolling,
            brings_back: self.brings_back,
        }
    }
}

/// Refuses what cannot be carried out, and what not all servers of the cluster know yet.
pub(super) fn check_asked(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    check_spec(spec)?;
    callers::check_level(state, spec)?;
    jobs::check_level(state, spec)?;
    places::check_level(state, spec)?;
    stages::check_level(state, spec)?;
    scaling::check_level(state, spec)?;
    volumes::check_level(state, spec)?;
    files::check_level(state, spec)
}

/// Makes a revision of the spec and turns the deployment's services towards it.
pub(super) fn deploy(
    state: &mut State,
    new: &NewRevision<'_>,
    manifests: bool,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let name = &new.spec.deployment;
    check_asked(state, new.spec)?;
    let known = state.deployment(name).cloned();
    let files::Resolved { spec, contents } = files::resolve(state, known.as_deref(), new.spec)?;
    let new = &NewRevision {
        spec: &spec,
        scaled: new.scaled.clone(),
        ..*new
    };
    if let Some(known) = &known {
        if known.phase == Phase::Removing {
            return Err(Refused::Removing(name.clone()));
        }
        if is_unchanged(state, known, new) {
            let by_people = (!manifests).then_some((new.author, new.wall_unix_secs));
            return stopped::start_unchanged(state, &known.clone(), by_people, sink);
        }
        quarantine::check(state, known, new)?;
    }
    if !manifests {
        // A set is compared as a whole before anything of it is deployed.
        callers::check_ports(state, new.spec, &|other| other == name)?;
    }
    let again = known
        .as_ref()
        .is_some_and(|known| is_after_failure(state, known, new));
    let mut deployment = known.map_or_else(|| fresh(name), |known| known.as_ref().clone());
    scaled::note(state, &mut deployment);
    supersede(&mut deployment);
    quarantine::lift(&mut deployment, new.spec);
    deployment.revision = deployment.next_revision();
    deployment.phase = Phase::Deploying;
    // What a source owns is changed by hand only while it is suspended, and stays the source's own.
    let is_suspended = state.feature_level >= sources::SINCE_LEVEL && deployment.owner().is_some();
    if manifests || !is_suspended {
        deployment.from_manifests = manifests;
        deployment.source = None;
    }
    let record = new.record(state.time);
    deployment.history.insert(deployment.revision, Arc::new(record));
    deployment.contents = contents.union(deployment.contents);
    trim_history(&mut deployment);
    // The first term of a cluster begins before its servers agree on what they note.
    cluster::mark_clock(state, new.wall_unix_secs.saturating_mul(1_000));
    let revision = deployment.revision;
    turn_services(state, deployment, &new.scaled, sink);
    stopped::begin_all(state, name, (!manifests).then_some(new.wall_unix_secs));
    files::sweep(state, name);
    let change = DeploymentChange::Deployed {
        revision,
        author: new.author,
        brings_back: new.brings_back,
    };
    sink.tell(state, Change::Deployment(name, change));
    if again {
        begin_failed_anew(state, name, sink);
    }
    Ok(Outcome::Deployed {
        revision,
        changed: true,
    })
}

/// Whether the revision before has failed, so that its services begin anew.
fn is_after_failure(state: &State, known: &Deployment, new: &NewRevision<'_>) -> bool {
    let same = known.current().is_some_and(|record| record.spec == *new.spec);
    matches!(known.phase, Phase::Failed | Phase::RevertFailed)
        && (same || state.feature_level >= settings::SINCE_LEVEL)
}

/// What failed and is asked for again, as it was or mended, is tried at once and with a clean slate: its replicas give
/// way to new ones.
pub(super) fn begin_failed_anew(state: &mut State, name: &DeploymentName, sink: &mut dyn ChangeSink) {
    let level = state.feature_level;
    let services: Vec<ServiceId> = state
        .deployment(name)
        .map(|deployment| deployment.services.values().copied().collect())
        .unwrap_or_default();
    for id in services {
        let failed: Vec<(ReplicaKey, NodeId)> = state
            .replicas_of(id)
            .filter(|(key, replica)| {
                let lost = replica.machine.state == ReplicaState::Lost;
                // What runs another version is replaced in any case.
                let current = state
                    .service(id)
                    .is_some_and(|service| service.is_current(key.generation));
                // An end counts among the failures, but work that is done stays done.
                let done = level >= jobs::SINCE_LEVEL && replica.is_completed();
                (current || level < settings::SINCE_LEVEL)
                    && !done
                    && replica.wanted == Wanted::Run
                    && replica.machine.failures > 0
                    && !replica.is_healthy()
                    && !lost
            })
            .map(|(key, replica)| (*key, replica.node))
            .collect();
        for (key, node) in failed {
            let asked = ReplicaChange::StopAsked(StopCause::CleanSlate);
            sink.tell(state, Change::Replica(key, node, asked));
            replicas::stop(state, &key, sink);
        }
    }
}

pub(super) fn fresh(name: &DeploymentName) -> Deployment {
    Deployment {
        name: name.clone(),
        revision: DeploymentRevision(0),
        history: OrdMap::new(),
        last_good: None,
        phase: Phase::Deploying,
        services: OrdMap::new(),
        from_manifests: false,
        source: None,
        completed: OrdMap::new(),
        contents: OrdMap::new(),
        quarantined: OrdMap::new(),
        suspended: None,
    }
}

/// Counts that no plan could carry are refused here too: not everything comes through the file's reader.
pub(super) fn check_spec(spec: &DeploymentSpec) -> Result<(), Refused> {
    for service in spec.services.values() {
        let groups = service
            .replica_groups
            .iter()
            .map(|group| u64::from(group.count))
            .sum::<u64>();
        let asked = groups.max(u64::from(service.desired_total_at_first()));
        if asked > u64::from(State::REPLICAS_PER_SERVICE_MAX) {
            return Err(Refused::TooManyReplicas {
                asked,
                max: State::REPLICAS_PER_SERVICE_MAX,
            });
        }
        if service.replica_groups.len() > usize::from(u16::MAX) {
            return Err(Refused::BadSpec("a service has too many replica groups".into()));
        }
    }
    Ok(())
}

/// Whether the cluster already has exactly this, counts included, and it did not fail.
fn is_unchanged(state: &State, known: &Deployment, new: &NewRevision<'_>) -> bool {
    let spec = new.spec;
    let same = known.current().is_some_and(|record| record.spec == *spec);
    same && matches!(known.phase, Phase::Stable | Phase::Deploying)
        && spec.services.iter().all(|(name, wanted)| {
            state.service_named(&known.name, name).is_some_and(|found| {
                let counts = service::counts_for(found.roles.as_ref(), wanted, Some(found));
                scaled::over(&new.scaled, name, &found.roles, wanted, counts) == found.counts
            })
        })
}

/// A revision that was still rolling gives way to a newer one.
pub(super) fn supersede(deployment: &mut Deployment) {
    if let Some(record) = deployment.history.get_mut(&deployment.revision)
        && record.outcome == RevisionOutcome::Rolling
    {
        Arc::make_mut(record).outcome = RevisionOutcome::Superseded;
    }
}

/// Forgets the oldest revision that is neither the current nor the last good one. Whether there was one.
pub(super) fn forget_oldest(deployment: &mut Deployment) -> bool {
    let keep = [Some(deployment.revision), deployment.last_good];
    let mut revisions = deployment.history.keys();
    let oldest = revisions
        .find(|revision| !keep.contains(&Some(**revision)))
        .copied();
    oldest.is_some_and(|oldest| deployment.history.remove(&oldest).is_some())
}

/// Forgets the oldest revisions, never the current and the last good one.
pub(super) fn trim_history(deployment: &mut Deployment) {
    while deployment.history.len() > State::HISTORY_MAX && forget_oldest(deployment) {}
    // Nothing brings back a service that no kept revision has.
    let history = &deployment.history;
    crate::maps::retain(&mut deployment.completed, |service, _| {
        history
            .values()
            .any(|record| record.spec.services.contains_key(service))
    });
}

/// Brings services in line with the deployment's current revision and stores the deployment.
pub(super) fn turn_services(
    state: &mut State,
    mut deployment: Deployment,
    scaled: &Scaled,
    sink: &mut dyn ChangeSink,
) {
    let Some(spec) = deployment.current().map(|record| record.spec.clone()) else {
        return;
    };
    let brings_back = deployment
        .current()
        .is_some_and(|record| record.brings_back.is_some());
    for (name, wanted) in &spec.services {
        // What is brought back was good, and nobody has to try it first.
        let is_tried = !brings_back;
        let service::Turned { id, anew } =
            service::turn(state, &deployment.name, name, (wanted, scaled, is_tried), sink);
        match (brings_back, anew) {
            (true, _) => completed::bring_back(state, &deployment, id),
            (false, true) => completed::forget(&mut deployment, name, wanted),
            (false, false) => {}
        }
        deployment.services.insert(name.clone(), id);
    }
    for (name, id) in &deployment.services {
        if !spec.services.contains_key(name)
            && let Some(service) = replicas::service_mut(state, *id)
        {
            service.removing = true;
        }
    }
    places::note_shunned(state, &deployment, &spec);
    state
        .deployments
        .insert(deployment.name.clone(), Arc::new(deployment));
}

pub(super) fn remove(
    state: &mut State,
    name: &DeploymentName,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let found = state
        .deployments
        .get_mut(name)
        .ok_or_else(|| Missing::Deployment(name.clone()))?;
    let deployment = Arc::make_mut(found);
    deployment.phase = Phase::Removing;
    let services: Vec<ServiceId> = deployment.services.values().copied().collect();
    let is_empty = services.is_empty();
    sink.tell(state, Change::Deployment(name, DeploymentChange::RemovalAsked));
    if is_empty {
        sink.tell(state, Change::Deployment(name, DeploymentChange::Removed));
        state.deployments.remove(name);
    }
    for id in services {
        if let Some(service) = replicas::service_mut(state, id) {
            service.removing = true;
        }
    }
    Ok(())
}

/// Finds a deployment that is not going away.
pub(super) fn present<'a>(state: &'a State, name: &DeploymentName) -> Result<&'a Arc<Deployment>, Refused> {
    let found = state
        .deployment(name)
        .ok_or_else(|| Missing::Deployment(name.clone()))?;
    if found.phase == Phase::Removing {
        return Err(Refused::Removing(name.clone()));
    }
    Ok(found)
}

pub(super) fn service_in(
    state: &State,
    deployment: &Deployment,
    name: &ServiceName,
) -> Result<ServiceId, Refused> {
    let id = deployment.services.get(name).copied();
    id.filter(|id| state.service(*id).is_some_and(|service| !service.removing))
        .ok_or_else(|| Missing::Service(deployment.name.clone(), name.clone()).into())
}

/// All changes of one request, or none.
fn scale(
    state: &mut State,
    name: &DeploymentName,
    changes: &[ScaleChange],
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let deployment = present(state, name)?.clone();
    let mut checked = Vec::with_capacity(changes.len());
    for change in changes {
        let id = service_in(state, &deployment, &change.service)?;
        scaling::refuse_adaptive(state, id, change)?;
        checked.push((id, role_to_scale(state, id, change)?, change.replicas));
        sources::check_scale(state, &deployment, id)?;
    }
    let now = state.time;
    let mut changed = false;
    for (id, role, replicas) in checked {
        let Some(service) = replicas::service_mut(state, id) else {
            continue;
        };
        if service.count(role) == replicas {
            continue;
        }
        let mut counts = service.counts.to_vec();
        if let Some(count) = counts.get_mut(usize::from(role.0)) {
            *count = replicas;
        }
        service::set_counts(service, counts.into(), now);
        changed = true;
    }
    if changed {
        rollout::begin_again(state, name);
        sink.tell(
            state,
            Change::Deployment(name, DeploymentChange::Scaled { changes }),
        );
    }
    Ok(Outcome::Deployed {
        revision: deployment.revision,
        changed,
    })
}

pub(super) fn role_to_scale(state: &State, id: ServiceId, change: &ScaleChange) -> Result<RoleId, Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    let name = || change.service.clone();
    if change.replicas > State::REPLICAS_PER_SERVICE_MAX {
        let asked = u64::from(change.replicas);
        return Err(Refused::TooManyReplicas {
            asked,
            max: State::REPLICAS_PER_SERVICE_MAX,
        });
    }
    match service.rtype() {
        RType::Service | RType::Job => {}
        RType::System => {
            return Err(Refused::NotScalable {
                service: name(),
                why: "it runs once on every node that fits",
            });
        }
        RType::Cron => {
            return Err(Refused::NotScalable {
                service: name(),
                why: "its schedule starts its runs",
            });
        }
    }
    let roles = service.spec().map(|spec| spec.roles()).unwrap_or_default();
    let role = match (&change.role, roles.as_slice()) {
        (Some(role), roles) if roles.contains(role) => role,
        (Some(role), _) => return Err(Missing::Role(name(), role.clone()).into()),
        (None, [only]) => only,
        (None, several) => {
            let roles = several
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(Refused::WhichRole {
                service: name(),
                roles,
            });
        }
    };
    service
        .role_id(role)
        .ok_or_else(|| Missing::Role(name(), role.clone()).into())
}

/// The revision that a rollback brings back, and what it asks for.
pub fn rollback_target(
    state: &State,
    name: &DeploymentName,
    to: Option<DeploymentRevision>,
) -> Result<(DeploymentRevision, Arc<DeploymentSpec>), Refused> {
    let deployment = present(state, name)?;
    // A count that was asked for meanwhile makes it nothing else.
    let current = deployment.current().map(|record| &record.spec);
    let back_to = match to {
        Some(to) => to,
        None => deployment
            .history
            .iter()
            .rev()
            .find(|(revision, record)| {
                **revision != deployment.revision
                    && record.outcome == RevisionOutcome::Good
                    && Some(&scaled::as_written(&record.spec)) != current
            })
            .map(|(revision, _)| *revision)
            .ok_or_else(|| Refused::NothingToRollBackTo(name.clone()))?,
    };
    let record = deployment
        .history
        .get(&back_to)
        .ok_or_else(|| Missing::Revision(name.clone(), back_to))?;
    Ok((back_to, record.spec.clone()))
}
