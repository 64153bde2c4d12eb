//! What a deployment would change, and where its replicas would go: planned and applied to a copy of the
//! state, so that the answer is the planner's own. The state itself stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::command::{Command, DeploymentCommand, Entry, PlanCommand, Refused};
use crate::ids::{NodeId, ReplicaKey, ReplicaName, ServiceId, ServiceName};
use crate::plan::{PlanCache, Waiting, plan_next};
use crate::spec::{DeploymentSpec, RType, ServiceSpec, differences};
use crate::state::{Apart, State};
use crate::step::step;

/// Plans on the copy until nothing is left to place; each places up to 20,000.
const ROUNDS_MAX: u32 = 1_000;

/// What would happen to one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    New,
    /// Running replicas would be replaced.
    Rolls,
    /// Only the number of replicas would change.
    Scales,
    /// Taken over by what runs: checks, limits of restarts, endpoints and the like.
    InPlace,
    Unchanged,
    Removed,
}

/// What a deployment would do to one service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceProspect {
    pub name: ServiceName,
    pub change: Prospect,
    /// Replicas before and after.
    pub from: u32,
    pub to: u32,
    pub rtype: RType,
    /// The services that it would wait for.
    pub after: Vec<ServiceName>,
    /// What would not be placed, and why.
    pub waiting: Vec<Waiting>,
    /// What differs from what it has now, in words; nothing of what may be a password.
    pub differences: Vec<String>,
    /// What it would share by name alone.
    pub apart: Vec<Apart>,
}

/// What a deployment would do, as `dhow plan` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRun {
    pub services: Vec<ServiceProspect>,
    /// New replicas with their nodes, in the order of their ids. Of a service that rolls: its first step.
    pub placements: Vec<(ReplicaName, NodeId)>,
    /// Replicas that would end at once.
    pub stops: Vec<ReplicaName>,
}

/// Deploys `spec` onto a copy of the state and says what came of it.
pub fn dry_run(state: &State, spec: &Arc<DeploymentSpec>) -> Result<DryRun, Refused> {
    let mut copy = state.clone();
    let command = DeploymentCommand::Deploy {
        spec: spec.clone(),
        author: "plan".into(),
        wall_unix_secs: 0,
        // What would be refused is told as well.
        force: false,
    };
    apply(&mut copy, Command::Deployment(command))?;
    let mut run = DryRun::default();
    let mut cache = PlanCache::default();
    let mut report = Default::default();
    for _ in 0..ROUNDS_MAX {
        release_all(&mut copy, spec);
        let plan = plan_next(&copy, &mut cache, copy.time);
        report = plan.report;
        if plan.commands.is_empty() {
            break;
        }
        for command in plan.commands {
            note(&mut run, &copy, spec, &command);
            // What a plan proposes for an unchanged state is not refused; and if it were, nothing is lost here.
            let _ = apply(&mut copy, Command::Plan(command));
        }
    }
    run.placements.sort_by(|a, b| a.0.cmp(&b.0));
    run.services = changes(state, &copy, spec, &report);
    Ok(run)
}

fn apply(state: &mut State, command: Command) -> Result<(), Refused> {
    let entry = Entry {
        time: state.time,
        term: state.term,
        request: None,
        command,
    };
    step(state, &entry, &mut ()).map(|_| ())
}

/// Nothing becomes healthy in a copy: whoever waits is let go, to show where it would run.
fn release_all(copy: &mut State, spec: &DeploymentSpec) {
    let waiting: Vec<(ServiceId, crate::ids::Generation)> = copy
        .services
        .values()
        .filter(|service| service.key.deployment == spec.deployment && !service.released)
        .map(|service| (service.id, service.target))
        .collect();
    for (service, generation) in waiting {
        let _ = apply(
            copy,
            Command::Plan(PlanCommand::Release {
                service,
                generation,
                without: None,
            }),
        );
    }
}

fn note(run: &mut DryRun, copy: &State, spec: &DeploymentSpec, command: &PlanCommand) {
    let own = |name: &ReplicaName| name.deployment == spec.deployment;
    match command {
        PlanCommand::Place {
            service,
            generation,
            placements,
        } => {
            for placement in placements {
                let key = ReplicaKey {
                    service: *service,
                    slot: placement.slot,
                    generation: *generation,
                };
                if let Some(name) = copy.replica_name(&key).filter(own) {
                    run.placements.push((name, placement.node));
                }
            }
        }
        PlanCommand::Stop { replicas, .. } => {
            run.stops
                .extend(replicas.iter().filter_map(|key| copy.replica_name(key)));
        }
        PlanCommand::Forget { .. }
        | PlanCommand::ForgetService { .. }
        | PlanCommand::OpenGeneration { .. }
        | PlanCommand::Release { .. }
        | PlanCommand::MarkStable { .. }
        | PlanCommand::Fail { .. }
        | PlanCommand::DrainFinished { .. }
        | PlanCommand::CronFired { .. }
        | PlanCommand::Job(_)
        | PlanCommand::TrySettings { .. }
        | PlanCommand::AdoptSettings { .. }
        | PlanCommand::JudgeCanary { .. }
        | PlanCommand::Resize { .. } => {}
    }
}

fn changes(
    before: &State,
    after: &State,
    spec: &DeploymentSpec,
    report: &crate::plan::PlanReport,
) -> Vec<ServiceProspect> {
    let mut changes: BTreeMap<ServiceName, ServiceProspect> = BTreeMap::new();
    // As it would be kept: each file says which content it shows.
    let asked = after
        .deployment(&spec.deployment)
        .and_then(|known| known.current());
    let asked = asked.map_or(spec, |record| record.spec.as_ref());
    for (name, wanted) in &asked.services {
        let known = before
            .service_named(&spec.deployment, name)
            .filter(|service| !service.removing);
        let found = after.service_named(&spec.deployment, name);
        let (from, to) = (
            known.map_or(0, |service| before.desired(service)),
            found.map_or(0, |service| after.desired(service)),
        );
        let old = known.and_then(|service| service.spec());
        let waiting = found.and_then(|service| report.services.get(&service.id));
        let entry = ServiceProspect {
            name: name.clone(),
            change: change(old.map(Arc::as_ref), wanted, (from, to), before.feature_level),
            from,
            to,
            rtype: wanted.rtype,
            after: wanted
                .depends
                .iter()
                .map(|dependency| dependency.service.clone())
                .collect(),
            waiting: waiting.map(|report| report.waiting.clone()).unwrap_or_default(),
            differences: old.map(|old| differences(old, wanted)).unwrap_or_default(),
            apart: found
                .map(|service| after.volumes_apart(service))
                .unwrap_or_default(),
        };
        changes.insert(name.clone(), entry);
    }
    let gone = before
        .deployment(&spec.deployment)
        .into_iter()
        .flat_map(|known| &known.services);
    for (name, id) in gone.filter(|(name, _)| !spec.services.contains_key(*name)) {
        let Some(service) = before.service(*id) else {
            continue;
        };
        changes.insert(
            name.clone(),
            ServiceProspect {
                name: name.clone(),
                change: Prospect::Removed,
                from: before.desired(service),
                to: 0,
                rtype: service.rtype(),
                after: Vec::new(),
                waiting: Vec::new(),
                differences: Vec::new(),
                apart: Vec::new(),
            },
        );
    }
    changes.into_values().collect()
}

fn change(
    old: Option<&ServiceSpec>,
    new: &ServiceSpec,
    (from, to): (u32, u32),
    feature_level: u32,
) -> Prospect {
    match old {
        None => Prospect::New,
        Some(old) if old.rolls_into_at(new, feature_level) => Prospect::Rolls,
        Some(_) if from != to => Prospect::Scales,
        Some(old) if old != new => Prospect::InPlace,
        Some(_) => Prospect::Unchanged,
    }
}
