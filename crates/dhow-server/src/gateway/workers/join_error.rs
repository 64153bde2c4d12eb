//! Why a worker was not taken, in both forms of the protocol.

use dhow_core::command::{Missing, Refused};
use dhow_wire::grpc::Refusal;
use dhow_wire::{Problem, ProblemCode, TokenError};

use super::tier::CertificateError;
use crate::plane::runtime::refused_code;

/// Seconds after which a client that was turned away tries again.
const RETRY_SECS: u32 = 1;

/// Why a worker could not join. It becomes a gRPC refusal or a problem of the API.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum JoinError {
    #[error("this cluster takes no workers: it has no worker tier")]
    NoTier,
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The state says no to the token or the node.
    #[error(transparent)]
    State(Refused),
    #[error("the certificate request cannot be used")]
    Csr(#[source] CertificateError),
    #[error(
        "the certificate expired {ago} ago, more than the {max} in which it can be renewed here (`renew_expired_for`): join again with a new token"
    )]
    TooOld { ago: String, max: String },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<JoinError> for Refusal {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::NoTier => Self::NotGiven(error.to_string()),
            JoinError::Token(token) => Self::Credential(token.to_string()),
            JoinError::State(refused) => Self::Credential(refused.to_string()),
            JoinError::Csr(cause) => {
                Self::Credential(format!("the certificate request cannot be used: {cause}"))
            }
            JoinError::TooOld { .. } => Self::Credential(error.to_string()),
            JoinError::Refused(refusal) => refusal,
        }
    }
}

impl From<JoinError> for Problem {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::NoTier => Self::new(ProblemCode::WrongMode, error.to_string()),
            JoinError::Token(token) => Self::new(token.problem_code(), token.to_string()),
            JoinError::State(refused) => Self::new(code_of(&refused), refused.to_string()),
            JoinError::Csr(cause) => Self::new(
                ProblemCode::BadRequest,
                format!("the certificate request cannot be used: {cause}"),
            ),
            JoinError::TooOld { .. } => Self::new(ProblemCode::Unauthorized, error.to_string()),
            JoinError::Refused(refusal) => problem_of(&refusal),
        }
    }
}

/// As of any write, but that a token which nobody knows is no credential, and not a thing that was not found.
fn code_of(refused: &Refused) -> ProblemCode {
    match matches!(refused, Refused::Missing(Missing::Token)) {
        true => ProblemCode::Unauthorized,
        false => refused_code(refused),
    }
}

/// A refusal of the protocol as a problem of the API.
pub(super) fn problem_of(refusal: &Refusal) -> Problem {
    let code = match refusal {
        Refusal::NotLeader { .. } => ProblemCode::NoLeader,
        Refusal::UnknownNode => ProblemCode::NotFound,
        Refusal::Busy | Refusal::TooOften => ProblemCode::Busy,
        Refusal::Identity(_) | Refusal::NotGiven(_) => ProblemCode::Forbidden,
        Refusal::Replaced => ProblemCode::Refused,
        Refusal::ShuttingDown => ProblemCode::ShuttingDown,
        Refusal::Malformed(_) => ProblemCode::BadRequest,
        Refusal::Credential(_) => ProblemCode::Unauthorized,
    };
    let problem = Problem::new(code, refusal.to_string());
    match refusal {
        Refusal::Busy | Refusal::TooOften | Refusal::NotLeader { .. } => {
            problem.with_retry_after_secs(RETRY_SECS)
        }
        Refusal::UnknownNode
        | Refusal::Identity(_)
        | Refusal::Replaced
        | Refusal::ShuttingDown
        | Refusal::Malformed(_)
        | Refusal::Credential(_)
        | Refusal::NotGiven(_) => problem,
    }
}
