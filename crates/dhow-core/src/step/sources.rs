//! Sources of signed deployment files: which are followed, and what belongs to them. The sets that they bring are put in
//! force in `apply`; what people may do beside them is in `hand`.

mod apply;
mod hand;

use std::sync::Arc;

use crate::command::{Missing, Refused};
use crate::ids::DeploymentName;
use crate::state::{Deployment, Source, SourceSettings, State};

pub(super) use apply::{BroughtSet, apply_set};
pub(super) use hand::{check_hand, check_removal, check_scale, suspend};

/// The feature level from which on a source has the last word about what it has brought.
pub(crate) const SINCE_LEVEL: u32 = 6;

/// Follows a source. What was taken from a source of that name stays taken, so that other keys or another place
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
    if settings.needs_remotes() {
        super::needs_level(state, SINCE_LEVEL)?;
    }
    let source = Source {
        settings: Some(settings.clone()),
        taken: known.and_then(|known| known.taken),
        commit: known.and_then(|known| known.commit.clone()),
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
    match known.filter(|source| source.taken.is_some()).cloned() {
        None => {
            state.sources.remove(name);
        }
        Some(known) => {
            let settings = None;
            let remembered = Source {
                settings,
                ..known.as_ref().clone()
            };
            state.sources.insert(name.clone(), Arc::new(remembered));
        }
    }
    own_deployments(state, name, false);
    Ok(())
}

/// Refuses to remove a secret without which a source could not be read.
pub(super) fn check_secret(state: &State, secret: &Arc<str>) -> Result<(), Refused> {
    let names = |source: &Source| {
        let settings = source.settings.as_ref();
        settings.is_some_and(|settings| settings.secrets().any(|name| name == secret))
    };
    match state.sources.iter().find(|(_, source)| names(source)) {
        Some((source_name, _)) => Err(Refused::SecretOfSource {
            name: secret.clone(),
            source_name: source_name.clone(),
        }),
        None => Ok(()),
    }
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
            let known = Arc::make_mut(known);
            known.from_manifests = is_followed;
            known.suspended = None;
        }
    }
}
