//! What callers of the runtime are told, and why the runtime ended.

use std::sync::Arc;

use dhow_core::command::Refused;
use dhow_core::ids::NodeId;
use dhow_wire::log_form::LogFormError;
use dhow_wire::{Problem, ProblemCode};

use super::limits::RETRY_AFTER_SECS;
use crate::plane::log::RecoverError;
use crate::plane::log::store::StoreError;

/// Why an input was not taken. Nothing of it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    #[error("the server has as much to do as it can hold; try again in {RETRY_AFTER_SECS} s")]
    Full,
    #[error("the server is shutting down")]
    Closed,
}

/// Why a write was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the server has as much to do as it can hold; try again in {RETRY_AFTER_SECS} s")]
    Busy,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("{}", told_leader(*leader))]
    NotLeader { leader: Option<NodeId> },
    /// The state says no. It is in the log, and changed nothing.
    #[error(transparent)]
    Refused(Refused),
    /// It was never proposed.
    #[error("the change cannot be written to the log")]
    Unwritable(#[source] Arc<LogFormError>),
    /// The log did not take it, and nothing was written.
    #[error("the log did not take the change; nothing was written")]
    NotTaken(#[source] Arc<StoreError>),
    #[error(
        "the data directory of this server was removed or moved under it: nothing can be kept. Put it back, or restart \
         the daemon; nothing was written"
    )]
    StorageGone,
    #[error(
        "it is not known whether the change was made; ask for the present state, or send the same request again \
         with the same idempotency key"
    )]
    Unknown,
}

fn told_leader(leader: Option<NodeId>) -> String {
    match leader {
        Some(leader) => format!("this server does not lead the cluster, node {leader} does; send it there"),
        None => "the cluster has no leader at the moment; try again shortly".to_owned(),
    }
}

impl WriteError {
    /// The problem that an API answers with.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Busy => ProblemCode::Busy,
            Self::ShuttingDown => ProblemCode::ShuttingDown,
            Self::NotLeader { .. } => ProblemCode::NoLeader,
            Self::Refused(refused) => refused_code(refused),
            Self::Unwritable(cause) => match cause.as_ref() {
                LogFormError::TooLarge { .. } => ProblemCode::TooLarge,
                LogFormError::OlderServers { .. } => ProblemCode::Refused,
                LogFormError::Empty { .. }
                | LogFormError::UnknownVersion { .. }
                | LogFormError::Malformed { .. }
                | LogFormError::Trailing { .. }
                | LogFormError::Unwritable { .. }
                | LogFormError::Io { .. } => ProblemCode::Internal,
            },
            Self::NotTaken(cause) if matches!(cause.as_ref(), StoreError::TooLarge { .. }) => {
                ProblemCode::TooLarge
            }
            Self::NotTaken(_) => ProblemCode::Internal,
            Self::StorageGone => ProblemCode::StorageGone,
            Self::Unknown => ProblemCode::OutcomeUnknown,
        }
    }

    /// Seconds for `Retry-After`, where trying again is the thing to do.
    pub fn retry_after_secs(&self) -> Option<u32> {
        match self {
            Self::Busy | Self::NotLeader { leader: None } => Some(RETRY_AFTER_SECS),
            Self::ShuttingDown
            | Self::NotLeader { leader: Some(_) }
            | Self::Refused(_)
            | Self::Unwritable(_)
            | Self::NotTaken(_)
            | Self::StorageGone
            | Self::Unknown => None,
        }
    }
}

/// What the API answers with, causes included.
impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        let mut detail = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            detail.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        Self {
            retry_after_secs: error.retry_after_secs(),
            ..Self::new(error.code(), detail)
        }
    }
}

/// What a refusal of the state is called in the API.
pub(crate) fn refused_code(refused: &Refused) -> ProblemCode {
    match refused {
        Refused::Missing(_) => ProblemCode::NotFound,
        Refused::KeyReused => ProblemCode::IdempotencyMismatch,
        Refused::BadSpec(_) | Refused::TooManyReplicas { .. } => ProblemCode::InvalidSpec,
        Refused::TokenUsedUp(_) => ProblemCode::TokenUsedUp,
        Refused::TokenExpired => ProblemCode::TokenExpired,
        Refused::TokenRevoked => ProblemCode::Unauthorized,
        Refused::Stale(_)
        | Refused::OldTerm { .. }
        | Refused::AlreadyBootstrapped
        | Refused::FeatureLevel { .. }
        | Refused::Removing(_)
        | Refused::NothingToRollBackTo(_)
        | Refused::NothingToRestart(_)
        | Refused::NoRollout(_)
        | Refused::NoCanary(_)
        | Refused::NotPaused(_)
        | Refused::CanaryUnderWay(_)
        | Refused::Quarantined { .. }
        | Refused::WhichRole { .. }
        | Refused::NotScalable { .. }
        | Refused::NoSchedule(_)
        | Refused::Stopped(_)
        | Refused::RunUnderWay { .. }
        | Refused::TooManyRuns { .. }
        | Refused::TooManyNodes { .. }
        | Refused::NodeInUse(_)
        | Refused::NodeIdUsed(_)
        | Refused::NodeIdRange(_)
        | Refused::NodeRole(_)
        | Refused::NoNodeIds
        | Refused::TokenKnown
        | Refused::TooManyApiTokens { .. }
        | Refused::Gap { .. }
        | Refused::Incarnation { .. }
        | Refused::OldInventory { .. }
        | Refused::OldManifests { .. }
        | Refused::SourceWins { .. }
        | Refused::SourceKeeps { .. }
        | Refused::NothingToSuspend(_)
        | Refused::EmptySet { .. }
        | Refused::RemovesMost { .. }
        | Refused::NotInForce { .. }
        | Refused::SecretOfSource { .. }
        | Refused::NotNow(_)
        | Refused::SecretUsed { .. }
        | Refused::TooManyConfigs { .. }
        | Refused::PortTaken { .. } => ProblemCode::Refused,
    }
}

impl From<InboxError> for WriteError {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::Full => Self::Busy,
            InboxError::Closed => Self::ShuttingDown,
        }
    }
}

/// Why the reducer ended although nobody asked it to. The daemon stops with this as its cause: what is durable is
/// safe, and going on would not be.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeFailure {
    #[error("the log failed; what was acknowledged is safe. Start the daemon again once the disk is sound")]
    Log(#[source] Arc<StoreError>),
    #[error("the log has ended while the server was running")]
    LogEnded,
    #[error("entry {index} of the log cannot be applied")]
    Entry {
        index: u64,
        #[source]
        cause: LogFormError,
    },
    #[error("the snapshot at entry {index} cannot be taken over")]
    Snapshot {
        index: u64,
        #[source]
        cause: RecoverError,
    },
    #[error("the planner failed on a valid state; this is a bug in Dhow, please report it: {message}")]
    Planner { message: String },
    #[error("the reducer failed; this is a bug in Dhow, please report it with the log above")]
    Reducer,
}
