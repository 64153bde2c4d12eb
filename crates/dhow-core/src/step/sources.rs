//! Sources of signed deployment files, and the sets that they bring.

use std::sync::Arc;

use super::deployment::{NewRevision, check_spec, deploy, remove as remove_deployment};
use crate::command::{ManifestSpec, Missing, Outcome, Refused};
use crate::ids::DeploymentName;
use crate::state::{ManifestVersion, Phase, Source, SourceSettings, State};

/// Follows a directory. What was taken from a source of that name stays taken, so that other keys or another place
/// bring no old set back.
pub(super) fn set(state: &mut State, name: &Arc<str>, settings: &SourceSettings) -> Result<(), Refused> {
    super::needs_level(state, 2)?;
    if settings.keys.is_empty() || settings.keys.len() > State::SOURCE_KEYS_MAX {
        return Err(Refused::NotNow("a source has 1 to 16 keys that may sign for it"));
    }
    if !state.sources.contains_key(name) && state.sources.len() >= State::SOURCES_MAX {
        return Err(Refused::NotNow(
            "the cluster has 64 sources, the most that it can have",
        ));
    }
    let known = state.sources.get(name);
    let source = Source {
        settings: Some(settings.clone()),
        taken: known.and_then(|known| known.taken),
    };
    state.sources.insert(name.clone(), Arc::new(source));
    Ok(())
}

/// Follows it no longer. Its deployments stay, as if they had been deployed by hand.
pub(super) fn remove(state: &mut State, name: &Arc<str>) -> Result<(), Refused> {
    super::needs_level(state, 2)?;
    let is_added = state
        .sources
        .get(name)
        .is_some_and(|source| source.settings.is_some());
    if !is_added {
        return Err(Missing::Source(name.clone()).into());
    }
    state.sources.remove(name);
    let own: Vec<DeploymentName> = state
        .deployments
        .values()
        .filter(|known| known.source.as_ref() == Some(name))
        .map(|known| known.name.clone())
        .collect();
    for name in own {
        if let Some(known) = state.deployments.get_mut(&name) {
            let known = Arc::make_mut(known);
            (known.source, known.from_manifests) = (None, false);
        }
    }
    Ok(())
}

/// Deploys what a set has and removes what an earlier one of the same source brought and it lacks, all or nothing.
pub(super) fn apply_set(
    state: &mut State,
    source: Option<&Arc<str>>,
    version: &ManifestVersion,
    specs: &[ManifestSpec],
    wall_unix_secs: i64,
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
    check_set(state, source, specs)?;
    let author: Arc<str> = match source {
        None => format!("manifests {}", version.version).into(),
        Some(name) => format!("source {name} {}", version.version).into(),
    };
    for ManifestSpec(spec) in specs {
        let new = NewRevision {
            spec,
            author: &author,
            wall_unix_secs,
            brings_back: None,
        };
        deploy(state, &new, true)?;
    }
    for name in dropped(state, source, specs) {
        remove_deployment(state, &name)?;
    }
    match source {
        None => state.manifests = Some(*version),
        Some(name) => take(state, name, version, specs),
    }
    Ok(Outcome::Done)
}

fn check_set(state: &State, source: Option<&Arc<str>>, specs: &[ManifestSpec]) -> Result<(), Refused> {
    for ManifestSpec(spec) in specs {
        check_spec(spec)?;
        let Some(known) = state.deployment(&spec.deployment) else {
            continue;
        };
        if known.phase == Phase::Removing {
            return Err(Refused::Removing(spec.deployment.clone()));
        }
        if let Some(other) = known.source.as_ref().filter(|other| Some(*other) != source) {
            return Err(Refused::BadSpec(format!(
                "deployment `{}` comes from the source `{other}`",
                spec.deployment
            )));
        }
    }
    Ok(())
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
