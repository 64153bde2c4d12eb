//! The state of the cluster: a value that `step` alone changes. Its maps are persistent and ordered, so a
//! snapshot is a cheap clone that readers, the planner and the log's snapshots use without a lock.

mod api_token;
mod assignment;
mod branch;
mod clock_marks;
mod completed;
mod deployment;
mod ended;
mod failed_on;
mod hash;
mod lookup;
mod node;
mod node_ids;
mod notify;
mod registry;
mod replica;
mod rollout;
mod runs;
mod scaling;
mod service;
mod settings;
mod stopped;
mod volumes;
mod worker_cas;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use api_token::{ApiRole, ApiToken};
pub use assignment::{Assigned, AssignedReplica, AssignmentChange, Assignments};
pub use branch::Branch;
pub use clock_marks::{ClockMark, ClockMarks};
pub use completed::CompletedWork;
pub use deployment::{Deployment, Phase, Quarantined, RevisionOutcome, RevisionRecord, Suspension};
pub use ended::EndedReplica;
pub use failed_on::FailedOn;
pub use hash::StateHash;
pub use node::{Drain, DrainRules, InternalTokenMark, Liveness, Node, NodeInfo, NodeRole, Session, Taken};
pub use node_ids::NodeIds;
pub use notify::{EventPlace, Notice, NotifySettings, NotifyTarget};
pub use registry::{
    EarlierSecret, ManifestVersion, RemoteKind, RemoteSource, Request, RequestRecord, Secret, Source,
    SourceSettings, Token,
};
pub use replica::{Replica, Wanted};
pub use rollout::{Rollout, Stage};
pub use runs::{DueSpan, DueTimes, RunEnd, RunOutcome, ScheduleRun};
pub use scaling::{ScaleHold, Scaling};
pub use service::{GenerationInfo, Service};
pub use settings::{NextSettings, Trial};
pub use stopped::Stopped;
pub use volumes::Apart;
pub use worker_cas::WorkerCaGenerations;

use crate::ids::{DeploymentName, NodeId, ReplicaKey, Revision, ServiceId, ServiceKey, Term};
use crate::time::ClusterTime;

/// What all servers of a cluster agree on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Servers of mixed versions apply alike what this level has; a newer one is switched on by a command.
    pub feature_level: u32,
    pub cluster_id: Option<Arc<str>>,
    /// The last entry that was applied, refused ones included.
    pub revision: Revision,
    pub time: ClusterTime,
    pub term: Term,
    #[serde(deserialize_with = "crate::maps::read")]
    pub nodes: OrdMap<NodeId, Arc<Node>>,
    /// The last id that was given in turn: none up to it is given again. See [`NodeIds`].
    pub last_node_id: NodeId,
    #[serde(deserialize_with = "crate::maps::read")]
    pub deployments: OrdMap<DeploymentName, Arc<Deployment>>,
    #[serde(deserialize_with = "crate::maps::read")]
    pub services: OrdMap<ServiceId, Arc<Service>>,
    #[serde(deserialize_with = "crate::maps::read")]
    pub service_ids: OrdMap<ServiceKey, ServiceId>,
    pub next_service_id: ServiceId,
    #[serde(deserialize_with = "crate::maps::read")]
    pub replicas: OrdMap<ReplicaKey, Arc<Replica>>,
    /// Worker bootstrap tokens by nonce, with their uses.
    #[serde(deserialize_with = "crate::maps::read")]
    pub tokens: OrdMap<Arc<str>, Arc<Token>>,
    /// Secrets by name, sealed.
    #[serde(deserialize_with = "crate::maps::read")]
    pub secrets: OrdMap<Arc<str>, Arc<Secret>>,
    pub manifests: Option<ManifestVersion>,
    /// Outcomes of writes that carried an idempotency key, the newest [`State::REQUESTS_MAX`].
    #[serde(deserialize_with = "crate::maps::read")]
    pub requests: OrdMap<Request, Arc<RequestRecord>>,
    #[serde(deserialize_with = "crate::maps::read")]
    pub request_order: OrdMap<Revision, Request>,
    /// Tokens of the API by id.
    #[serde(deserialize_with = "crate::maps::read")]
    pub api_tokens: OrdMap<Arc<str>, Arc<ApiToken>>,
    /// Which CAs of workers are believed.
    pub worker_cas: WorkerCaGenerations,
    pub branch: Branch,
    /// What the wall clock said when each term began; for people, nothing is decided by it.
    #[serde(default)]
    pub clock_marks: ClockMarks,
    #[serde(default)]
    pub node_ids: NodeIds,
    /// Sources of signed deployment files by name.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub sources: OrdMap<Arc<str>, Arc<Source>>,
    /// How many nodes there may be, see [`State::nodes_max`]. It is raised by a command: servers of mixed versions refuse
    /// the same ones.
    #[serde(default)]
    pub nodes_limit: Option<u32>,
    /// Who is told of what goes wrong, by name.
    #[serde(default, deserialize_with = "crate::maps::read")]
    pub notify: OrdMap<Arc<str>, Arc<NotifyTarget>>,
}

impl State {
    /// The level of this version.
    pub const FEATURE_LEVEL: u32 = 6;
    /// A retried write comes within minutes; at 100 writes a second this remembers the last 100 seconds.
    pub const REQUESTS_MAX: usize = 10_000;
    /// Revisions of one deployment that are kept. The last good one is kept beyond.
    pub const HISTORY_MAX: usize = 20;
    /// Configs of all deployments together: every server has them in memory and sends them with its snapshots, of which a
    /// static cluster takes 256 MiB.
    pub const CONFIG_BYTES_MAX: u64 = 64 * 1024 * 1024;
    /// Configs of all kept revisions of one deployment: eight that share nothing.
    pub const CONFIG_BYTES_OF_ONE_MAX: u64 = 8 * 1024 * 1024;
    /// Values of a secret before the present one: the last good one, and some that were set in vain since.
    pub const EARLIER_SECRETS_MAX: usize = 4;
    /// Ended replicas that a service remembers for `ps --all`.
    pub const ENDED_MAX: usize = 16;
    /// Runs of one schedule that are under way at a time, where it allows several.
    pub const OPEN_RUNS_MAX: usize = 16;
    /// Failures on nodes that a service remembers: more than two of a slot count for nothing, so this is room for
    /// many slots at once.
    pub const FAILED_ON_MAX: usize = 32;
    /// What this version begins and raises a cluster's number of nodes with: 30,000 workers on three servers, the servers,
    /// and room for those being replaced.
    pub const NODES_LIMIT: u32 = 40_000;
    /// The same, for the sizes of tables.
    pub const NODES_MAX: usize = Self::NODES_LIMIT as usize;
    /// From this level on the number of nodes is kept.
    pub(crate) const KEEPS_NODES_LIMIT: u32 = 2;
    /// Nodes of a cluster whose state has no number yet.
    const NODES_MAX_AT_FIRST: usize = 12_000;
    /// Replicas of one service, the most that a spec or a scale may ask for.
    pub const REPLICAS_PER_SERVICE_MAX: u32 = 1_000_000;
    /// Tokens of the API that are good: some for each person and program; at 200 bytes each 200 KiB.
    pub const API_TOKENS_MAX: usize = 1_000;
    /// Targets of notices: an address for each of some people and programs.
    pub const NOTIFY_MAX: usize = 16;
    /// Sources of signed deployment files: one for each team of a large cluster.
    pub const SOURCES_MAX: usize = 64;
    /// Sources whose last version is remembered, those that are followed no longer included: about 100 bytes each.
    pub const SOURCES_REMEMBERED_MAX: usize = 1_024;
    /// Keys that one source believes: some people and programs, and as many again while they are replaced.
    pub const SOURCE_KEYS_MAX: usize = 16;
    /// Replaced CAs of workers that are still believed: one a week for the time that each is.
    pub const RETIRED_WORKER_CAS_MAX: usize = 8;

    /// How many nodes there may be.
    pub fn nodes_max(&self) -> usize {
        self.nodes_limit
            .map_or(Self::NODES_MAX_AT_FIRST, |limit| limit as usize)
    }

    /// Tokens of workers that are kept: one for each of the nodes, and as many again that have expired.
    pub fn worker_tokens_max(&self) -> usize {
        2 * self.nodes_max()
    }
}
