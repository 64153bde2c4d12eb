//! Puts a set of signed files in force: all of it or nothing.

use std::sync::Arc;

use crate::change::{Change, ChangeSink, ClusterChange, DeploymentChange};
use crate::command::{ApplyReason, ManifestSpec, Outcome, Refused};
use crate::ids::DeploymentName;
use crate::state::{Deployment, ManifestVersion, Phase, State};
use crate::step::deployment::{NewRevision, check_spec, deploy, remove as remove_deployment};
use crate::step::{callers, files, needs_level};

use super::SINCE_LEVEL;

/// Names of deployments that a refusal lists.
const NAMES_TOLD_MAX: usize = 8;

/// A set as its entry brings it.
pub(in crate::step) struct BroughtSet<'a> {
    source: Option<&'a Arc<str>>,
    version: &'a ManifestVersion,
    specs: &'a [ManifestSpec],
    commit: Option<&'a Arc<str>>,
    why: ApplyReason,
    wall_unix_secs: i64,
}

/// What a set comes to with the state as it is.
struct Work<'a> {
    /// What is deployed.
    specs: Vec<&'a ManifestSpec>,
    /// What an earlier set of the same source brought, and this one lacks.
    dropped: Vec<DeploymentName>,
}

/// Deploys what a set has and removes what an earlier one of the same source brought and it lacks, all or nothing. What
/// is suspended stays as it is.
pub(in crate::step) fn apply_set(
    state: &mut State,
    set: &BroughtSet<'_>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let BroughtSet { source, version, .. } = *set;
    if set.commit.is_some() || set.why != ApplyReason::Newer {
        needs_level(state, SINCE_LEVEL)?;
    }
    let taken = match source {
        None => state.manifests,
        Some(name) => {
            needs_level(state, 2)?;
            state.sources.get(name).and_then(|source| source.taken)
        }
    };
    check_version(set, taken.as_ref())?;
    let work = set.work(state);
    if set.why == ApplyReason::SuspensionOver && !is_over(state, source) {
        return Err(Refused::NotNow("no suspension of it is over"));
    }
    check_specs(state, set, &work)?;
    check_removals(state, set, &work)?;
    let author = set.author();
    for ManifestSpec(spec) in &work.specs {
        let new =
            NewRevision::asked(spec, &author, set.wall_unix_secs).by_force(set.why == ApplyReason::Retry);
        match deploy(state, &new, true, sink) {
            // It was taken back before: what runs stays, and the rest of the set counts.
            Err(Refused::Quarantined { revision, cause, .. }) => {
                let (name, cause) = (&spec.deployment, &cause);
                let change = DeploymentChange::HeldBack { revision, cause };
                sink.tell(state, Change::Deployment(name, change));
            }
            taken => drop(taken?),
        }
    }
    for name in &work.dropped {
        remove_deployment(state, name, sink)?;
    }
    match source {
        None => state.manifests = Some(*version),
        Some(name) => take(state, name, set),
    }
    end_suspensions(state, source, sink);
    let taken = ClusterChange::ManifestsTaken {
        source,
        version: version.version,
        deployments: work.specs.len(),
        commit: set.commit,
    };
    sink.tell(state, Change::Cluster(taken));
    Ok(Outcome::Done)
}

impl<'a> BroughtSet<'a> {
    /// Where it comes from, and at which commit; what it is; why and when it is put in force.
    pub fn new(
        (source, commit): (Option<&'a Arc<str>>, Option<&'a Arc<str>>),
        (version, specs): (&'a ManifestVersion, &'a [ManifestSpec]),
        why: ApplyReason,
        wall_unix_secs: i64,
    ) -> Self {
        Self {
            source,
            version,
            specs,
            commit,
            why,
            wall_unix_secs,
        }
    }

    fn author(&self) -> Arc<str> {
        let version = self.version.version;
        match (self.source, self.commit) {
            (None, _) => format!("manifests {version}").into(),
            (Some(name), None) => format!("source {name} {version}").into(),
            (Some(name), Some(commit)) => {
                // What git shows of one.
                let short: String = commit.chars().take(12).collect();
                format!("source {name} {version} at {short}").into()
            }
        }
    }

    fn is_same(&self, taken: Option<&ManifestVersion>) -> bool {
        taken == Some(self.version)
    }

    fn work(&self, state: &State) -> Work<'a> {
        let counts = |name: &DeploymentName| {
            let known = state.deployment(name);
            let suspended = known.and_then(|known| {
                known
                    .suspended
                    .as_ref()
                    .filter(|_| known.owner() == self.source && self.source.is_some())
            });
            match (self.why, suspended) {
                (ApplyReason::Newer | ApplyReason::Accepted | ApplyReason::Retry, None) => true,
                (ApplyReason::SuspensionOver, None) => false,
                (_, Some(suspension)) => suspension.until <= state.time,
            }
        };
        let specs = self.specs.iter();
        let specs = specs.filter(|ManifestSpec(spec)| counts(&spec.deployment));
        Work {
            specs: specs.collect(),
            dropped: dropped(state, self.source, self.specs)
                .into_iter()
                .filter(counts)
                .collect(),
        }
    }
}

/// A set counts where it is newer than the one in force; that one itself only where somebody has asked for it.
fn check_version(set: &BroughtSet<'_>, taken: Option<&ManifestVersion>) -> Result<(), Refused> {
    let found = set.version.version;
    let is_asked = match set.why {
        ApplyReason::Newer => false,
        ApplyReason::Accepted => set.is_same(taken),
        ApplyReason::SuspensionOver | ApplyReason::Retry => {
            if !set.is_same(taken) {
                return Err(Refused::NotInForce { found });
            }
            true
        }
    };
    match taken {
        Some(known) if known.version >= found && !is_asked => Err(Refused::OldManifests {
            known: known.version,
            found,
        }),
        Some(_) | None => Ok(()),
    }
}

/// An empty set removes nothing, and one that would remove more than half of what its source has brought waits for a
/// person to say yes.
fn check_removals(state: &State, set: &BroughtSet<'_>, work: &Work<'_>) -> Result<(), Refused> {
    let drops = work.dropped.len();
    if drops == 0 || state.feature_level < SINCE_LEVEL {
        return Ok(());
    }
    if set.specs.is_empty() {
        let names = told(&work.dropped);
        return Err(Refused::EmptySet { names });
    }
    let of = own(state, set.source).count();
    let is_asked = match set.why {
        ApplyReason::Newer => false,
        ApplyReason::Accepted | ApplyReason::SuspensionOver | ApplyReason::Retry => true,
    };
    if !is_asked && drops.saturating_mul(2) > of {
        return Err(Refused::RemovesMost {
            version: set.version.version,
            drops,
            of,
            names: told(&work.dropped),
        });
    }
    Ok(())
}

fn told(names: &[DeploymentName]) -> String {
    let shown = names.iter().take(NAMES_TOLD_MAX).map(ToString::to_string);
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_TOLD_MAX {
        text.push_str(", …");
    }
    text
}

fn check_specs(state: &State, set: &BroughtSet<'_>, work: &Work<'_>) -> Result<(), Refused> {
    files::check_set(state, set.specs)?;
    for (position, ManifestSpec(spec)) in work.specs.iter().enumerate() {
        check_spec(spec)?;
        callers::check_level(state, spec)?;
        files::check_level(state, spec)?;
        // What the set itself has is compared as it will be.
        let goes = |name: &DeploymentName| {
            let is_deployed = |ManifestSpec(other): &&ManifestSpec| other.deployment == *name;
            work.dropped.contains(name) || work.specs.iter().any(is_deployed)
        };
        callers::check_ports(state, spec, &goes)?;
        for ManifestSpec(earlier) in &work.specs[..position] {
            callers::check_between(state, spec, earlier)?;
        }
        let Some(known) = state.deployment(&spec.deployment) else {
            continue;
        };
        if known.phase == Phase::Removing {
            return Err(Refused::Removing(spec.deployment.clone()));
        }
        let Some(other) = known.source.as_ref().filter(|other| Some(*other) != set.source) else {
            continue;
        };
        if known.from_manifests {
            return Err(Refused::BadSpec(format!(
                "deployment `{}` comes from the source `{other}`",
                spec.deployment
            )));
        }
        check_brought_before(state, other, set.version)?;
    }
    Ok(())
}

/// What a source has brought that is followed no longer is free, but not to a set that is older than that source's: the
/// same directory under another name brings nothing back either.
fn check_brought_before(state: &State, other: &Arc<str>, version: &ManifestVersion) -> Result<(), Refused> {
    let taken = state.sources.get(other).and_then(|source| source.taken);
    match taken {
        Some(known) if version.version <= known.version && *version != known => Err(Refused::OldManifests {
            known: known.version,
            found: version.version,
        }),
        Some(_) | None => Ok(()),
    }
}

/// What this source has brought and what is not on its way out.
fn own<'a>(state: &'a State, source: Option<&'a Arc<str>>) -> impl Iterator<Item = &'a Arc<Deployment>> {
    state.deployments.values().filter(move |known| {
        known.from_manifests && known.source.as_ref() == source && known.phase != Phase::Removing
    })
}

/// Deployments that this source brought and that the set lacks.
fn dropped(state: &State, source: Option<&Arc<str>>, specs: &[ManifestSpec]) -> Vec<DeploymentName> {
    let lacks = |name: &DeploymentName| !specs.iter().any(|ManifestSpec(spec)| spec.deployment == *name);
    own(state, source)
        .map(|known| known.name.clone())
        .filter(|name| lacks(name))
        .collect()
}

/// Notes the set as taken, and its deployments as the source's own, those that were the same already included.
fn take(state: &mut State, name: &Arc<str>, set: &BroughtSet<'_>) {
    for ManifestSpec(spec) in set.specs {
        if let Some(known) = state.deployments.get_mut(&spec.deployment) {
            let known = Arc::make_mut(known);
            (known.source, known.from_manifests) = (Some(name.clone()), true);
        }
    }
    let mut source = state
        .sources
        .get(name)
        .map(|source| source.as_ref().clone())
        .unwrap_or_default();
    source.taken = Some(*set.version);
    if state.feature_level >= SINCE_LEVEL {
        source.commit = set.commit.cloned();
    }
    state.sources.insert(name.clone(), Arc::new(source));
}

fn is_over(state: &State, source: Option<&Arc<str>>) -> bool {
    let mut own = own(state, source);
    own.any(|known| known.suspended.is_some() && !known.is_suspended(state.time))
}

/// The source has been heard again: suspensions whose time is over are gone.
fn end_suspensions(state: &mut State, source: Option<&Arc<str>>, sink: &mut dyn ChangeSink) {
    let is_over = |known: &&Arc<Deployment>| known.suspended.is_some() && !known.is_suspended(state.time);
    let over: Vec<DeploymentName> = own(state, source)
        .filter(is_over)
        .map(|known| known.name.clone())
        .collect();
    for name in over {
        if let Some(known) = state.deployments.get_mut(&name) {
            Arc::make_mut(known).suspended = None;
        }
        sink.tell(state, Change::Deployment(&name, DeploymentChange::SuspensionOver));
    }
}
