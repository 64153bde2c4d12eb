//! The sources that are followed, and one look at one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dhow_core::spec::DeploymentSpec;
use dhow_core::spec::check::SpecFinding;
use dhow_core::spec::policy::FilePolicy;
use dhow_core::state::{ManifestVersion, Source, State};
use dhow_wire::SourceConfig;
use dhow_wire::manifest::{FileHash, ManifestError, ManifestKey, ParseManifest, Verdict};
use dhow_wire::{Sender, parse_deployment_under};

use super::dir::{ReadSetError, read_index, read_set, stamp};
use crate::plane::runtime::limits::MANIFEST_POLL_MS;

/// How far the clocks of this host and of the one that signs may differ.
const CLOCK_SKEW_MAX_SECS: u32 = 300;

/// A directory of signed deployment files, and whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestSource {
    pub name: Arc<str>,
    pub dir: PathBuf,
    pub keys: Vec<ManifestKey>,
    /// From this server's configuration.
    pub configured: bool,
}

impl ManifestSource {
    /// The last set that was taken from it.
    pub fn taken(&self, state: &State) -> Option<ManifestVersion> {
        state.sources.get(&self.name).and_then(|source| source.taken)
    }
}

/// Why a directory brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the set of manifests in {dir} was refused", dir = dir.display())]
    Refused {
        dir: PathBuf,
        #[source]
        cause: ManifestError,
    },
    #[error("the set of manifests in {dir} cannot be read", dir = dir.display())]
    Unreadable {
        dir: PathBuf,
        #[source]
        cause: ReadSetError,
    },
    #[error("the reading of the manifests was cut off")]
    CutOff,
}

impl SourceError {
    /// The whole of it on one line.
    pub fn reason(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause {
            text.push_str(&format!(": {next}"));
            cause = next.source();
        }
        text
    }
}

/// What this server follows: what its configuration says, and what was added to the cluster.
#[derive(Debug)]
pub struct ManifestSources {
    configured: Vec<ManifestSource>,
    pub poll_ms: u64,
    /// What files may ask for: a signature is no way around it.
    policy: Option<Arc<FilePolicy>>,
    /// What the last look at each found, by name.
    found: Mutex<BTreeMap<Arc<str>, Found>>,
}

/// What a look at a source has found.
#[derive(Clone, Debug, Default)]
struct Found {
    problem: Option<String>,
    /// The stamp of the files when they were last proved to be those of the index in force.
    sound: Option<([u8; 32], u64)>,
}

impl Default for ManifestSources {
    fn default() -> Self {
        Self::new(&[], None)
    }
}

impl ManifestSources {
    pub fn new(configured: &[SourceConfig], policy: Option<Arc<FilePolicy>>) -> Self {
        let configured = configured.iter().map(|source| ManifestSource {
            name: source.name.as_str().into(),
            dir: source.dir.clone(),
            keys: source.keys.clone(),
            configured: true,
        });
        Self {
            configured: configured.collect(),
            poll_ms: MANIFEST_POLL_MS,
            policy,
            found: Mutex::default(),
        }
    }

    /// All that are followed, by name. What this server's configuration says wins.
    pub fn all(&self, state: &State) -> Vec<ManifestSource> {
        let added = |(name, source): (&Arc<str>, &Arc<Source>)| {
            let settings = source.settings.as_ref()?;
            Some(ManifestSource {
                name: name.clone(),
                dir: PathBuf::from(settings.dir.as_ref()),
                keys: settings.keys.iter().map(|key| ManifestKey(*key)).collect(),
                configured: false,
            })
        };
        let mut all: BTreeMap<Arc<str>, ManifestSource> = BTreeMap::new();
        for source in state.sources.iter().filter_map(added) {
            all.insert(source.name.clone(), source);
        }
        for source in &self.configured {
            all.insert(source.name.clone(), source.clone());
        }
        all.into_values().collect()
    }

    /// Why the last look at a source brought nothing.
    pub fn problem(&self, name: &str) -> Option<String> {
        self.found().get(name)?.problem.clone()
    }

    fn found(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, Found>> {
        // One entry is written at a time, so a holder that panicked left a map that can be read.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a look has found, and nothing of sources that are followed no longer.
    fn note(&self, state: &State, name: Arc<str>, found: Found) {
        let followed: BTreeSet<Arc<str>> = self.all(state).into_iter().map(|source| source.name).collect();
        let mut all = self.found();
        all.insert(name, found);
        all.retain(|name, _| followed.contains(name));
    }

    /// Reads and proves what a source has now.
    pub async fn look(
        &self,
        state: &State,
        source: ManifestSource,
        now_unix_secs: i64,
    ) -> Result<Verdict, SourceError> {
        let (name, taken) = (source.name.clone(), source.taken(state));
        let policy = self.policy.clone();
        let sound = self.found().get(&name).and_then(|found| found.sound);
        let looked = tokio::task::spawn_blocking(move || {
            let rules = |spec: &DeploymentSpec| policy.as_ref().map(|policy| policy.check(spec));
            let parse = |path: &str, text: &str| parse(path, text, &|spec| rules(spec).unwrap_or_default());
            match look(&source, taken.as_ref(), now_unix_secs, &parse)? {
                Verdict::Newer(set) => Ok((Verdict::Newer(set), None)),
                Verdict::Unchanged => {
                    let sound = look_at_files(&source, taken.as_ref(), sound)?;
                    Ok((Verdict::Unchanged, sound))
                }
            }
        });
        let looked = looked.await.unwrap_or(Err(SourceError::CutOff));
        let problem = looked.as_ref().err().map(SourceError::reason);
        let sound = looked.as_ref().ok().and_then(|(_, sound)| *sound);
        self.note(state, name, Found { problem, sound });
        looked.map(|(verdict, _)| verdict)
    }
}

/// Whether the files beside the index in force are still those that it names. They are read where anything was changed
/// since they were last proved; what was taken stays in force whatever is found.
fn look_at_files(
    source: &ManifestSource,
    in_force: Option<&ManifestVersion>,
    sound: Option<([u8; 32], u64)>,
) -> Result<Option<([u8; 32], u64)>, SourceError> {
    let dir = || source.dir.clone();
    let unreadable = |cause| SourceError::Unreadable { dir: dir(), cause };
    let Some(in_force) = in_force else {
        return Ok(None);
    };
    // Taken before they are read: what is changed in between is read again at the next look.
    let now = (in_force.index_hash, stamp(&source.dir).map_err(unreadable)?);
    if sound == Some(now) {
        return Ok(sound);
    }
    let set = read_index(&source.dir).map_err(unreadable)?;
    if *FileHash::of(&set.index).as_bytes() != in_force.index_hash {
        // Replaced in between: the next look is at the new one.
        return Ok(None);
    }
    let set = read_set(&source.dir, set).map_err(unreadable)?;
    let refused = |cause| SourceError::Refused { dir: dir(), cause };
    set.check_unchanged().map_err(refused)?;
    Ok(Some(now))
}

/// A set whose index is the one in force is not read any further here.
fn look(
    source: &ManifestSource,
    in_force: Option<&ManifestVersion>,
    now_unix_secs: i64,
    parse: ParseManifest<'_>,
) -> Result<Verdict, SourceError> {
    let dir = || source.dir.clone();
    let unreadable = |cause| SourceError::Unreadable { dir: dir(), cause };
    let mut set = read_index(&source.dir).map_err(unreadable)?;
    let is_in_force = in_force.is_some_and(|known| known.index_hash == *FileHash::of(&set.index).as_bytes());
    if !is_in_force {
        set = read_set(&source.dir, set).map_err(unreadable)?;
    }
    let keys: Vec<_> = source.keys.iter().filter_map(ManifestKey::verifying).collect();
    let verdict = set
        .verify(&keys, in_force, now_unix_secs, CLOCK_SKEW_MAX_SECS, parse)
        .map_err(|cause| SourceError::Refused { dir: dir(), cause })?;
    Ok(match verdict {
        Verdict::Newer(set) => Verdict::Newer(set.from_source(source.name.clone())),
        Verdict::Unchanged => Verdict::Unchanged,
    })
}

/// A signed file means the same on every server, so nothing of a server's environment enters it.
fn parse(
    path: &str,
    text: &str,
    rules: &dyn Fn(&DeploymentSpec) -> Vec<SpecFinding>,
) -> Result<DeploymentSpec, String> {
    let name = Path::new(path)
        .file_name()
        .map_or(path.into(), |name| name.to_string_lossy());
    parse_deployment_under(text, &name, Sender::Source, rules).map_err(|findings| findings.to_string())
}
