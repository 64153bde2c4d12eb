//! Two states that were one: what the one lacks that people wrote into the other. Used where the halves of a divided
//! static cluster meet again, so that nothing of the losing half is dropped. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::acme;
use crate::spec::{DeploymentSpec, ReplicaGroup, ScaleSpec, ServiceSpec};
use crate::state::{Deployment, RevisionOutcome, RevisionRecord, Service, State};
use crate::time::ClusterTime;

/// What the losing half has and the winning one lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Revisions that were asked for, in their order.
    pub revisions: Vec<LostRevision>,
    /// Other changes, in words.
    pub others: Vec<String>,
}

/// A revision that a user deployed on one half of a divided cluster and that the other half lacks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostRevision {
    pub spec: Arc<DeploymentSpec>,
    pub author: Arc<str>,
    pub wall_unix_secs: i64,
}

impl Lost {
    pub fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.others.is_empty()
    }
}

/// Until when both were one. Changes of the very moment may belong to either.
pub fn forked(losing: &State, winning: &State) -> ClusterTime {
    let Some(epoch) = losing.branch.last_common(&winning.branch) else {
        return ClusterTime::default();
    };
    let left = |state: &State| state.branch.left(epoch).unwrap_or(state.time);
    left(losing).min(left(winning))
}

/// What people wrote into `losing` after the fork and `winning` does not have.
pub fn lost(losing: &State, winning: &State) -> Lost {
    let fork = forked(losing, winning);
    let mut lost = Lost::default();
    for (name, deployment) in &losing.deployments {
        let known = winning.deployment(name);
        let mut records: Vec<_> = deployment.history.values().collect();
        records.retain(|record| is_lost(record, known, fork));
        lost.revisions
            .extend(records.into_iter().map(|record| LostRevision {
                spec: deployment.written(&record.spec),
                author: Arc::clone(&record.author),
                wall_unix_secs: record.wall_unix_secs,
            }));
        if let Some(known) = known {
            lost.revisions
                .extend(scaled(losing, deployment, winning, known, fork));
        }
    }
    for (name, deployment) in &winning.deployments {
        let was_common = deployment.history.values().any(|record| record.asked <= fork);
        if was_common && losing.deployment(name).is_none() {
            lost.others.push(format!("deployment {name} was removed"));
        }
    }
    // What the cluster orders itself is ordered again.
    let of_people = losing.secrets.iter().filter(|(name, _)| !acme::is_own(name));
    for (name, secret) in of_people {
        let known = winning.secrets.get(name);
        if known.is_none_or(|known| known.sealed != secret.sealed) {
            lost.others.push(format!("secret {name} differs"));
        }
    }
    for own in losing.services.values() {
        let theirs = winning.service_named(&own.key.deployment, &own.key.service);
        if theirs.is_some_and(|theirs| theirs.stopped.is_some() != own.stopped.is_some()) {
            lost.others
                .push(format!("whether {} is stopped differs", own.key));
        }
    }
    for (id, node) in &losing.nodes {
        if let Some(known) = winning.node(*id)
            && known.drain != node.drain
        {
            lost.others.push(format!("whether node {id} is drained differs"));
        }
    }
    lost
}

fn is_lost(record: &RevisionRecord, known: Option<&Arc<Deployment>>, fork: ClusterTime) -> bool {
    let is_here = |known: &Arc<Deployment>| {
        known.history.values().any(|other| {
            let same = other.spec.services == record.spec.services;
            other.asked == record.asked && other.author == record.author && same
        })
    };
    let by_people = match record.outcome {
        RevisionOutcome::Conflicted => false,
        RevisionOutcome::Rolling
        | RevisionOutcome::Good
        | RevisionOutcome::Superseded
        | RevisionOutcome::Reverted { .. }
        | RevisionOutcome::Failed { .. } => true,
    };
    let is_later = match known {
        Some(known) => record.asked >= fork && !is_here(known),
        None => record.asked > fork,
    };
    by_people && is_later
}

/// Who scaled stands in the events alone.
const SCALED_BY: &str = "unknown";

/// A deployment that was only scaled after the fork, as a revision with the counts that it had.
fn scaled(
    losing: &State,
    deployment: &Deployment,
    winning: &State,
    known: &Arc<Deployment>,
    fork: ClusterTime,
) -> Option<LostRevision> {
    let record = deployment.current()?;
    if is_lost(record, Some(known), fork) {
        return None;
    }
    let mut spec = deployment.written(&record.spec).as_ref().clone();
    let mut scaled_at: Option<ClusterTime> = None;
    for (name, wanted) in &mut spec.services {
        let own = losing.service_named(&deployment.name, name)?;
        let theirs = winning.service_named(&known.name, name);
        if own.asked > fork && theirs.is_none_or(|theirs| theirs.counts != own.counts) {
            *wanted = Arc::new(with_counts(wanted, own));
            scaled_at = scaled_at.max(Some(own.asked));
        }
    }
    let wall_unix_ms = losing.clock_marks.wall_unix_ms(scaled_at?);
    Some(LostRevision {
        spec: Arc::new(spec),
        author: Arc::from(SCALED_BY),
        wall_unix_secs: wall_unix_ms.map_or(record.wall_unix_secs, |wall_ms| wall_ms.div_euclid(1_000)),
    })
}

fn with_counts(spec: &ServiceSpec, service: &Service) -> ServiceSpec {
    let count = |group: &ReplicaGroup| {
        let role = service.role_id(&group.role);
        role.map_or(group.count, |role| service.count(role))
    };
    let mut spec = spec.clone();
    match spec.replica_groups.is_empty() {
        true => {
            spec.scale = ScaleSpec::Fixed {
                replicas: service.count_total(),
            };
        }
        false => {
            for group in &mut spec.replica_groups {
                group.count = count(group);
            }
        }
    }
    spec
}

#[cfg(test)]
mod tests;
