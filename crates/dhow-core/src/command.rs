//! Everything that can be written into the log, closed. Times, ids and chosen nodes are inside, so that
//! applying needs nothing else.

mod jobs;
mod outcome;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use jobs::JobCommand;
pub use outcome::{Missing, Outcome, Refused, Stale};

use crate::ids::{
    DeploymentName, DeploymentRevision, Generation, NodeId, ReplicaKey, Revision, RoleName, ServiceId,
    ServiceName, SettingsId, Slot, Term,
};
use crate::replica::{Machine, ReplicaEvent};
use crate::rollout::Judgement;
use crate::scaler::{self, Resize};
use crate::spec::{DeploymentSpec, RolloutSpec, TimeSpan};
use crate::state::{ApiToken, Drain, EventPlace, NodeInfo, NotifySettings, Request, SourceSettings};
use crate::time::ClusterTime;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub time: ClusterTime,
    /// The term of the leader that proposed it.
    pub term: Term,
    /// Whose request it is, where a retry must not do it twice.
    pub request: Option<RequestId>,
    pub command: Command,
}

/// Names a request, so that a retry of it is answered and not done again; the hash tells a retry from another request
/// with the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    pub request: Request,
    pub body_hash: [u8; 32],
}

/// One entry of the log. `step` applies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Cluster(ClusterCommand),
    Node(NodeCommand),
    Deployment(DeploymentCommand),
    /// The planner's, refused when the leader that planned it leads no more.
    Plan(PlanCommand),
    Agent(AgentCommand),
}

impl Command {
    /// The feature level without which a server of an older version would lose a part of it.
    pub fn needed_level(&self) -> u32 {
        let level = |spec: &DeploymentSpec| {
            let needs = [
                (spec.needs_job_rules(), crate::step::JOBS_LEVEL),
                (spec.needs_container_rules(), crate::step::JOBS_LEVEL),
                (spec.needs_placement_rules(), crate::step::PLACES_LEVEL),
                (spec.has_restart_intervals(), crate::step::PLACES_LEVEL),
                (spec.needs_stages(), RolloutSpec::STAGES_SINCE),
                (spec.has_files(), crate::step::FILES_LEVEL),
                (spec.needs_volume_rules(), crate::step::VOLUMES_LEVEL),
                (spec.needs_scaler(), scaler::SINCE_LEVEL),
            ];
            let levels = needs.iter().filter(|(needs, _)| *needs).map(|(_, level)| *level);
            levels.max().unwrap_or(0)
        };
        match self {
            Self::Deployment(
                DeploymentCommand::Deploy { spec, .. } | DeploymentCommand::RecordConflicted { spec, .. },
            ) => level(spec),
            Self::Deployment(DeploymentCommand::ApplyManifests {
                specs, commit, why, ..
            }) => {
                let specs = specs.iter().map(|ManifestSpec(spec)| level(spec)).max();
                specs.unwrap_or(0).max(level_of_set(commit.as_ref(), *why))
            }
            Self::Cluster(ClusterCommand::SetSource { settings, .. }) if settings.needs_remotes() => {
                crate::step::SOURCES_LEVEL
            }
            Self::Deployment(DeploymentCommand::Steer { .. }) => RolloutSpec::STAGES_SINCE,
            Self::Deployment(DeploymentCommand::Rebalance { .. }) => crate::step::PLACES_LEVEL,
            Self::Deployment(DeploymentCommand::Hold { .. } | DeploymentCommand::EndHold { .. }) => {
                scaler::SINCE_LEVEL
            }
            Self::Deployment(DeploymentCommand::Suspending { .. }) => crate::step::SOURCES_LEVEL,
            Self::Deployment(
                DeploymentCommand::Remove { .. }
                | DeploymentCommand::Scale { .. }
                | DeploymentCommand::Restart { .. }
                | DeploymentCommand::Rollback { .. },
            )
            | Self::Cluster(_)
            | Self::Node(_)
            | Self::Agent(_) => 0,
            Self::Deployment(DeploymentCommand::StartRun { .. }) => crate::step::JOBS_LEVEL,
            Self::Deployment(DeploymentCommand::BindVolume { .. }) => crate::step::VOLUMES_LEVEL,
            Self::Deployment(DeploymentCommand::Stop { .. } | DeploymentCommand::Start { .. }) => {
                crate::step::STOP_LEVEL
            }
            Self::Plan(command) => match command {
                PlanCommand::Job(_) => crate::step::JOBS_LEVEL,
                PlanCommand::JudgeCanary { .. } => RolloutSpec::STAGES_SINCE,
                PlanCommand::Resize { .. } => scaler::SINCE_LEVEL,
                PlanCommand::Place { .. }
                | PlanCommand::Stop { .. }
                | PlanCommand::Forget { .. }
                | PlanCommand::ForgetService { .. }
                | PlanCommand::OpenGeneration { .. }
                | PlanCommand::Release { .. }
                | PlanCommand::MarkStable { .. }
                | PlanCommand::Fail { .. }
                | PlanCommand::DrainFinished { .. }
                | PlanCommand::CronFired { .. }
                | PlanCommand::TrySettings { .. }
                | PlanCommand::AdoptSettings { .. } => 0,
            },
        }
    }
}

/// What it takes to put a set in force, whatever its files have.
fn level_of_set(commit: Option<&Arc<str>>, why: ApplyReason) -> u32 {
    match (commit, why) {
        (None, ApplyReason::Newer) => 0,
        (Some(_), _) | (None, ApplyReason::Accepted | ApplyReason::SuspensionOver | ApplyReason::Retry) => {
            crate::step::SOURCES_LEVEL
        }
    }
}

/// A command about the cluster as a whole: its terms, tokens, secrets, sources and feature level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClusterCommand {
    /// The first entry of a new cluster.
    Bootstrap {
        cluster_id: Arc<str>,
        feature_level: u32,
        /// How many nodes there may be.
        #[serde(default)]
        nodes_limit: Option<u32>,
    },
    /// The first entry of a new leader.
    TermBegan {
        leader: NodeId,
        /// The leader's wall clock, for people.
        #[serde(default)]
        wall_unix_ms: Option<i64>,
    },
    IssueToken {
        nonce: Arc<str>,
        uses_allowed: u32,
        expires_unix_secs: i64,
    },
    RevokeToken {
        nonce: Arc<str>,
    },
    /// A worker joins with a token: counted and registered in one.
    UseToken {
        nonce: Arc<str>,
        key_hash: Arc<str>,
        now_unix_secs: i64,
        wish: Option<NodeId>,
        info: Arc<NodeInfo>,
        /// It speaks the protocol in its plain form.
        #[serde(default)]
        is_plain: bool,
    },
    SetSecret {
        name: Arc<str>,
        sealed: Arc<[u8]>,
    },
    RemoveSecret {
        name: Arc<str>,
    },
    IssueApiToken {
        id: Arc<str>,
        token: Arc<ApiToken>,
    },
    RevokeApiToken {
        id: Arc<str>,
    },
    /// The next generation of the workers' CA makes certificates; the one before is believed for a while.
    RotateWorkerCa {
        now_unix_secs: i64,
        believed_until_unix_secs: i64,
    },
    /// Every server of the cluster knows this feature level now, and serves so many nodes.
    RaiseFeatureLevel {
        level: u32,
        #[serde(default)]
        nodes_limit: Option<u32>,
    },
    /// Keeps ids for servers that are configured or taken in, so that no worker is given one.
    KeepServerIds {
        nodes: Vec<NodeId>,
    },
    /// Follows a directory of signed deployment files, from now on or with other keys.
    SetSource {
        name: Arc<str>,
        settings: SourceSettings,
    },
    RemoveSource {
        name: Arc<str>,
    },
    /// The first entry of an epoch of a static cluster, applied to the newest copy that its leader has found. The peers
    /// take the state after it as a whole, so that it stands in no log.
    EpochBegan {
        /// The highest that any copy has.
        revision: Revision,
        /// Likewise; the entry's own time is the copy's.
        time: ClusterTime,
    },
    /// Tells somebody of what goes wrong, from now on or in another way.
    SetNotify {
        name: Arc<str>,
        settings: NotifySettings,
    },
    RemoveNotify {
        name: Arc<str>,
    },
    /// Everything up to this event was told to a target, or given up.
    NotifyTold {
        name: Arc<str>,
        done: EventPlace,
    },
}

/// A command about nodes: they join, are lost, come back, drain, are labelled and removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeCommand {
    /// A new node, or news of a known one.
    Register {
        node: NodeId,
        info: Arc<NodeInfo>,
    },
    Lost {
        node: NodeId,
    },
    Back {
        node: NodeId,
    },
    SetDrain {
        node: NodeId,
        drain: Drain,
    },
    Label {
        node: NodeId,
        set: BTreeMap<String, String>,
        unset: Vec<String>,
    },
    Remove {
        node: NodeId,
    },
    /// A worker in the plain form has told generations of a replica apart.
    TellsGenerations {
        node: NodeId,
    },
    /// A drain with rules of its own.
    Drain {
        node: NodeId,
        shutdown: bool,
        /// After so long what is left is ended; at once with 0.
        deadline_ms: Option<u64>,
        ignore_system: bool,
    },
    /// A worker over HTTP has shown the internal token of this number for the first time: those before it end soon.
    InternalTokenShown {
        node: NodeId,
        number: u32,
        earlier_until_unix_secs: i64,
    },
}

/// A command that a user gives about a deployment, or that a set of manifests brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeploymentCommand {
    Deploy {
        #[serde(with = "crate::spec::json_text")]
        spec: Arc<DeploymentSpec>,
        author: Arc<str>,
        wall_unix_secs: i64,
        /// Even what was reverted before.
        #[serde(default)]
        force: bool,
    },
    Remove {
        deployment: DeploymentName,
    },
    Scale {
        deployment: DeploymentName,
        changes: Vec<ScaleChange>,
    },
    Restart {
        deployment: DeploymentName,
        service: Option<ServiceName>,
    },
    /// Back to a revision; to the last good one before the current where none is named.
    Rollback {
        deployment: DeploymentName,
        to: Option<DeploymentRevision>,
        author: Arc<str>,
        wall_unix_secs: i64,
    },
    /// A verified set of manifests: deploys what it has, removes what an earlier set brought and it lacks.
    ApplyManifests {
        version: crate::state::ManifestVersion,
        specs: Vec<ManifestSpec>,
        wall_unix_secs: i64,
        /// Each source has its own versions and its own deployments.
        #[serde(default)]
        source: Option<Arc<str>>,
        /// The commit of the repository that the set was read from.
        #[serde(default)]
        commit: Option<Arc<str>>,
        #[serde(default)]
        why: ApplyReason,
    },
    /// A revision that the losing half of a divided cluster wrote, for the history alone.
    RecordConflicted {
        #[serde(with = "crate::spec::json_text")]
        spec: Arc<DeploymentSpec>,
        author: Arc<str>,
        wall_unix_secs: i64,
    },
    /// A run of a schedule, now.
    StartRun {
        deployment: DeploymentName,
        service: ServiceName,
    },
    /// A person takes a hand in a rollout that is under way.
    Steer {
        deployment: DeploymentName,
        /// All that it concerns where none is named.
        service: Option<ServiceName>,
        action: RolloutAction,
        author: Arc<str>,
    },
    /// Nothing of it is to run until somebody starts it, or deploys it again.
    Stop {
        deployment: DeploymentName,
        /// Every service where none is named.
        service: Option<ServiceName>,
        author: Arc<str>,
        wall_unix_secs: i64,
    },
    /// What was stopped runs again.
    Start {
        deployment: DeploymentName,
        service: Option<ServiceName>,
        author: Arc<str>,
        wall_unix_secs: i64,
    },
    /// A node keeps a volume from now on, or has it no more: a person has put content there, or removed it.
    BindVolume {
        deployment: DeploymentName,
        volume: Arc<str>,
        node: NodeId,
        kept: bool,
    },
    /// Replicas are to go elsewhere, so that services are spread better; with none, those that were to go stay.
    Rebalance {
        moves: Vec<ReplicaMove>,
        author: Arc<str>,
    },
    /// A person sets counts of adaptive services, and their scaler leaves them for so long.
    Hold {
        deployment: DeploymentName,
        changes: Vec<ScaleChange>,
        span: TimeSpan,
        author: Arc<str>,
    },
    /// Their scaler decides again.
    EndHold {
        deployment: DeploymentName,
        services: Vec<ServiceName>,
        author: Arc<str>,
    },
    /// A deploy, a scale or a rollback of what a source owns: the person's word counts there for that long, then the
    /// source's again.
    Suspending {
        for_ms: u64,
        /// When that is, for people.
        until_unix_secs: i64,
        author: Arc<str>,
        command: Box<DeploymentCommand>,
    },
}

/// A replica that another node is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaMove {
    pub replica: ReplicaKey,
    pub from: NodeId,
    pub to: NodeId,
}

/// Why a set of manifests is put in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyReason {
    /// It is newer than what is in force.
    #[default]
    Newer,
    /// A person has said yes to what a set may not do unasked.
    Accepted,
    /// It is the one in force, and the time of a suspension is over.
    SuspensionOver,
    /// It is the one in force, and a person wants what was taken back to be tried again.
    Retry,
}

/// What a person may do with a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutAction {
    /// The canary is good: the others follow.
    Promote,
    Pause,
    Resume,
    /// Back to the last good revision.
    Abort,
}

/// One deployment of a set of manifests, kept in the entry as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestSpec(#[serde(with = "crate::spec::json_text")] pub Arc<DeploymentSpec>);

/// How many replicas one role of a service is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleChange {
    pub service: ServiceName,
    /// May be left out where the service has one role.
    pub role: Option<RoleName>,
    pub replicas: u32,
}

/// A command that the planner proposes. It carries what it was decided on, and is refused where that has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlanCommand {
    /// Puts replicas of the service's target on nodes. Each is checked again when it is applied: those that
    /// no longer fit are left out and named in the outcome.
    Place {
        service: ServiceId,
        generation: Generation,
        placements: Vec<Placement>,
    },
    Stop {
        service: ServiceId,
        generation: Generation,
        replicas: Vec<ReplicaKey>,
        why: StopReason,
    },
    /// Drops records of replicas that have ended.
    Forget {
        replicas: Vec<ReplicaKey>,
    },
    ForgetService {
        service: ServiceId,
    },
    /// A new generation of the same template, so that a slot can be moved with the new replica first.
    OpenGeneration {
        service: ServiceId,
        generation: Generation,
    },
    /// What the service depends on has let it start.
    Release {
        service: ServiceId,
        generation: Generation,
        /// Dependencies that it did not wait for to the end, in words.
        without: Option<Arc<str>>,
    },
    MarkStable {
        deployment: DeploymentName,
        revision: DeploymentRevision,
    },
    Fail {
        deployment: DeploymentName,
        revision: DeploymentRevision,
        service: ServiceId,
        cause: Arc<str>,
        /// The version is to blame, and no node: it is not taken again unasked.
        #[serde(default)]
        of_version: bool,
    },
    DrainFinished {
        node: NodeId,
    },
    CronFired {
        service: ServiceId,
        scheduled_unix_secs: i64,
    },
    /// Replicas try the settings that are to come, beside those that count.
    TrySettings {
        service: ServiceId,
        generation: Generation,
        settings: SettingsId,
        replicas: Vec<ReplicaKey>,
    },
    /// Every replica has passed them: they count from now on.
    AdoptSettings {
        service: ServiceId,
        generation: Generation,
        settings: SettingsId,
    },
    /// About the runs of a job or a schedule.
    Job(JobCommand),
    /// What the canary of the target was judged by, and what came of it.
    JudgeCanary {
        service: ServiceId,
        generation: Generation,
        judgement: Judgement,
    },
    /// Another count of an adaptive service, with the figures that call for it.
    Resize {
        service: ServiceId,
        generation: Generation,
        resize: Resize,
    },
}

/// A replica that the planner puts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub slot: Slot,
    pub node: NodeId,
    /// The node's eligibility when the planner looked.
    pub eligibility: Revision,
}

/// Why the planner ends a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    ScaledDown,
    Replaced,
    Draining,
    Removed,
    /// A more important service needs the room.
    Displaced {
        by: ServiceId,
    },
    NodeUnfit,
    /// Its node cannot be reached and another one has its place.
    NodeLost,
    /// It keeps failing on its node and is tried on another.
    FailsThere,
}

/// A command with what a node reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentCommand {
    /// What happened on a node, in the order of its ledger.
    Report {
        node: NodeId,
        incarnation: u64,
        /// The number of the first event; the others follow on.
        first_seq: u64,
        events: Vec<AgentEvent>,
    },
    /// Everything that a node has, after its ledger was lost or it was found to differ.
    Inventory {
        node: NodeId,
        incarnation: u64,
        seq: u64,
        replicas: Vec<InventoryItem>,
    },
}

/// One event of a replica in a node's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentEvent {
    pub replica: ReplicaKey,
    pub event: ReplicaEvent,
}

/// One replica in a node's inventory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InventoryItem {
    pub replica: ReplicaKey,
    pub machine: Machine,
}
