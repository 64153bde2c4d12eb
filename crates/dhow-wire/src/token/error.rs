//! Every way in which a token is refused, each with its own words.

use crate::problem::ProblemCode;

/// Why a worker's token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the bootstrap token is malformed: use the whole line that `dhow token create-worker` printed")]
    Malformed(#[from] MalformedToken),
    #[error(
        "the bootstrap token has a bad signature: it was not made by this cluster, or was changed on its way; \
         make a new one with `dhow token create-worker`"
    )]
    BadSignature,
    #[error(
        "the bootstrap token expired {ago_secs} s ago: make a new one with `dhow token create-worker`, and check \
         this host's clock if it should still be valid"
    )]
    Expired { ago_secs: u64 },
    #[error(
        "the bootstrap token belongs to another cluster, {of_token:?}; this one is {own:?}: make one here with \
         `dhow token create-worker`, or give the worker the other cluster's servers"
    )]
    AnotherCluster { of_token: String, own: String },
    #[error(
        "the bootstrap token is used up: it was good for {uses} workers; make a new one with \
         `dhow token create-worker --uses N`"
    )]
    UsedUp { uses: u32 },
    #[error(
        "the bootstrap token does not allow the label {key}={value}: drop it from the worker's labels, or make \
         a token that names it with `--label`"
    )]
    LabelNotAllowed { key: String, value: String },
    #[error("a bootstrap token cannot be made: {reason}")]
    CannotIssue { reason: &'static str },
}

/// What is wrong with the form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedToken {
    #[error("there is nothing in it")]
    Empty,
    #[error("it is longer than any token")]
    TooLong,
    #[error("it holds characters that are not URL-safe base64, or ends in the middle")]
    NotBase64,
    #[error("it ends too early")]
    Truncated,
    #[error("it has version {found}, which this version of Dhow does not know")]
    OtherVersion { found: u8 },
    #[error("what it says cannot be read")]
    Claims,
}

impl TokenError {
    /// The code with which the API refuses it.
    pub fn problem_code(&self) -> ProblemCode {
        match self {
            Self::Malformed(_) => ProblemCode::TokenMalformed,
            Self::BadSignature => ProblemCode::TokenBadSignature,
            Self::Expired { .. } => ProblemCode::TokenExpired,
            Self::AnotherCluster { .. } => ProblemCode::TokenOtherCluster,
            Self::UsedUp { .. } => ProblemCode::TokenUsedUp,
            Self::LabelNotAllowed { .. } => ProblemCode::TokenLabels,
            Self::CannotIssue { .. } => ProblemCode::BadRequest,
        }
    }
}
