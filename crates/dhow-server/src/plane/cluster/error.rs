//! Why the cluster did not do something.

use dhow_core::ids::NodeId;
use dhow_wire::{ClusterModeName, Problem, ProblemCode};

/// Why a read cannot be known to be up to date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// Another server leads, or none.
    #[error("this server does not lead the cluster")]
    NotLeader,
    #[error("the server is shutting down")]
    Ended,
}

/// Why a server was not taken in or put out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    #[error("a {} cluster has no members to add or remove; {hint}", mode_word(*mode))]
    Fixed {
        mode: ClusterModeName,
        hint: &'static str,
    },
    #[error("node {0} is not a server of this cluster; `dhow cluster status` lists them")]
    Unknown(NodeId),
    #[error("the cluster has no leader at the moment; try again shortly")]
    NotLeader,
    /// What the log says.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    OutcomeUnknown(String),
}

fn mode_word(mode: ClusterModeName) -> &'static str {
    match mode {
        ClusterModeName::SingleNode => "single-node",
        ClusterModeName::Raft => "raft",
        ClusterModeName::Static => "static",
        ClusterModeName::WorkerTier => "worker-tier",
    }
}

impl From<MembershipError> for Problem {
    fn from(error: MembershipError) -> Self {
        let code = match &error {
            MembershipError::Fixed { .. } => ProblemCode::WrongMode,
            MembershipError::Unknown(_) => ProblemCode::NotFound,
            MembershipError::NotLeader => ProblemCode::NoLeader,
            MembershipError::Refused(_) => ProblemCode::Refused,
            MembershipError::OutcomeUnknown(_) => ProblemCode::OutcomeUnknown,
        };
        Problem::new(code, error.to_string())
    }
}
