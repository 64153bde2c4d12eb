//! The kinds of events. The words are read by tools: one is never given another meaning.

use serde::{Deserialize, Serialize};

/// The kind of an event, with one word for tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    ClusterCreated,
    LeaderChanged,
    TokenIssued,
    TokenRevoked,
    WorkerCaRotated,
    /// Not from the log: this server has made a worker's next certificate.
    CertificateRenewed,
    /// Not from the log: a worker has shown the internal token that replaces the one before.
    InternalTokenRenewed,
    FeatureLevelRaised,
    SecretSet,
    SecretRemoved,
    SourceSet,
    SourceRemoved,
    NotifySet,
    NotifyRemoved,
    NodeJoined,
    NodeLost,
    NodeBack,
    NodeDraining,
    NodeDrained,
    NodeUndrained,
    NodeLabelled,
    NodeRemoved,
    Deployed,
    RemovalAsked,
    /// The last replica of a deployment that was to go has ended, and it is gone.
    Removed,
    Scaled,
    RestartAsked,
    StopAsked,
    StartAsked,
    RolledBack,
    ManifestsTaken,
    Conflicted,
    Released,
    Stable,
    Reverting,
    Failed,
    /// The last good revision was put back and fails as well.
    RevertFailed,
    RolloutPromoted,
    RolloutPaused,
    RolloutResumed,
    CanaryJudged,
    /// The scaler of an adaptive service has decided another count.
    Resized,
    /// A person has set the count of an adaptive service for a while.
    ScaleHeld,
    ScaleHoldEnded,
    /// A signed set has a revision that was taken back before.
    HeldBack,
    /// A person has the last word about what a source has brought, for a while.
    SourceSuspended,
    /// The source has it again.
    SuspensionOver,
    CronFired,
    /// No run begins for a moment of a schedule.
    RunLeftOut,
    RunEnded,
    /// A job was ended by its deadline.
    JobLate,
    ReplicaPlaced,
    ReplicaStopAsked,
    ReplicaPulling,
    ReplicaStarting,
    ReplicaStarted,
    ReplicaHealthy,
    ReplicaUnhealthy,
    ReplicaEnded,
    ReplicaCouldNotStart,
    ReplicaStopping,
    ReplicaAdopted,
    /// A replica has passed a new check, or does not; the one before goes on to count.
    SettingsPassed,
    SettingsFailed,
    /// Every replica has passed it, and it counts.
    SettingsAdopted,
    /// A node told everything that it has.
    Inventory,
    /// A node's report was refused. Of each node this and the next kind together are told once a minute.
    ReportRefused,
    /// A node reported what cannot have happened to the replicas that the cluster knows.
    ReportDiverged,
    /// Not from the log: this server has run a command in a replica.
    CommandRun,
    /// Not from the log: a caller has taken a backup of everything that the cluster keeps.
    BackedUp,
    /// Not from the log: images of this server were pulled, imported or removed.
    ImagesChanged,
    /// Not from the log: a volume of a node was removed, or got the content of an archive.
    VolumesChanged,
    /// Not from the log of commands: who votes in the cluster was changed.
    MemberAdded,
    MemberRemoved,
    /// Not from the log: people should look at this server.
    Alarm,
    /// Not from the log: events that were not written, because the disk was too slow or failed; or that are not
    /// known, because the state came from another server as a whole.
    Gap,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_words_that_documents_name() {
        for (kind, word) in [
            (EventKind::ReplicaCouldNotStart, "replica_could_not_start"),
            (EventKind::ReplicaStopAsked, "replica_stop_asked"),
            (EventKind::RemovalAsked, "removal_asked"),
            (EventKind::Removed, "removed"),
            (EventKind::ReportRefused, "report_refused"),
            (EventKind::ReportDiverged, "report_diverged"),
            (EventKind::Gap, "gap"),
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
        }
    }
}
