//! What `step` says of an entry while it applies it: each change of State with its subject, and what was left out, not
//! believed or refused. Ids are copied and texts are borrowed from the entry and the state, so that what nobody listens
//! to costs nothing; words are made by whoever shows them.
//!
//! `step` tells a change once State has it; that something goes away it tells while State still has it, so that a
//! listener finds its name. Events, wake-ups, the simulator's trace and tests read these. It does not tell bookkeeping:
//! times, remembered requests, generations that nobody uses.

mod compare;

use std::sync::Arc;

use crate::command::{Refused, RolloutAction, ScaleChange, Stale, StopReason};
use crate::ids::{DeploymentName, DeploymentRevision, NodeId, ReplicaKey, ServiceId, ServiceName};
use crate::replica::{Machine, ReplicaEvent};
use crate::rollout::Judgement;
use crate::scaler::{Called, Resize};
use crate::spec::TimeSpan;
use crate::state::{ApiToken, Drain, NotifySettings, RunOutcome, SourceSettings, State, Suspension};

pub use compare::compare;

/// Whoever listens to what `step` does. `()` is nobody.
pub trait ChangeSink {
    /// The state is the one at this moment: within an entry, others may follow.
    fn tell(&mut self, state: &State, change: Change<'_>);
}

impl ChangeSink for () {
    fn tell(&mut self, _: &State, _: Change<'_>) {}
}

/// One thing that an entry did, and to whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    Cluster(ClusterChange<'a>),
    Node(NodeId, NodeChange),
    Deployment(&'a DeploymentName, DeploymentChange<'a>),
    Service(ServiceId, ServiceChange<'a>),
    /// The node is the one that has the replica; of late news the one that told them.
    Replica(ReplicaKey, NodeId, ReplicaChange<'a>),
    /// The entry changed nothing but the revision and the time. `step` tells nothing else of it.
    Refused(&'a Refused),
}

/// What an entry did to the cluster as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClusterChange<'a> {
    Created {
        cluster_id: &'a Arc<str>,
    },
    TermBegan {
        leader: NodeId,
    },
    FeatureLevelRaised {
        level: u32,
    },
    WorkerTokenIssued {
        uses_allowed: u32,
    },
    WorkerTokenRevoked,
    WorkerCaRotated,
    ApiTokenIssued {
        id: &'a Arc<str>,
        token: &'a Arc<ApiToken>,
    },
    ApiTokenRevoked {
        id: &'a Arc<str>,
    },
    SecretSet {
        name: &'a Arc<str>,
    },
    SecretRemoved {
        name: &'a Arc<str>,
    },
    SourceSet {
        name: &'a Arc<str>,
        settings: &'a SourceSettings,
    },
    SourceRemoved {
        name: &'a Arc<str>,
    },
    NotifySet {
        name: &'a Arc<str>,
        settings: &'a NotifySettings,
    },
    NotifyRemoved {
        name: &'a Arc<str>,
    },
    /// A set of manifests is in force; `step` tells what it deployed and removed in changes of their own.
    ManifestsTaken {
        source: Option<&'a Arc<str>>,
        version: u64,
        deployments: usize,
        commit: Option<&'a Arc<str>>,
    },
}

/// What an entry did to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    Joined,
    /// It registered with other news of itself, or speaks in another form.
    Renewed,
    Lost,
    Back,
    Drain(Drain),
    Labelled,
    Removed,
    /// It is to run something else than before, or to treat it differently.
    AssignmentChanged,
    /// The node sent an inventory of all that it has. `step` tells this before the inventory replaces the mirror.
    Inventory {
        replicas: usize,
    },
}

/// What an entry did to one deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeploymentChange<'a> {
    /// A new revision is to run; `brings_back` names the one whose spec it has.
    Deployed {
        revision: DeploymentRevision,
        author: &'a Arc<str>,
        brings_back: Option<DeploymentRevision>,
    },
    Scaled {
        changes: &'a [ScaleChange],
    },
    /// All services where none is named.
    RestartAsked {
        service: Option<&'a ServiceName>,
    },
    /// All services where none is named, until somebody starts them.
    StopAsked {
        service: Option<&'a ServiceName>,
        author: &'a Arc<str>,
    },
    /// What was stopped runs again; all of it where no service is named.
    StartAsked {
        service: Option<&'a ServiceName>,
        author: &'a Arc<str>,
    },
    RemovalAsked,
    /// Its last service is gone, and so is it.
    Removed,
    /// A revision that does not run: the losing half of a divided cluster wrote it.
    Conflicted {
        revision: DeploymentRevision,
        author: &'a Arc<str>,
    },
    Stable {
        revision: DeploymentRevision,
    },
    /// The revision has failed, and the last good one is put back as a new one. The service is the one that failed,
    /// where that is known.
    Reverting {
        revision: DeploymentRevision,
        service: Option<ServiceId>,
        cause: Option<&'a Arc<str>>,
    },
    /// The revision has failed, and nothing is put back.
    Failed {
        revision: DeploymentRevision,
        service: Option<ServiceId>,
        cause: Option<&'a Arc<str>>,
    },
    /// What was put back has failed as well.
    RevertFailed {
        revision: DeploymentRevision,
        service: Option<ServiceId>,
        cause: Option<&'a Arc<str>>,
    },
    /// A person promoted, paused or resumed the rollouts of these services.
    Steered {
        action: RolloutAction,
        service: Option<&'a ServiceName>,
        author: &'a Arc<str>,
    },
    /// A person has set counts of adaptive services for a while.
    Held {
        changes: &'a [ScaleChange],
        span: TimeSpan,
        by: &'a Arc<str>,
    },
    /// Their scaler decides again.
    HoldEnded {
        services: &'a [ServiceName],
        by: &'a Arc<str>,
    },
    /// A signed set has a revision that was taken back before; the deployment stays as it is.
    HeldBack {
        revision: DeploymentRevision,
        cause: &'a Arc<str>,
    },
    /// A person has the last word about what a source has brought, for a while.
    Suspended {
        suspension: &'a Suspension,
    },
    /// The source has it again.
    SuspensionOver,
}

/// What an entry did to one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChange<'a> {
    /// What it depends on lets it start; `without` says in words what it did not wait for.
    Released {
        without: Option<&'a Arc<str>>,
    },
    /// A new generation of the same template, so that replicas can be moved.
    GenerationOpened,
    /// For that moment of its schedule.
    CronFired {
        scheduled_unix_secs: i64,
    },
    SettingsAdopted,
    CanaryJudged(Judgement),
    /// The scaler has decided another count.
    Resized {
        resize: &'a Resize,
        called: &'a Called,
    },
    Removed,
    /// A run of a schedule; for no due time where somebody asked for it.
    RunBegan {
        run: u32,
        due_unix_secs: Option<i64>,
    },
    /// No run begins for that due time.
    RunLeftOut {
        due_unix_secs: i64,
        why: LeftOut,
    },
    RunEnded {
        run: u32,
        outcome: RunOutcome,
    },
    /// A job was ended by its deadline.
    JobLate,
}

/// Why no run begins for a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// No server could start it in time.
    Missed,
    /// This run has not ended, and the schedule forbids two at a time.
    UnderWay { run: u32 },
    /// So many are under way already.
    TooMany { runs: usize },
}

/// Why a replica is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Planned(StopReason),
    /// Its deployment had failed and was asked for again.
    CleanSlate,
    /// Its run was not done by its deadline.
    Late,
    /// The next run of its schedule takes its place.
    NextRun,
    /// People have stopped its service.
    Stopped,
    /// A comparison of two states does not show it.
    Unknown,
}

/// What an entry did to one replica, or what it says of it and the mirror did not take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplicaChange<'a> {
    Placed,
    /// The plan wanted it there and it does not fit any more.
    LeftOut(Stale),
    /// It is to end.
    StopAsked(StopCause),
    TriesSettings,
    /// Its node says what happened, and the mirror has moved by it.
    Reported(&'a ReplicaEvent),
    /// Its node says what cannot have happened to the mirror, which stays as it was.
    Diverged(&'a ReplicaEvent),
    /// News of a replica that the node does not have any more change nothing.
    Late(&'a ReplicaEvent),
    /// The mirror is another one, without a word about what happened in between.
    Observed(&'a Machine),
    /// Its node cannot be reached.
    Lost,
    Removed,
}

#[cfg(test)]
mod tests;
