//! Configs and secrets that replicas see as files: which content each mount shows, what of it is kept, and who uses it.
//!
//! A deployment keeps the contents that its kept revisions and its live generations name, each once. A secret keeps its
//! earlier values for as long as something may go back to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::deployment::{self, NewRevision};
use super::scaled::Scaled;
use crate::acme;
use crate::change::ChangeSink;
use crate::command::{ManifestSpec, Refused};
use crate::ids::{DeploymentName, DeploymentRevision};
use crate::spec::check::limits::CONFIG_BYTES_MAX;
use crate::spec::{ByteSize, ConfigSpec, ContentHash, DeploymentSpec, FileMount, ServiceSpec};
use crate::state::{Deployment, EarlierSecret, GenerationInfo, Phase, Secret, State};

/// From this level on replicas see configs and secrets as files.
pub(crate) const SINCE_LEVEL: u32 = 4;

/// Contents by what they are.
pub(super) type Contents = OrdMap<ContentHash, Arc<[u8]>>;

/// A spec as it is kept: each mount says which content it shows, and the contents stand beside it.
pub(super) struct Resolved {
    pub spec: Arc<DeploymentSpec>,
    pub contents: Contents,
}

/// A spec with files is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.has_files() {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

/// Takes the contents out of a spec, and has each mount say what it shows: the config's content, the secret's newest
/// value.
pub(super) fn resolve(
    state: &State,
    known: Option<&Deployment>,
    spec: &Arc<DeploymentSpec>,
) -> Result<Resolved, Refused> {
    let mut contents = Contents::new();
    if !spec.has_files() {
        return Ok(Resolved {
            spec: spec.clone(),
            contents,
        });
    }
    let mut kept = spec.as_ref().clone();
    let (mut total, mut fresh) = (0_u64, 0_u64);
    for (name, config) in &mut kept.configs {
        let (hash, size_bytes) = match config.bytes() {
            Some(bytes) => {
                let (hash, size) = (ContentHash::of(&bytes), bytes.len() as u64);
                if known.is_none_or(|known| !known.contents.contains_key(&hash)) {
                    fresh = fresh.saturating_add(size);
                }
                contents.insert(hash, bytes.into());
                (hash, size)
            }
            None => known_content(known, name, config)?,
        };
        total = total.saturating_add(size_bytes);
        *config = ConfigSpec::Kept { hash, size_bytes };
    }
    if total > CONFIG_BYTES_MAX {
        return Err(Refused::BadSpec(format!(
            "its configs have {}, the most is {}",
            ByteSize(total),
            ByteSize(CONFIG_BYTES_MAX)
        )));
    }
    check_room(state, fresh)?;
    for service in kept.services.values_mut().filter(|service| service.has_files()) {
        let service = Arc::make_mut(service);
        for mount in &mut service.configs {
            mount.content = kept.configs.get(&mount.source).and_then(ConfigSpec::hash);
            if mount.content.is_none() {
                return Err(Refused::BadSpec(format!("it has no config `{}`", mount.source)));
            }
        }
        for mount in &mut service.secrets {
            mount.version = newest(state, mount);
        }
    }
    Ok(Resolved {
        spec: Arc::new(kept),
        contents,
    })
}

/// The specs of a set together: none of them is refused for its files once the first is deployed.
pub(super) fn check_set(state: &State, specs: &[ManifestSpec]) -> Result<(), Refused> {
    let mut fresh = 0_u64;
    for ManifestSpec(spec) in specs {
        let known = state.deployment(&spec.deployment).map(Arc::as_ref);
        let resolved = resolve(state, known, spec)?;
        let new = resolved
            .contents
            .iter()
            .filter(|(hash, _)| known.is_none_or(|known| !known.contents.contains_key(*hash)));
        fresh = new.fold(fresh, |sum, (_, content)| {
            sum.saturating_add(content.len() as u64)
        });
    }
    check_room(state, fresh)
}

fn known_content(
    known: Option<&Deployment>,
    name: &str,
    config: &ConfigSpec,
) -> Result<(ContentHash, u64), Refused> {
    let hash = config.hash();
    let content = hash.and_then(|hash| known?.contents.get(&hash).map(|content| (hash, content)));
    match content {
        Some((hash, content)) => Ok((hash, content.len() as u64)),
        None => Err(Refused::BadSpec(format!(
            "the content of config `{name}` is not here"
        ))),
    }
}

fn newest(state: &State, mount: &FileMount) -> Option<u64> {
    let secret = state.secrets.get(mount.source.as_str());
    secret.map(|secret| secret.version)
}

/// Every server holds all configs in memory, and sends them with its snapshots.
fn check_room(state: &State, fresh: u64) -> Result<(), Refused> {
    if fresh == 0 {
        return Ok(());
    }
    let held = state
        .deployments
        .values()
        .map(|deployment| held_bytes(&deployment.contents));
    let held = held.fold(0_u64, u64::saturating_add);
    match held.saturating_add(fresh) > State::CONFIG_BYTES_MAX {
        true => Err(Refused::TooManyConfigs {
            max: ByteSize(State::CONFIG_BYTES_MAX),
        }),
        false => Ok(()),
    }
}

fn held_bytes(contents: &Contents) -> u64 {
    contents.values().map(|content| content.len() as u64).sum()
}

/// The spec of a revision that is put back by itself: its secrets have the values that they had then, where these are
/// still kept.
pub(super) fn put_back(state: &State, spec: &Arc<DeploymentSpec>) -> Arc<DeploymentSpec> {
    let is_gone = |mount: &FileMount| {
        let kept = state.secrets.get(mount.source.as_str());
        mount
            .version
            .is_none_or(|version| kept.is_none_or(|secret| secret.sealed_at(version).is_none()))
    };
    let mut spec = spec.clone();
    if !spec
        .services
        .values()
        .any(|service| service.secrets.iter().any(is_gone))
    {
        return spec;
    }
    for service in Arc::make_mut(&mut spec).services.values_mut() {
        if service.secrets.iter().any(is_gone) {
            for mount in Arc::make_mut(service)
                .secrets
                .iter_mut()
                .filter(|mount| is_gone(mount))
            {
                mount.version = newest(state, mount);
            }
        }
    }
    spec
}

/// Forgets contents that neither a kept revision nor a live generation names. Where what is left is still too much, the
/// oldest revisions go before their time, never the current and the last good one.
pub(super) fn sweep(state: &mut State, name: &DeploymentName) {
    let Some(deployment) = state.deployments.get(name) else {
        return;
    };
    if deployment.contents.is_empty() {
        return;
    }
    let mut swept = deployment.as_ref().clone();
    loop {
        let named = named_contents(state, &swept);
        crate::maps::retain(&mut swept.contents, |hash, _| named.contains(hash));
        if held_bytes(&swept.contents) <= State::CONFIG_BYTES_OF_ONE_MAX
            || !deployment::forget_oldest(&mut swept)
        {
            break;
        }
    }
    if swept.contents.len() != deployment.contents.len() || swept.history.len() != deployment.history.len() {
        state.deployments.insert(name.clone(), Arc::new(swept));
    }
}

/// The contents that something of a deployment may still show.
pub(crate) fn named_contents(state: &State, deployment: &Deployment) -> BTreeSet<ContentHash> {
    let records = deployment.history.values();
    let recorded = records.flat_map(|record| record.spec.configs.values().filter_map(ConfigSpec::hash));
    let mut named: BTreeSet<ContentHash> = recorded.collect();
    let services = deployment.services.values().filter_map(|id| state.service(*id));
    for info in services.flat_map(|service| service.generations.values()) {
        let mounts = specs(info).flat_map(|spec| &spec.configs);
        named.extend(mounts.filter_map(|mount| mount.content));
    }
    named
}

/// What a generation's replicas go by, and what they are to go by.
fn specs(info: &GenerationInfo) -> impl Iterator<Item = &Arc<ServiceSpec>> {
    let next = info.next.as_ref().map(|next| &next.spec);
    std::iter::once(&info.spec).chain(next)
}

/// A new value of a secret. Deployments whose services see it as a file get a revision with it, which is judged and put
/// back as any other.
pub(super) fn set_secret(state: &mut State, name: &Arc<str>, sealed: &Arc<[u8]>, sink: &mut dyn ChangeSink) {
    let known = state.secrets.get(name).cloned();
    let keeps = state.feature_level >= SINCE_LEVEL;
    let mut secret = Secret {
        sealed: sealed.clone(),
        version: known.as_ref().map_or(0, |known| known.version).saturating_add(1),
        earlier: Default::default(),
    };
    if let Some(known) = known.filter(|_| keeps) {
        secret.earlier = known.earlier.clone();
        secret.earlier.push_back(EarlierSecret {
            version: known.version,
            sealed: known.sealed.clone(),
        });
    }
    state.secrets.insert(name.clone(), Arc::new(secret));
    if !keeps {
        return;
    }
    let users: Vec<DeploymentName> = state
        .deployments
        .values()
        .filter(|deployment| deployment.phase != Phase::Removing && mounts_secret(deployment, name))
        .map(|deployment| deployment.name.clone())
        .collect();
    for user in users {
        renew(state, &user, name, sink);
    }
    forget_earlier(state, name);
}

fn mounts_secret(deployment: &Deployment, name: &str) -> bool {
    deployment.current().is_some_and(|record| {
        let mut services = record.spec.services.values();
        services.any(|service| service.secrets.iter().any(|mount| mount.source == name))
    })
}

/// Makes a revision of what a deployment asks for now, with the newest values of its secrets.
fn renew(state: &mut State, name: &DeploymentName, secret: &str, sink: &mut dyn ChangeSink) {
    let Some(deployment) = state.deployment(name).cloned() else {
        return;
    };
    let Some(record) = deployment.current().cloned() else {
        return;
    };
    let (manifests, source) = (deployment.from_manifests, deployment.source.clone());
    let wall_unix_ms = state.clock_marks.wall_unix_ms(state.time);
    let recorded = super::scaled::as_written(&record.spec);
    let new = NewRevision {
        spec: &recorded,
        author: &format!("secret {secret}").into(),
        wall_unix_secs: wall_unix_ms.map_or(record.wall_unix_secs, |ms| ms.div_euclid(1_000)),
        brings_back: None,
        scaled: kept_counts(state, &deployment, &record.spec),
        // With another value it is something else.
        force: true,
    };
    // Its contents are kept and its ports its own: nothing of it is refused that was taken before.
    let _ = deployment::deploy(state, &new, manifests, sink);
    if let Some(deployment) = state.deployments.get_mut(name)
        && deployment.source != source
    {
        Arc::make_mut(deployment).source = source;
    }
}

fn kept_counts(state: &State, deployment: &Deployment, spec: &DeploymentSpec) -> Scaled {
    super::scaled::kept(state, deployment, spec)
}

/// Destroys earlier values of a secret that nothing may go back to.
fn forget_earlier(state: &mut State, name: &str) {
    let Some(secret) = state
        .secrets
        .get(name)
        .filter(|secret| !secret.earlier.is_empty())
    else {
        return;
    };
    let of_revision = |deployment: &Deployment, revision: DeploymentRevision| {
        let record = deployment.history.get(&revision);
        let services = record
            .into_iter()
            .flat_map(|record| record.spec.services.values());
        let found: Vec<u64> = services.flat_map(|service| versions(service, name)).collect();
        found
    };
    let (mut named, mut good) = (BTreeSet::new(), BTreeSet::new());
    for deployment in state.deployments.values() {
        named.extend(of_revision(deployment, deployment.revision));
        let last = deployment.last_good.into_iter();
        good.extend(last.flat_map(|revision| of_revision(deployment, revision)));
    }
    named.extend(&good);
    for info in state
        .services
        .values()
        .flat_map(|service| service.generations.values())
    {
        named.extend(specs(info).flat_map(|spec| versions(spec, name)));
    }
    let mut secret = secret.as_ref().clone();
    secret.earlier.retain(|earlier| named.contains(&earlier.version));
    while secret.earlier.len() > State::EARLIER_SECRETS_MAX {
        let is_spare = |earlier: &EarlierSecret| !good.contains(&earlier.version);
        let spare = secret.earlier.iter().position(is_spare).unwrap_or(0);
        secret.earlier.remove(spare);
    }
    state.secrets.insert(name.into(), Arc::new(secret));
}

fn versions(spec: &ServiceSpec, name: &str) -> impl Iterator<Item = u64> {
    let mounts = spec.secrets.iter().filter(move |mount| mount.source == name);
    mounts.filter_map(|mount| mount.version)
}

/// Destroys earlier values of all secrets that nothing may go back to: a revision is good, or a generation is gone.
pub(super) fn forget_unused(state: &mut State) {
    let kept = state
        .secrets
        .iter()
        .filter(|(_, secret)| !secret.earlier.is_empty());
    let names: Vec<Arc<str>> = kept.map(|(name, _)| name.clone()).collect();
    for name in names {
        forget_earlier(state, &name);
    }
}

/// Refuses to remove a secret that a service names, and says who.
pub(super) fn check_unused(state: &State, name: &str) -> Result<(), Refused> {
    const SHOWN_MAX: usize = 5;
    // The cluster removes its own by rules of its own.
    if state.feature_level < SINCE_LEVEL || acme::is_own(name) {
        return Ok(());
    }
    let running = state.services.values().filter(|service| {
        let mut infos = service.generations.values();
        infos.any(|info| specs(info).any(|spec| spec.names_secret(name)))
    });
    let mut users: BTreeSet<String> = running.map(|service| service.key.to_string()).collect();
    // What is put back by itself needs its secrets, also where nothing of it runs any more.
    for deployment in state.deployments.values() {
        let good = deployment
            .last_good
            .and_then(|good| deployment.history.get(&good));
        let services = good.into_iter().flat_map(|record| &record.spec.services);
        let named = services.filter(|(_, spec)| spec.names_secret(name));
        users.extend(named.map(|(service, _)| format!("{}/{service}", deployment.name)));
    }
    if users.is_empty() {
        return Ok(());
    }
    let mut by = users
        .iter()
        .take(SHOWN_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if users.len() > SHOWN_MAX {
        by.push_str(&format!(" and {} more", users.len() - SHOWN_MAX));
    }
    Err(Refused::SecretUsed {
        name: name.into(),
        by,
    })
}
