//! What came of a command. A refusal is an answer, not a fault: it changes nothing and says why.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{
    DeploymentName, DeploymentRevision, NodeId, ReplicaKey, RoleName, ServiceId, ServiceKey, ServiceName,
    Slot, Term,
};

/// What `step` answers where it carried a command out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// `changed` is false where the cluster already had exactly this.
    Deployed {
        revision: DeploymentRevision,
        changed: bool,
    },
    Registered {
        node: NodeId,
    },
    /// What did not fit any more is named.
    Placed {
        placed: u32,
        left_out: Vec<(Slot, Stale)>,
    },
    /// Replicas whose reported event cannot have happened to the mirror: their node should send all it has.
    Reported {
        durable_seq: u64,
        diverged: Vec<ReplicaKey>,
    },
    /// Of a schedule, by its number.
    RunBegan {
        run: u32,
    },
}

/// What a plan read that has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Stale {
    #[error("the service has another target by now")]
    Generation,
    #[error("the node is gone")]
    NodeGone,
    #[error("the node has changed since it was chosen")]
    NodeChanged,
    #[error("the slot has a replica")]
    SlotTaken,
    #[error("the slot is not wanted any more")]
    SlotUnwanted,
    #[error("the node has no room left")]
    NoRoom,
    #[error("the node is taken by another service")]
    Occupied,
    #[error("the slot's volume is on another node")]
    VolumeElsewhere,
    #[error("the service has other settings to come by now")]
    Settings,
    #[error("as much of the job is under way as may be at a time")]
    EnoughAtWork,
    #[error("a rule about where the service may be would be broken by now")]
    RuleBroken,
    #[error("the service has another count by now, or is not to be given another one")]
    Count,
}

/// What a command named that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Missing {
    #[error("there is no deployment `{0}`")]
    Deployment(DeploymentName),
    #[error("deployment `{0}` has no service `{1}`")]
    Service(DeploymentName, ServiceName),
    #[error("service `{0}` has no role `{1}`")]
    Role(ServiceName, RoleName),
    #[error("deployment `{0}` has no revision {1}; `dhow history {0}` lists those that are kept")]
    Revision(DeploymentName, DeploymentRevision),
    #[error("there is no node {0}")]
    Node(NodeId),
    #[error("there is no service {0}")]
    ServiceId(ServiceId),
    #[error("this cluster has not given out that token")]
    Token,
    #[error("there is no secret `{0}`")]
    Secret(Arc<str>),
    #[error("there is no token `{0}`; `dhow token ls` lists those that there are")]
    ApiToken(Arc<str>),
    #[error("there is no source `{0}` that was added; `dhow source ls` lists those that there are")]
    Source(Arc<str>),
    #[error("nobody called `{0}` is told; `dhow notify ls` lists who is")]
    Notify(Arc<str>),
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error("the plan is out of date: {0}")]
    Stale(#[from] Stale),
    #[error("proposed in term {proposed}, the cluster is in term {current}")]
    OldTerm { proposed: Term, current: Term },
    #[error("the cluster already has an id")]
    AlreadyBootstrapped,
    #[error("this entry needs feature level {needed}, this version has {has}: upgrade this server first")]
    FeatureLevel { needed: u32, has: u32 },
    #[error("deployment `{0}` is being removed; deploy it again once it is gone")]
    Removing(DeploymentName),
    #[error("deployment `{0}` has no earlier good revision to go back to")]
    NothingToRollBackTo(DeploymentName),
    #[error(
        "deployment `{0}` has no service that runs on; a job runs again by its name: `dhow restart {0}/JOB`"
    )]
    NothingToRestart(DeploymentName),
    #[error("nothing of deployment `{0}` is being rolled out; `dhow rollout ls` lists what is")]
    NoRollout(DeploymentName),
    #[error(
        "deployment `{0}` has no canary that could be promoted; `dhow rollout ls` lists those that there are"
    )]
    NoCanary(DeploymentName),
    #[error("nothing of deployment `{0}` is paused; `dhow rollout ls` lists what is")]
    NotPaused(DeploymentName),
    #[error(
        "a canary of `{0}` is being judged: `dhow rollout promote {0}` or `dhow rollout abort {0}` comes first"
    )]
    CanaryUnderWay(DeploymentName),
    #[error(
        "revision {revision} of `{deployment}` was just this and was taken back: {cause}; change it, or try it again \
         with `dhow deploy --force`"
    )]
    Quarantined {
        deployment: DeploymentName,
        revision: DeploymentRevision,
        cause: Arc<str>,
    },
    #[error("service `{service}` has several roles ({roles}); say which one")]
    WhichRole { service: ServiceName, roles: String },
    #[error("service `{service}` cannot be scaled: {why}")]
    NotScalable { service: ServiceName, why: &'static str },
    #[error("a service has at most {max} replicas, {asked} were asked")]
    TooManyReplicas { asked: u64, max: u32 },
    #[error("the cluster has {max} nodes, the most that it can have")]
    TooManyNodes { max: usize },
    #[error("node {0} still has replicas; drain it first")]
    NodeInUse(NodeId),
    #[error("the id {0} was given to a node before, which may have been removed, and no id is given twice")]
    NodeIdUsed(NodeId),
    #[error("an id of a node is a number from 1 to {max}, {0} is none", max = NodeId::MAX)]
    NodeIdRange(NodeId),
    #[error(
        "node {0} has another role, and a node never changes its role: choose another id for the new one"
    )]
    NodeRole(NodeId),
    #[error("all ids of nodes up to {max} have been given, and none is given twice", max = NodeId::MAX)]
    NoNodeIds,
    #[error("this token has been used up: it was good for {0} worker{s}", s = if *.0 == 1 { "" } else { "s" })]
    TokenUsedUp(u32),
    #[error("this token has expired")]
    TokenExpired,
    #[error("this token has been revoked")]
    TokenRevoked,
    #[error("this token is known already")]
    TokenKnown,
    #[error("the cluster has {max} tokens, the most that it can have; revoke some with `dhow token revoke`")]
    TooManyApiTokens { max: usize },
    #[error("events {expected} to {found} of node {node} are missing; send them again from {replay_from}")]
    Gap {
        node: NodeId,
        expected: u64,
        found: u64,
        replay_from: u64,
    },
    #[error("node {node} speaks as incarnation {found}, known is {known}; it should send all it has")]
    Incarnation { node: NodeId, known: u64, found: u64 },
    #[error("node {node} tells all that it had up to event {found}, and was heard up to event {known} since")]
    OldInventory { node: NodeId, known: u64, found: u64 },
    #[error("the set of manifests has version {found}, version {known} was taken already")]
    OldManifests { known: u64, found: u64 },
    #[error(
        "deployment `{deployment}` comes from the source `{source_name}`: change it there, or have the last word for a \
         while with `--suspend 1h`"
    )]
    SourceWins {
        deployment: DeploymentName,
        source_name: Arc<str>,
    },
    #[error(
        "deployment `{deployment}` comes from the source `{source_name}`: take it out of its files, or let go of all that it \
         has brought with `dhow source rm {source_name}`"
    )]
    SourceKeeps {
        deployment: DeploymentName,
        source_name: Arc<str>,
    },
    #[error("deployment `{0}` comes from no source, so that there is none to suspend")]
    NothingToSuspend(DeploymentName),
    #[error("the set has no deployment at all; what was brought by earlier ones ({names}) stays")]
    EmptySet { names: String },
    #[error(
        "version {version} would remove {drops} of {of} deployments ({names}): `dhow source accept` says yes to that"
    )]
    RemovesMost {
        version: u64,
        drops: usize,
        of: usize,
        names: String,
    },
    #[error("secret `{name}` is used by the source `{source_name}`: follow it without that secret first")]
    SecretOfSource { name: Arc<str>, source_name: Arc<str> },
    #[error("version {found} of the set is not in force")]
    NotInForce { found: u64 },
    #[error("this idempotency key was used for another request; use a new one")]
    KeyReused,
    #[error("secret `{name}` is used by {by}: take it out of their files first")]
    SecretUsed { name: Arc<str>, by: String },
    #[error("the configs of all deployments may have {max} together: remove deployments that are not needed")]
    TooManyConfigs { max: crate::spec::ByteSize },
    #[error("`{0}` has no schedule: only a `cron` service has runs to start")]
    NoSchedule(ServiceName),
    #[error(
        "run {run} of `{service}` is under way, and its `concurrency` is `forbid`: wait for its end, or write `allow` or `replace`"
    )]
    RunUnderWay { service: ServiceName, run: u32 },
    #[error("{max} runs of `{service}` are under way, the most that one schedule can have")]
    TooManyRuns { service: ServiceName, max: usize },
    #[error("`{0}` is stopped: `dhow start {0}` comes first")]
    Stopped(ServiceKey),
    #[error("not now: {0}")]
    NotNow(&'static str),
    #[error("the spec cannot be carried out: {0}")]
    BadSpec(String),
    #[error(
        "the public port {port} of `{service}` (endpoint `{endpoint}`) belongs to `{by}`: take another `port`, or tell \
         http requests apart by `host` or `path`"
    )]
    PortTaken {
        service: ServiceName,
        endpoint: String,
        port: u16,
        /// `deployment/service/endpoint`.
        by: String,
    },
}

impl Refused {
    /// Whether a planner that looks again will do the right thing by itself.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::OldTerm { .. })
    }
}
