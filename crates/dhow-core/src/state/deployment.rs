//! A deployment: its revisions, which of them was good, and how the current one is doing.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use super::completed::CompletedWork;
use crate::ids::{DeploymentName, DeploymentRevision, ServiceId, ServiceName};
use crate::spec::{ConfigSpec, ContentHash, DeploymentSpec};
use crate::time::ClusterTime;

/// How the current revision is doing, as the log knows it. Whether a stable one is degraded at the moment
/// is read off its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Deploying,
    Stable,
    Reverting,
    Reverted,
    Failed,
    Removing,
    /// The last good revision was put back and fails as well: what of it runs goes on, and is started again.
    RevertFailed,
}

impl Phase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Deploying => "deploying",
            Self::Stable => "stable",
            Self::Reverting => "reverting",
            Self::Reverted => "reverted",
            Self::Failed => "failed",
            Self::Removing => "removing",
            Self::RevertFailed => "revert_failed",
        }
    }
}

/// What became of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionOutcome {
    Rolling,
    Good,
    /// Replaced by a newer one before it was good.
    Superseded,
    /// Failed, and the last good one was put back.
    Reverted {
        cause: Arc<str>,
        /// The version was to blame: it is not taken again unless that is asked for.
        #[serde(default)]
        quarantined: bool,
    },
    /// Failed, with nothing to go back to or told to pause.
    Failed {
        cause: Arc<str>,
    },
    /// Written by the losing half of a divided static cluster; kept for people to look at.
    Conflicted,
}

/// One revision in a deployment's history: what was asked for, by whom, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevisionRecord {
    #[serde(with = "crate::spec::json_text")]
    pub spec: Arc<DeploymentSpec>,
    pub asked: ClusterTime,
    /// For people; nothing is decided by it.
    pub wall_unix_secs: i64,
    pub author: Arc<str>,
    pub outcome: RevisionOutcome,
    /// The revision whose spec this one brings back.
    pub brings_back: Option<DeploymentRevision>,
}

/// A deployment in State, with its revisions and services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    pub name: DeploymentName,
    pub revision: DeploymentRevision,
    #[serde(deserialize_with = "crate::maps::read")]
    pub history: OrdMap<DeploymentRevision, Arc<RevisionRecord>>,
    pub last_good: Option<DeploymentRevision>,
    pub phase: Phase,
    #[serde(deserialize_with = "crate::maps::read")]
    pub services: OrdMap<ServiceName, ServiceId>,
    /// Brought by a set of signed manifests: it goes when a newer set no longer has it.
    pub from_manifests: bool,
    /// The source that brought it.
    #[serde(default)]
    pub source: Option<Arc<str>>,
    /// What its jobs have done, by service, the newest [`State::HISTORY_MAX`](super::State::HISTORY_MAX) specs of each.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub completed: OrdMap<ServiceName, Vector<Arc<CompletedWork>>>,
    /// What its configs hold, in every kept revision: each content once.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub contents: OrdMap<ContentHash, Arc<[u8]>>,
    /// What was taken back because of its version, by the hash of what was asked for: at most [`Self::QUARANTINED_MAX`],
    /// also when the revision itself is kept no more.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub quarantined: OrdMap<ContentHash, Quarantined>,
    /// While its source's word does not count. It stays when its time is over, until the source has been heard again.
    #[serde(default)]
    pub suspended: Option<Suspension>,
}

/// A version that is refused unless by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The revision that failed.
    pub revision: DeploymentRevision,
    pub cause: Arc<str>,
}

/// For how long a person has the last word about a deployment that a source has brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub until: ClusterTime,
    /// The same for people.
    pub until_unix_secs: i64,
    pub author: Arc<str>,
}

impl Suspension {
    pub fn new(until: ClusterTime, until_unix_secs: i64, author: &Arc<str>) -> Self {
        Self {
            until,
            until_unix_secs,
            author: Arc::clone(author),
        }
    }
}

impl Deployment {
    /// A bad version a day for three months; then the oldest is forgotten.
    pub const QUARANTINED_MAX: usize = 100;

    /// The number that the next revision gets. Above all that are kept: the current one need not be the newest.
    pub fn next_revision(&self) -> DeploymentRevision {
        let newest = self.history.get_max().map(|(revision, _)| *revision);
        newest.max(Some(self.revision)).unwrap_or_default().next()
    }

    /// The source whose word counts here, now or when a suspension is over.
    pub fn owner(&self) -> Option<&Arc<str>> {
        self.source.as_ref().filter(|_| self.from_manifests)
    }

    /// Whether a person has the last word at that time.
    pub fn is_suspended(&self, now: ClusterTime) -> bool {
        self.suspended
            .as_ref()
            .is_some_and(|suspension| suspension.until > now)
    }

    pub fn current(&self) -> Option<&Arc<RevisionRecord>> {
        self.history.get(&self.revision)
    }

    /// A kept spec as it was written, with what its configs hold.
    pub fn written(&self, spec: &Arc<DeploymentSpec>) -> Arc<DeploymentSpec> {
        let mut spec = spec.clone();
        if spec.configs.is_empty() {
            return spec;
        }
        for config in Arc::make_mut(&mut spec).configs.values_mut() {
            let content = config.hash().and_then(|hash| self.contents.get(&hash));
            if let Some(content) = content {
                *config = ConfigSpec::of_bytes(content.to_vec());
            }
        }
        spec
    }

    /// Whether the planner has still to bring its services to rest.
    pub fn is_under_way(&self) -> bool {
        match self.phase {
            Phase::Deploying | Phase::Reverting | Phase::Failed | Phase::RevertFailed => true,
            Phase::Stable | Phase::Reverted | Phase::Removing => false,
        }
    }
}
