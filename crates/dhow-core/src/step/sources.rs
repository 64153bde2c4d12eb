//! Sources of signed deployment files, and the sets that they bring.

use std::sync::Arc;

use super::deployment::{NewRevision, check_spec, deploy, remove as remove_deployment};
use super::{callers, files};
use crate::change::{Change, ChangeSink, ClusterChange, DeploymentChange};
use crate::command::{ManifestSpec, Missing, Outcome, Refused};
use crate::ids::DeploymentName;
use crate::state::{Deployment, ManifestVersion, Phase, Source, SourceSettings, State};

/// Follows a directory. What was taken from a source of that name stays taken, so that other keys or another place
/// bring no old set back; what it had brought before it was removed, and nobody has changed since, is its own again.
pub(super) fn set(state: &mut State, name: &Arc<str>, settings: &SourceSettings) -> Result<(), Refused> {
    super::needs_level(state, 2)?;
    if settings.keys.is_empty() || settings.keys.len() > State::SOURCE_KEYS_MAX {
        return Err(Refused::NotNow("a source has 1 to 16 keys that may sign for it"));
    }
    let known = state.sources.get(name);
    let is_followed = known.is_some_and(|known| known.settings.is_some());
    let followed = state.sources.values().filter(|source| source.settings.is_some());
    if !is_followed && followed.count() >= State::SOURCES_MAX {
        return Err(Refused::NotNow(
            "the cluster has 64 sources, the most that it can have",
        ));
    }
    if known.is_none() && state.sources.len() >= State::SOURCES_REMEMBERED_MAX {
        return Err(Refused::NotNow(
            "the cluster remembers the versions of 1,024 sources, the most that it can: take a name that it has had",
        ));
    }
    let source = Source {
        settings: Some(settings.clone()),
        taken: known.and_then(|known| known.taken),
    };
    state.sources.insert(name.clone(), Arc::new(source));
    own_deployments(state, name, true);
    Ok(())
}

/// Follows it no longer. Its deployments stay, as if they had been deployed by hand. The version that was taken last is
/// remembered, so that no older set of it ever comes back.
pub(super) fn remove(state: &mut State, name: &Arc<str>) -> Result<(), Refused> {
    super::needs_level(state, 2)?;
    let known = state.sources.get(name);
    let is_added = known.is_some_and(|source| source.settings.is_some());
    // One that the servers' configuration does not have any more is let go of as well.
    if !is_added && !owned(state, name).any(|known| known.from_manifests) {
        return Err(Missing::Source(name.clone()).into());
    }
    match known.and_then(|source| source.taken) {
        None => {
            state.sources.remove(name);
        }
        taken => {
            let settings = None;
            state
                .sources
                .insert(name.clone(), Arc::new(Source { settings, taken }));
        }
    }
    own_deployments(state, name, false);
    Ok(())
}

/// What a source has brought and nobody has changed since, whether it is followed or not.
fn owned<'a>(state: &'a State, name: &'a Arc<str>) -> impl Iterator<Item = &'a Arc<Deployment>> {
    let all = state.deployments.values();
    all.filter(move |known| known.source.as_ref() == Some(name))
}

fn own_deployments(state: &mut State, name: &Arc<str>, is_followed: bool) {
    let own: Vec<DeploymentName> = owned(state, name).map(|known| known.name.clone()).collect();
    for name in own {
        if let Some(known) = state.deployments.get_mut(&name)
            && known.from_manifests != is_followed
        {
            Arc::make_mut(known).from_manifests = is_followed;
        }
    }
}

/// Deploys what a set has and removes what an earlier one of the same source brought and it lacks, all or nothing.
pub(super) fn apply_set(
    state: &mut State,
    source: Option<&Arc<str>>,
    version: &ManifestVersion,
    specs: &[ManifestSpec],
    wall_unix_secs: i64,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let taken = match source {
        None => state.manifests,
        Some(name) => {
            super::needs_level(state, 2)?;
            state.sources.get(name).and_then(|source| source.taken)
        }
    };
    if let Some(known) = taken
        && known.version >= version.version
    {
        return Err(Refused::OldManifests {
            known: known.version,
            found: version.version,
        });
    }
    check_set(state, source, version, specs)?;
    let author: Arc<str> = match source {
        None => format!("manifests {}", version.version).into(),
        Some(name) => format!("source {name} {}", version.version).into(),
    };
    for ManifestSpec(spec) in specs {
        let new = NewRevision::asked(spec, &author, wall_unix_secs);
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
    for name in dropped(state, source, specs) {
        remove_deployment(state, &name, sink)?;
    }
    match source {
        None => state.manifests = Some(*version),
        Some(name) => take(state, name, version, specs),
    }
    let taken = ClusterChange::ManifestsTaken {
        source,
        version: version.version,
        deployments: specs.len(),
    };
    sink.tell(state, Change::Cluster(taken));
    Ok(Outcome::Done)
}

fn check_set(
    state: &State,
    source: Option<&Arc<str>>,
    version: &ManifestVersion,
    specs: &[ManifestSpec],
) -> Result<(), Refused> {
    let dropped = dropped(state, source, specs);
    files::check_set(state, specs)?;
    for (position, ManifestSpec(spec)) in specs.iter().enumerate() {
        check_spec(spec)?;
        callers::check_level(state, spec)?;
        files::check_level(state, spec)?;
        // What the set itself has is compared as it will be.
        let goes = |name: &DeploymentName| {
            dropped.contains(name) || specs.iter().any(|ManifestSpec(other)| other.deployment == *name)
        };
        callers::check_ports(state, spec, &goes)?;
        for ManifestSpec(earlier) in &specs[..position] {
            callers::check_between(state, spec, earlier)?;
        }
        let Some(known) = state.deployment(&spec.deployment) else {
            continue;
        };
        if known.phase == Phase::Removing {
            return Err(Refused::Removing(spec.deployment.clone()));
        }
        let Some(other) = known.source.as_ref().filter(|other| Some(*other) != source) else {
            continue;
        };
        if known.from_manifests {
            return Err(Refused::BadSpec(format!(
                "deployment `{}` comes from the source `{other}`",
                spec.deployment
            )));
        }
        check_brought_before(state, other, version)?;
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

/// Deployments that this source brought and that the set lacks.
fn dropped(state: &State, source: Option<&Arc<str>>, specs: &[ManifestSpec]) -> Vec<DeploymentName> {
    let own = state.deployments.values().filter(|known| {
        known.from_manifests && known.source.as_ref() == source && known.phase != Phase::Removing
    });
    let lacks = |name: &DeploymentName| !specs.iter().any(|ManifestSpec(spec)| spec.deployment == *name);
    own.map(|known| known.name.clone())
        .filter(|name| lacks(name))
        .collect()
}

/// Notes the set as taken, and its deployments as the source's own, those that were the same already included.
fn take(state: &mut State, name: &Arc<str>, version: &ManifestVersion, specs: &[ManifestSpec]) {
    for ManifestSpec(spec) in specs {
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
    source.taken = Some(*version);
    state.sources.insert(name.clone(), Arc::new(source));
}
