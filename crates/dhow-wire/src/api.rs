//! The bodies of the HTTP API that are no listing: what is asked, what a write answers, and what streams carry.
//!
//! The server writes them and describes them in its OpenAPI document; the command line and other clients read
//! them. Keys may be added; none is renamed or dropped. Nothing here decides or opens anything.

mod cluster;
mod crons;
mod deployments;
mod event;
mod exec;
mod explain;
mod health;
mod history;
mod images;
mod logs;
mod net_check;
mod nodes;
mod notify;
mod past;
mod plan;
mod progress;
mod rebalance;
mod registries;
mod rollouts;
mod secrets;
mod sources;
mod tokens;
mod upgrade;
mod volumes;

pub use cluster::MemberAddRequest;
pub use crons::{CronStatus, RunBegun, RunRequest, RunState, RunStatus};
pub use deployments::{
    Deployed, RestartRequest, RollbackRequest, ScaleItem, ScaleRequest, StopRequest, WriteDone,
};
pub use event::EventDocument;
pub use exec::{
    COPY_UPGRADE, CopyRequest, CopyWay, EXEC_FRAME_HEADER_BYTES, EXEC_PAYLOAD_BYTES_MAX, EXEC_REPLICA_HEADER,
    EXEC_SIGN_EVERY_SECS, EXEC_UPGRADE, ExecClientFrame, ExecExit, ExecFrameError, ExecServerFrame, Terminal,
    TerminalSize, exec_upgrade, is_term,
};
pub use explain::{ExplainedReplica, ExplainedWait, Explanation};
pub use health::{HealthDocument, PeerHealthDocument};
pub use history::{HistoryEntry, RevisionState};
pub use images::{
    ImageImportRequest, ImageInfo, ImageName, ImagePullRequest, ImagesRemoved, PullProgress, PullState,
};
pub use logs::{LogRecord, LogStream};
pub use net_check::{NetCheck, NetStep, NetStepKind, NetVerdict};
pub use nodes::{NodeDrainRequest, NodeLabelRequest};
pub use notify::{NoticeKind, NotifySetRequest, NotifyStatus};
pub use past::{PastDifference, PastGap, PastMoment, PastWindow, SpecDifference};
pub use plan::{DeploymentPlan, PlanChange, PlannedPlacement, PlannedService, PlannedWait};
pub use progress::{Progress, ProgressOutcome, ProgressResult, PullingProgress, ServiceProgress};
pub use rebalance::{NodeFigures, PlannedMove, RebalancePlan, RebalanceRequest};
pub use registries::{LOGIN_CHARS_MAX, RegistryInfo, RegistryLogin};
pub use rollouts::{RolloutRequest, RolloutStage, RolloutStatus, RolloutVerb};
pub use secrets::{SECRET_BYTES_MAX, SecretInfo};
pub use sources::{SourceAcceptRequest, SourceAddRequest, SourceStatus, SourceSynced};
pub use tokens::{
    TOKEN_NAME_CHARS_MAX, TokenCreateRequest, TokenCreated, TokenInfo, TokenKind, TokenRole, WorkerCaRotated,
    WorkerTokenCreateRequest,
};
pub use upgrade::{OlderNode, ServerLevel, UpgradeCheck};
pub use volumes::{SilentNode, VolumeHome, VolumeHomeRequest, VolumeInfo, VolumeListing, VolumeRemoved};

#[cfg(test)]
mod tests;
