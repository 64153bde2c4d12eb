//! The desk of a node: takes scale requests, of people and of leaders of an older version, and writes them down.
//!
//! The API's internal route puts requests on it; the node's own work takes from it what the cluster does not know. The
//! requests survive a restart of the daemon, so that a restart stops nothing. Of services that the cluster knows, the
//! node's own copy of the state has the last word: a request about one counts until the node puts it right. It never
//! lets an older epoch change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::assignment::RoleAssignment;
use dhow_core::ids::{RoleName, ServiceKey};
use dhow_core::spec::ServiceSpec;
use dhow_core::state::State;
use dhow_disk::Outlives;
use dhow_wire::names::WireNameError;
use dhow_wire::{InternalScaleRequest, ScaleAssignment, ScaleError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::plane::storage::Storage;

use super::held::{Held, HeldListing, HeldService};

/// Services of which nothing runs here whose last spec is still known. A request without a spec names one that ran
/// here lately; at some kilobytes each 256 are below a megabyte.
const IDLE_SERVICES_MAX: usize = 256;

/// How far a request's epoch may be ahead of what this node has heard: a cluster that was restored begins 2^20 above what
/// it knew, and every new leader takes the next few. One request further ahead would shut the real leader out for good.
const EPOCH_JUMP_MAX: u64 = 1 << 21;

/// Finds the newest generation and spec of a service that the cluster knows.
pub type KnownSpec = dyn Fn(&ServiceKey) -> Option<(u32, Arc<ServiceSpec>)> + Send + Sync;

/// What a desk is made with.
pub struct DeskOptions {
    /// The file that keeps the requests.
    pub path: PathBuf,
    pub known_spec: Arc<KnownSpec>,
    /// The highest epoch that this node has promised to.
    pub promised: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Whether the disk can still keep requests.
    pub storage: Storage,
}

/// Services that the node has beside what the cluster says.
pub type ByHand = BTreeMap<ServiceKey, Vec<RoleAssignment>>;

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ScaleRefused {
    #[error("epoch {epoch} is over: this node has heard of epoch {seen}. Whoever sent this leads no more")]
    OldEpoch { epoch: u64, seen: u64 },
    #[error(
        "epoch {epoch} is too far ahead of epoch {seen}, the last one that this node has heard of: the leader tells \
         every node of its epoch before it sends anything"
    )]
    FarEpoch { epoch: u64, seen: u64 },
    #[error("nobody has told this node what {service} is; send its `spec`")]
    NoSpec { service: ServiceKey },
    #[error("the request came without the spec of generation {generation} of {service}")]
    NoGeneration { service: ServiceKey, generation: u32 },
    #[error(transparent)]
    Names(#[from] WireNameError),
    #[error("{0:?} is no name of a role")]
    Role(String),
    #[error(transparent)]
    TooMany(#[from] ScaleError),
    #[error("the data directory of this node was removed or moved under it: nothing can be kept")]
    StorageGone,
    #[error("what this node is to run cannot be written to {}: {error}", path.display())]
    Disk { path: PathBuf, error: std::io::Error },
}

/// The scale requests that a static node was sent by hand or by a leader of an older version, kept on disk; clones are
/// the same desk.
#[derive(Clone)]
pub struct ScaleDesk {
    inner: Arc<DeskState>,
}

/// What the clones of a desk share.
struct DeskState {
    options: DeskOptions,
    told: Mutex<DeskRequests>,
    /// One request is taken at a time: each is written down before the next.
    taking: tokio::sync::Mutex<()>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

/// The requests that are on the desk, and the highest epoch that one came with: the content of its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct DeskRequests {
    epoch: u64,
    #[serde(with = "by_name")]
    services: BTreeMap<ServiceKey, Held>,
}

impl ScaleDesk {
    /// Reads the requests from before. Blocks.
    pub fn open(options: DeskOptions) -> std::io::Result<Self> {
        let kept = dhow_disk::read_or_set_aside(&options.path, |bytes| {
            serde_json::from_slice::<DeskRequests>(bytes)
        })?;
        let told = kept.or_tell(|path, why| {
            tracing::error!(
                path = %path.display(), why,
                "what was asked of this node by hand was damaged and is put aside: what the cluster does not know \
                 ends, and has to be asked for again"
            );
        });
        Ok(Self {
            inner: Arc::new(DeskState {
                options,
                told: Mutex::new(told.unwrap_or_default()),
                taking: tokio::sync::Mutex::new(()),
                changes: watch::Sender::new(0),
            }),
        })
    }

    /// Takes a request: once this returns, it survives a power cut. A caller that stops waiting changes nothing: the
    /// agent gets what is on disk.
    pub async fn take(&self, request: InternalScaleRequest) -> Result<(), ScaleRefused> {
        let (desk, path) = (self.clone(), self.inner.options.path.clone());
        let taken = tokio::spawn(async move { desk.take_now(request).await }).await;
        taken.unwrap_or_else(|error| {
            let error = std::io::Error::other(error);
            Err(ScaleRefused::Disk { path, error })
        })
    }

    async fn take_now(&self, request: InternalScaleRequest) -> Result<(), ScaleRefused> {
        let _taking = self.inner.taking.lock().await;
        if self.inner.options.storage.is_gone() {
            return Err(ScaleRefused::StorageGone);
        }
        let key = request.service_key()?;
        let seen = self.told().epoch.max((self.inner.options.promised)());
        if let Some(epoch) = request.epoch.filter(|epoch| *epoch < seen) {
            return Err(ScaleRefused::OldEpoch { epoch, seen });
        }
        if let Some(epoch) = request
            .epoch
            .filter(|epoch| *epoch > seen.saturating_add(EPOCH_JUMP_MAX))
        {
            return Err(ScaleRefused::FarEpoch { epoch, seen });
        }
        let known = self.told().services.get(&key).cloned();
        let mut held = self.held(&key, &request, known.as_ref())?;
        let mut next = self.told().clone();
        held.news_at = Some(Instant::now());
        held.changed = self.inner.changes.borrow().saturating_add(1);
        next.epoch = next.epoch.max(request.epoch.unwrap_or(0));
        next.services.insert(key, held);
        forget_idle(&mut next);
        let (path, written) = (self.inner.options.path.clone(), next.clone());
        let disk = tokio::task::spawn_blocking(move || write(&path, &written));
        let disk = disk
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        disk.map_err(|error| ScaleRefused::Disk {
            path: self.inner.options.path.clone(),
            error,
        })?;
        *self.told() = next;
        self.count_change();
        Ok(())
    }

    /// What the request makes of what is held.
    fn held(
        &self,
        key: &ServiceKey,
        request: &InternalScaleRequest,
        known: Option<&Held>,
    ) -> Result<Held, ScaleRefused> {
        let asked = request.effective_assignments()?;
        let mut specs: BTreeMap<u32, Arc<ServiceSpec>> =
            known.map(|known| known.specs.clone()).unwrap_or_default();
        if specs.is_empty()
            && let Some((generation, spec)) = (self.inner.options.known_spec)(key)
        {
            specs.insert(generation, spec);
        }
        specs.extend(request.specs.clone());
        let newest = asked.iter().filter_map(|assignment| assignment.generation).max();
        let fallback = match (&request.spec, newest) {
            (Some(spec), Some(newest)) => {
                specs
                    .entry(newest)
                    .and_modify(|known| set(known, spec))
                    .or_insert_with(|| Arc::new(spec.clone()));
                newest
            }
            (Some(spec), None) => self.own_generation(&mut specs, spec),
            (None, _) => specs.last_key_value().map_or(0, |(generation, _)| *generation),
        };
        let mut assignments = Vec::new();
        for assignment in asked.iter() {
            let generation = assignment.generation.unwrap_or(fallback);
            RoleName::new(&assignment.role).map_err(|_| ScaleRefused::Role(assignment.role.clone()))?;
            if !assignment.indices.is_empty() && !specs.contains_key(&generation) {
                let service = key.clone();
                return Err(match assignment.generation {
                    Some(generation) => ScaleRefused::NoGeneration { service, generation },
                    None => ScaleRefused::NoSpec { service },
                });
            }
            let indices: BTreeSet<u32> = assignment.indices.iter().copied().collect();
            let plain = ScaleAssignment::new(assignment.role.clone(), indices.into_iter().collect());
            let tries = assignment.tries.filter(|id| request.next.contains_key(id));
            assignments.push(plain.with_generation(generation).with_tries(tries));
        }
        assignments.retain(|assignment| !assignment.indices.is_empty());
        let used: BTreeSet<u32> = assignments
            .iter()
            .filter_map(|assignment| assignment.generation)
            .collect();
        let last = specs.last_key_value().map(|(generation, _)| *generation);
        specs.retain(|generation, _| used.contains(generation) || Some(*generation) == last);
        Ok(Held {
            epoch: request.epoch,
            assignments,
            specs,
            next: request.next.clone(),
            ..Held::default()
        })
    }

    /// The generation of a spec that came without one: a new one where what runs has to be replaced.
    fn own_generation(&self, specs: &mut BTreeMap<u32, Arc<ServiceSpec>>, spec: &ServiceSpec) -> u32 {
        let newest = specs.last_key_value();
        let generation = match newest {
            Some((generation, known)) if !known.rolls_into_at(spec, State::FEATURE_LEVEL) => *generation,
            Some((generation, _)) => generation.saturating_add(1),
            None => 1,
        };
        specs.insert(generation, Arc::new(spec.clone()));
        generation
    }

    /// Follows how often something has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn count_change(&self) {
        self.inner
            .changes
            .send_modify(|count| *count = count.saturating_add(1));
    }

    /// What is in force of it: what people asked for, of services that the cluster does not know for good, of others
    /// until it is put right. What a leader has asked for is in the copy of its state too, which may be newer.
    pub fn by_hand(&self, is_known: impl Fn(&ServiceKey) -> bool) -> ByHand {
        let told = self.told();
        let services = told.services.iter().filter(|(key, held)| match held.epoch {
            None => held.news_at.is_some() || !is_known(key),
            Some(_) => held.news_at.is_some() && !is_known(key),
        });
        services.map(|(key, held)| (key.clone(), held.roles())).collect()
    }

    /// Since when something is there that was not put right yet.
    pub fn news_since(&self) -> Option<Instant> {
        let told = self.told();
        told.services.values().filter_map(|held| held.news_at).min()
    }

    /// From now on the cluster's mind counts again, where it has one.
    pub fn put_right(&self, is_known: impl Fn(&ServiceKey) -> bool) {
        let mut told = self.told();
        for held in told.services.values_mut() {
            held.news_at = None;
        }
        told.services
            .retain(|key, held| held.epoch.is_some() || !is_known(key));
        drop(told);
        self.count_change();
    }

    /// What this node has been told, for a leader.
    pub fn listing(&self) -> HeldListing {
        let told = self.told();
        let services = told.services.iter().map(|(key, held)| HeldService {
            deployment: key.deployment.to_string(),
            service: key.service.to_string(),
            epoch: held.epoch,
            digest: held.digest(),
        });
        HeldListing {
            epoch: told.epoch,
            services: services.collect(),
            derives: true,
        }
    }

    fn told(&self) -> MutexGuard<'_, DeskRequests> {
        // Each change is whole before the lock is let go of.
        self.inner.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set(known: &mut Arc<ServiceSpec>, spec: &ServiceSpec) {
    if **known != *spec {
        *known = Arc::new(spec.clone());
    }
}

fn forget_idle(told: &mut DeskRequests) {
    let idle = told.services.iter().filter(|(_, held)| held.is_empty());
    let mut idle: Vec<_> = idle.map(|(key, held)| (held.changed, key.clone())).collect();
    idle.sort();
    for (_, key) in idle.iter().take(idle.len().saturating_sub(IDLE_SERVICES_MAX)) {
        told.services.remove(key);
    }
}

/// All of it or what was there before.
fn write(path: &Path, told: &DeskRequests) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(told)?;
    dhow_disk::replace(path, &bytes, Outlives::PowerCut)
}

/// A map by service as a list, because keys of JSON are texts.
mod by_name {
    use super::{BTreeMap, Held, ServiceKey};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(services: &BTreeMap<ServiceKey, Held>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(services)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ServiceKey, Held>, D::Error> {
        Ok(Vec::<(ServiceKey, Held)>::deserialize(from)?
            .into_iter()
            .collect())
    }
}
