//! The sources that are followed, and one look at one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use dhow_core::command::{ApplyReason, Entry, Refused};
use dhow_core::spec::policy::FilePolicy;
use dhow_core::state::{ManifestVersion, Source, SourceSettings, State};
use dhow_core::step::step;
use dhow_wire::SourceConfig;
use dhow_wire::manifest::{ManifestKey, Verdict, VerifiedSet};

use super::dir_look::look_at_dir;
use super::elsewhere::look_elsewhere;
use super::hooks::{HookProof, HookRefused, Hooks};
use super::judge::{Judge, Purpose, SourceError};
use crate::plane::remote_sets::open;
use crate::plane::runtime::limits::MANIFEST_POLL_MS;
use crate::plane::secrets::SecretBox;

/// What a source has, and whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestSource {
    pub name: Arc<str>,
    pub settings: SourceSettings,
    /// From this server's configuration.
    pub configured: bool,
}

impl ManifestSource {
    /// The last set that was taken from it.
    pub fn taken(&self, state: &State) -> Option<ManifestVersion> {
        state.sources.get(&self.name).and_then(|source| source.taken)
    }

    /// The commit that brought it.
    pub fn commit(&self, state: &State) -> Option<Arc<str>> {
        state.sources.get(&self.name)?.commit.clone()
    }

    pub fn keys(&self) -> impl Iterator<Item = ManifestKey> {
        self.settings.keys.iter().map(|key| ManifestKey(*key))
    }

    /// Whether it is read from a server elsewhere.
    pub fn is_elsewhere(&self) -> bool {
        self.settings.remote.is_some()
    }

    /// Whether somebody had the last word about what it has brought, for a time that is over.
    pub(super) fn is_owed(&self, state: &State, now_unix_secs: i64) -> bool {
        let mut all = state.deployments.values();
        all.any(|known| {
            let suspended = known.suspended.as_ref();
            let is_over = suspended.is_some_and(|suspension| suspension.until_unix_secs <= now_unix_secs);
            is_over && known.owner() == Some(&self.name)
        })
    }
}

/// A set that waits for a person to say yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSet {
    pub version: u64,
    pub commit: Option<Arc<str>>,
}

impl WaitingSet {
    pub fn of(set: &VerifiedSet) -> Self {
        Self {
            version: set.version().version,
            commit: set.commit().cloned(),
        }
    }
}

/// What this server follows: what its configuration says, and what was added to the cluster.
#[derive(Debug)]
pub struct ManifestSources {
    configured: Vec<ManifestSource>,
    pub poll_ms: u64,
    /// What files may ask for: a signature is no way around it.
    policy: Option<Arc<FilePolicy>>,
    /// Opens the secrets that sources name; without it none is there.
    secrets: Option<Arc<SecretBox>>,
    pub(super) hooks: Hooks,
    /// What the last look at each found, by name.
    found: Mutex<BTreeMap<Arc<str>, Found>>,
}

/// What is told of the last look at a source.
#[derive(Clone, Debug, Default)]
pub struct LastLook {
    /// Why it brought nothing.
    pub problem: Option<String>,
    pub looked_unix_secs: Option<i64>,
    pub waiting: Option<WaitingSet>,
    /// When a call of its webhook was refused.
    pub hook_refused_unix_secs: Option<i64>,
}

/// What a look at a source has found.
#[derive(Clone, Debug, Default)]
struct Found {
    last: LastLook,
    /// The stamp of the files when they were last proved to be those of the index in force.
    sound: Option<([u8; 32], u64)>,
    /// What was there, where it brought nothing new.
    looked_at: Option<LookedAt>,
}

/// A commit that need not be read again, for as long as the source and what is in force are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LookedAt {
    source: ManifestSource,
    taken: Option<ManifestVersion>,
    commit: Arc<str>,
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
            settings: source.settings(),
            configured: true,
        });
        Self {
            configured: configured.collect(),
            poll_ms: MANIFEST_POLL_MS,
            policy,
            secrets: None,
            hooks: Hooks::default(),
            found: Mutex::default(),
        }
    }

    /// The same with the key of the cluster's secrets.
    pub fn with_secrets(self, secrets: Arc<SecretBox>) -> Self {
        Self {
            secrets: Some(secrets),
            ..self
        }
    }

    /// Lets a caller of a webhook have the source looked at, where it knows the source's secret.
    pub fn call(
        &self,
        state: &State,
        name: &str,
        (proof, body): (Option<HookProof<'_>>, &[u8]),
        (now_ms, now_unix_secs): (u64, i64),
    ) -> Result<(), HookRefused> {
        self.hooks.admit(now_ms)?;
        match self.check_call(state, name, proof, body) {
            Ok(name) => {
                self.hooks.call(name);
                Ok(())
            }
            Err(refused) => {
                // Only of sources that there are, so that callers fill nothing.
                if let Some(found) = self.found().get_mut(name) {
                    found.last.hook_refused_unix_secs = Some(now_unix_secs);
                }
                Err(refused)
            }
        }
    }

    fn check_call(
        &self,
        state: &State,
        name: &str,
        proof: Option<HookProof<'_>>,
        body: &[u8],
    ) -> Result<Arc<str>, HookRefused> {
        let proof = proof.ok_or(HookRefused::NoProof)?;
        let source = self.all(state).into_iter().find(|source| &*source.name == name);
        let secret = source
            .as_ref()
            .and_then(|source| source.settings.hook_secret.as_deref());
        let secret = secret.and_then(|secret| open(secret, state, self.secrets.as_deref()).ok());
        // Whoever does not know the secret does not learn either whether there is a source.
        let is_known = secret.is_some_and(|secret| proof.is_of(&secret, body));
        let name = source.filter(|_| is_known).map(|source| source.name);
        name.ok_or(HookRefused::WrongProof)
    }

    /// All that are followed, by name. What this server's configuration says wins.
    pub fn all(&self, state: &State) -> Vec<ManifestSource> {
        let added = |(name, source): (&Arc<str>, &Arc<Source>)| {
            Some(ManifestSource {
                name: name.clone(),
                settings: source.settings.clone()?,
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

    /// What the last look at a source found.
    pub fn last_look(&self, name: &str) -> LastLook {
        let found = self.found();
        found
            .get(name)
            .map(|found| found.last.clone())
            .unwrap_or_default()
    }

    fn found(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, Found>> {
        // One entry is written at a time, so a holder that panicked left a map that can be read.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a look has found, and nothing of sources that are followed no longer.
    fn note(&self, state: &State, name: Arc<str>, found: Found) {
        let followed: BTreeSet<Arc<str>> = self.all(state).into_iter().map(|source| source.name).collect();
        let mut all = self.found();
        let refused = all.get(&name).and_then(|known| known.last.hook_refused_unix_secs);
        let last = LastLook {
            hook_refused_unix_secs: refused,
            ..found.last
        };
        all.insert(name, Found { last, ..found });
        all.retain(|name, _| followed.contains(name));
    }

    /// Reads and proves what a source has now. A set that is not in force is one that the state would take.
    pub async fn look(
        &self,
        state: &State,
        source: ManifestSource,
        purpose: Purpose,
        now_unix_secs: i64,
    ) -> Result<Verdict, SourceError> {
        let name = source.name.clone();
        let known = self.found().get(&name).cloned().unwrap_or_default();
        let remote = source.settings.remote.clone();
        let judge = Judge {
            taken: source.taken(state),
            is_wanted_again: purpose == Purpose::Retry || source.is_owed(state, now_unix_secs),
            purpose,
            now_unix_secs,
            policy: self.policy.clone(),
            source,
        };
        let looked = match remote {
            None => {
                let looked = tokio::task::spawn_blocking(move || look_at_dir(&judge, known.sound)).await;
                let looked = looked.unwrap_or(Err(SourceError::CutOff));
                looked.map(|(verdict, sound)| (verdict, sound, None))
            }
            Some(remote) => {
                let (secrets, source, taken) = (self.secrets.as_deref(), judge.source.clone(), judge.taken);
                let looked_at = known
                    .looked_at
                    .filter(|known| known.source == source && known.taken == taken)
                    .map(|known| known.commit);
                let looked = look_elsewhere(judge, &remote, state, secrets, looked_at).await;
                let noted = |commit| LookedAt {
                    source,
                    taken,
                    commit,
                };
                looked.map(|(verdict, commit)| (verdict, None, commit.map(noted)))
            }
        };
        let looked = looked.and_then(|looked| {
            if let Verdict::Newer(set) = &looked.0 {
                would_be_taken(state, set, now_unix_secs)?;
            }
            Ok(looked)
        });
        let last = LastLook {
            problem: looked.as_ref().err().map(SourceError::reason),
            looked_unix_secs: Some(now_unix_secs),
            waiting: looked.as_ref().err().and_then(SourceError::waiting),
            hook_refused_unix_secs: None,
        };
        let (verdict, sound, looked_at) = match looked {
            Ok((verdict, sound, looked_at)) => (Ok(verdict), sound, looked_at),
            Err(error) => (Err(error), None, None),
        };
        let found = Found {
            last,
            sound,
            looked_at,
        };
        self.note(state, name, found);
        verdict
    }
}

/// Puts a set in force in a copy of the state, to say before anything is written why it would be refused.
fn would_be_taken(state: &State, set: &VerifiedSet, now_unix_secs: i64) -> Result<(), SourceError> {
    let mut copy = state.clone();
    // The cluster's time may stand still while nothing is written; that a suspension is over is known by the clock.
    let over = state.deployments.values().filter_map(|known| {
        let suspension = known.suspended.as_ref()?;
        (suspension.until_unix_secs <= now_unix_secs).then_some(suspension.until)
    });
    let time = match set.why() {
        ApplyReason::SuspensionOver => over.max().unwrap_or_default().max(state.time),
        ApplyReason::Newer | ApplyReason::Accepted | ApplyReason::Retry => state.time,
    };
    let entry = Entry {
        time,
        term: state.term,
        request: None,
        command: set.clone().into_command(now_unix_secs),
    };
    match step(&mut copy, &entry, &mut ()) {
        Ok(_) => Ok(()),
        Err(cause) => Err(SourceError::NotTaken {
            name: set.source().cloned().unwrap_or_default(),
            waiting: WaitingSet::of(set),
            cause: Box::new(cause),
        }),
    }
}

/// Whether a person can say yes to what was refused.
pub(super) fn waits_for_a_person(refused: &Refused) -> bool {
    matches!(refused, Refused::RemovesMost { .. })
}
