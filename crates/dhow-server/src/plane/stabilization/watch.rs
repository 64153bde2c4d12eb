//! Follows one revision of a deployment until it is decided: what the progress stream sends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::{DeploymentName, DeploymentRevision, NodeId, ReplicaKey, ReplicaName};
use dhow_core::replica::ReplicaState;
use dhow_core::state::{Deployment, Replica, Service, State};
use dhow_wire::api::{Progress, ProgressOutcome, ProgressResult};
use dhow_wire::stabilization::log_block;
use dhow_wire::{ServiceHealthSummary, StabilizationOutcome};
use tokio::sync::watch;

use super::verdict::{Verdict, judge};
use super::{LOOK_AGAIN_MS, as_scaled, evaluation, last_words, wait_for_stabilization};
use crate::plane::services::{ServiceManager, ServiceSum, served};

/// Replicas in trouble that are remembered, so that their last words are found after they are gone.
const SUSPECTS_MAX: usize = 64;

/// One event of a progress stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgressEvent {
    Progress(Progress),
    /// The last one.
    Result(ProgressResult),
}

/// The stream of progress of one revision of a deployment: the API asks it for the next event until the revision is
/// decided.
pub struct ProgressWatch {
    manager: ServiceManager,
    states: watch::Receiver<Arc<State>>,
    deployment: DeploymentName,
    revision: DeploymentRevision,
    deadline_ms: u64,
    shown: Option<Progress>,
    suspects: BTreeMap<ReplicaName, NodeId>,
    /// The last summaries, for when the deployment is gone.
    services: Vec<ServiceHealthSummary>,
    /// A scale of a deployment whose rollout failed and is paused: only its counts are waited for, since what the
    /// rollout waits for are people.
    counts_only: bool,
    is_over: bool,
}

impl ProgressWatch {
    /// Watches a revision, the current one where none is named.
    pub fn new(
        manager: &ServiceManager,
        deployment: &Deployment,
        revision: Option<DeploymentRevision>,
        timeout: Duration,
    ) -> Self {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Self {
            manager: manager.clone(),
            states: manager.view().states(),
            deployment: deployment.name.clone(),
            revision: revision.unwrap_or(deployment.revision),
            deadline_ms: manager.clock().monotonic_ms().saturating_add(timeout_ms),
            shown: None,
            suspects: BTreeMap::new(),
            services: Vec::new(),
            counts_only: revision.is_none() && is_paused(&manager.state(), deployment),
            is_over: false,
        }
    }

    /// The next news; none after the result.
    pub async fn next(&mut self) -> Option<ProgressEvent> {
        while !self.is_over {
            let state = self.states.borrow_and_update().clone();
            let known = state.deployment(&self.deployment).cloned();
            if let Some(known) = &known {
                let spec = as_scaled(&state, known);
                self.services = evaluation(&state, &spec).services().to_vec();
                self.remember_suspects(&state, known);
                let progress = self.manager.progress(&state, known).await;
                if self.shown.as_ref() != Some(&progress) {
                    self.shown = Some(progress.clone());
                    return Some(ProgressEvent::Progress(progress));
                }
            }
            if let Some(result) = self.decide(&state, known.as_deref()).await {
                self.is_over = true;
                return Some(ProgressEvent::Result(result));
            }
            self.wait().await;
        }
        None
    }

    /// The result, where there is one by now.
    async fn decide(&self, state: &State, known: Option<&Deployment>) -> Option<ProgressResult> {
        let (name, revision) = (&self.deployment, self.revision);
        let verdict = judge(state, name, revision);
        if let (true, Some(known), Verdict::Failed { .. } | Verdict::UnderWay) =
            (self.counts_only, known, &verdict)
        {
            return self.decide_counts(state, known).await;
        }
        let (outcome, message) = match verdict {
            Verdict::Superseded { by } => (
                ProgressOutcome::Superseded,
                format!("revision {by} of `{name}` has taken the place of revision {revision}"),
            ),
            Verdict::Removed => (ProgressOutcome::Removed, format!("`{name}` has been removed")),
            Verdict::Failed { cause } => {
                let cause = cause
                    .or_else(|| self.trouble())
                    .unwrap_or_else(|| "it was given up".into());
                let header = format!("revision {revision} of `{name}` failed: {cause}");
                (ProgressOutcome::Failed, self.with_last_words(state, header).await)
            }
            Verdict::Reverted { cause } => {
                let header = format!("revision {revision} of `{name}` failed and was reverted: {cause}");
                (ProgressOutcome::Failed, self.with_last_words(state, header).await)
            }
            Verdict::Settled => return self.decide_settled(state, known?).await,
            Verdict::UnderWay => return self.decide_late(state, known?).await,
        };
        Some(ProgressResult {
            outcome,
            message,
            services: self.services.clone(),
            served: known.map(|known| served(state, known)).unwrap_or_default(),
        })
    }

    /// The planner is done: ready once everything runs and is healthy.
    async fn decide_settled(&self, state: &State, known: &Deployment) -> Option<ProgressResult> {
        let spec = as_scaled(state, known);
        if !evaluation(state, &spec).is_ready() {
            return self.decide_late(state, known).await;
        }
        let (name, revision) = (&self.deployment, self.revision);
        let result = wait_for_stabilization(&self.manager, &spec, Duration::ZERO).await;
        match result.outcome {
            StabilizationOutcome::Ready => Some(ProgressResult {
                outcome: ProgressOutcome::Ready,
                message: format!("`{name}` is stable at revision {revision}"),
                services: result.services,
                served: served(state, known),
            }),
            // Something has ended between the two looks.
            StabilizationOutcome::TimedOut { .. } => None,
        }
    }

    /// Ready once every slot is served, by whatever revision.
    async fn decide_counts(&self, state: &State, known: &Deployment) -> Option<ProgressResult> {
        let mut services = known.services.values().filter_map(|id| state.service(*id));
        let all = services.all(|service| {
            let sum = ServiceSum::of(state, service);
            sum.serving == sum.desired
        });
        if !all {
            return self.decide_late(state, known).await;
        }
        Some(ProgressResult {
            outcome: ProgressOutcome::Ready,
            message: format!(
                "`{}` has the replicas that were asked for; its rollout to revision {} failed and stays paused",
                self.deployment, self.revision
            ),
            services: self.manager.summaries(state, known),
            served: served(state, known),
        })
    }

    async fn decide_late(&self, state: &State, known: &Deployment) -> Option<ProgressResult> {
        if self.manager.clock().monotonic_ms() < self.deadline_ms && self.states.has_changed().is_ok() {
            return None;
        }
        let spec = as_scaled(state, known);
        let result = wait_for_stabilization(&self.manager, &spec, Duration::ZERO).await;
        let mut message = match result.outcome {
            StabilizationOutcome::TimedOut { message } => message,
            // All of it runs, and the planner has not said so yet.
            StabilizationOutcome::Ready => "Stabilization timed out".to_owned(),
        };
        // One that could not even start has no log: its own trouble is the cause.
        let beside = result.services.iter().filter_map(|seen| self.outdated(seen));
        for words in self.troubles(&result.services).into_iter().chain(beside) {
            message.push_str("\n  ");
            message.push_str(&words);
        }
        Some(ProgressResult {
            outcome: ProgressOutcome::TimedOut,
            message,
            services: result.services,
            served: served(state, known),
        })
    }

    async fn wait(&mut self) {
        let clock = self.manager.clock();
        let soon_ms = clock.monotonic_ms().saturating_add(LOOK_AGAIN_MS);
        let look_at_ms = soon_ms.min(self.deadline_ms);
        tokio::select! {
            // An end of the runtime is seen by whoever decides.
            _ = self.states.changed() => {}
            () = clock.sleep_until_monotonic(look_at_ms) => {}
        }
    }

    /// What is wrong with replicas of the services that hold the deployment up, as far as it is known.
    fn troubles(&self, services: &[ServiceHealthSummary]) -> Vec<String> {
        let shown = self.shown.iter().flat_map(|progress| &progress.services);
        let fails = |name: &str| {
            services
                .iter()
                .any(|service| service.name == name && service.is_failing())
        };
        shown
            .filter(|service| fails(&service.name))
            .filter_map(|service| Some(named(&service.name, service.message.as_deref()?)))
            .collect()
    }

    /// That replicas of an earlier revision run on, which `dhow status` counts and the verdict does not.
    fn outdated(&self, seen: &ServiceHealthSummary) -> Option<String> {
        let mut shown = self.shown.iter().flat_map(|progress| &progress.services);
        let shown = shown.find(|service| service.name == seen.name)?;
        let count = Some(shown.outdated).filter(|outdated| seen.is_failing() && *outdated > 0)?;
        Some(match count {
            1 => format!("{}: 1 replica of an earlier revision is still there", seen.name),
            _ => format!(
                "{}: {count} replicas of an earlier revision are still there",
                seen.name
            ),
        })
    }

    /// The words of a service in trouble, where the state keeps no cause.
    fn trouble(&self) -> Option<String> {
        let services = self.shown.as_ref()?.services.iter();
        let mut told = services.filter_map(|service| service.message.clone());
        told.next()
    }

    fn remember_suspects(&mut self, state: &State, known: &Deployment) {
        if known.revision != self.revision {
            return;
        }
        let services = known.services.values().filter_map(|id| state.service(*id));
        for service in services {
            for (key, replica) in state.replicas_of(service.id) {
                if is_suspect(service, key, replica)
                    && self.suspects.len() < SUSPECTS_MAX
                    && let Some(name) = state.replica_name(key)
                {
                    self.suspects.insert(name, replica.node);
                }
            }
        }
    }

    /// The header, and below it the last lines of the replica that it names, or of those that were in trouble.
    async fn with_last_words(&self, state: &State, header: String) -> String {
        let mut suspects: Vec<(ReplicaName, NodeId)> = self.suspects.clone().into_iter().collect();
        if suspects.is_empty() {
            suspects = self.ended(state);
        }
        let is_named = |(name, _): &&(ReplicaName, NodeId)| header.contains(&format!("`{}`", name.id()));
        if let Some(named) = suspects.iter().rev().find(is_named) {
            suspects = vec![named.clone()];
        }
        let logs = last_words::of_replicas(self.manager.door().as_ref(), suspects).await;
        format!("{header}{}", log_block(logs))
    }

    /// Replicas that ended badly, the newest first: for whoever asks after it is all over.
    fn ended(&self, state: &State) -> Vec<(ReplicaName, NodeId)> {
        let known = state.deployment(&self.deployment);
        let ids = known.into_iter().flat_map(|known| known.services.values());
        let services = ids.filter_map(|id| state.service(*id));
        let ended = services.flat_map(|service| {
            service.ended.iter().rev().filter_map(|ended| {
                let role = service.role(ended.slot.role)?.clone();
                let bad = !ended.exit.is_some_and(|exit| exit.is_success());
                let name = ReplicaName {
                    deployment: service.key.deployment.clone(),
                    service: service.key.service.clone(),
                    role,
                    index: ended.slot.index,
                    generation: ended.generation,
                };
                bad.then_some((name, ended.node))
            })
        });
        ended.collect()
    }
}

/// The words of a service under its name, which those of one of its replicas begin with.
fn named(service: &str, message: &str) -> String {
    match message.strip_prefix(service) {
        Some(rest) if rest.starts_with('-') => message.to_owned(),
        Some(_) | None => format!("{service}: {message}"),
    }
}

fn is_paused(state: &State, deployment: &Deployment) -> bool {
    let mut services = deployment.services.values().filter_map(|id| state.service(*id));
    services.any(|service| service.held)
}

fn is_suspect(service: &Service, key: &ReplicaKey, replica: &Replica) -> bool {
    let machine = &replica.machine;
    let failing = match machine.state {
        ReplicaState::Failed | ReplicaState::Backoff => true,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Stopping
        | ReplicaState::Exited
        | ReplicaState::Lost => machine.failures > 0,
    };
    failing && service.is_current(key.generation)
}
