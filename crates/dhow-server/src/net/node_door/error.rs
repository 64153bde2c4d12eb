//! Why a node did not do what it was asked.

use dhow_core::ids::NodeId;
use dhow_wire::{Problem, ProblemCode};

/// The texts are for people: what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoorError {
    #[error("node {node} does not answer: {why}")]
    Unreachable { node: NodeId, why: String },
    #[error("{0}")]
    NotFound(String),
    /// The present state of the node does not allow it.
    #[error("{0}")]
    Refused(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// What this node's host cannot do.
    #[error("{0}")]
    NotSupported(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
}

impl DoorError {
    fn code(&self) -> ProblemCode {
        match self {
            Self::Unreachable { .. } => ProblemCode::NodeUnreachable,
            Self::NotFound(_) => ProblemCode::NotFound,
            Self::Refused(_) => ProblemCode::Refused,
            Self::Failed(_) => ProblemCode::Failed,
            Self::Invalid(_) => ProblemCode::InvalidSpec,
            Self::NotSupported(_) => ProblemCode::NotSupported,
        }
    }
}

impl From<DoorError> for Problem {
    fn from(error: DoorError) -> Self {
        Problem::new(error.code(), error.to_string())
    }
}
