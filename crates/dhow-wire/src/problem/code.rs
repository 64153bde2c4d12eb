//! The kinds of problems. A code is a promise to scripts: it is never renamed, and keeps its HTTP status and
//! its exit code.

/// What the command line ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    Done = 0,
    Failed = 1,
    BadInput = 2,
    NoLeader = 3,
    NotFoundOrRefused = 4,
}

impl ExitCode {
    pub fn as_u8(self) -> u8 {
        self as u8
    }

    /// For a status without a code that we know.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Done,
            400 | 405 | 411 | 413..=415 | 422 => Self::BadInput,
            404 | 409 | 410 | 412 => Self::NotFoundOrRefused,
            502 | 503 => Self::NoLeader,
            _ => Self::Failed,
        }
    }
}

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $status:literal, $exit:ident, $title:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode {
            $($(#[$doc])* $name,)*
        }

        impl ProblemCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The HTTP status that it goes with.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// What the command line ends with when it gets one.
            pub fn exit_code(self) -> ExitCode {
                match self {
                    $(Self::$name => ExitCode::$exit,)*
                }
            }

            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == text)
            }
        }
    };
}

problem_codes! {
    /// The request cannot be read at all.
    BadRequest, "bad_request", 400, BadInput, "The request cannot be read";
    /// The deployment file or another document breaks rules; the findings say which.
    InvalidSpec, "invalid_spec", 422, BadInput, "The document has errors";
    /// The body says to be something that this address does not take.
    UnsupportedMediaType, "unsupported_media_type", 415, BadInput, "The body is of a kind that is not taken";
    TooLarge, "too_large", 413, BadInput, "The request is too large";
    /// The body did not come in time.
    RequestTimeout, "request_timeout", 408, Failed, "The request took too long to come";
    /// No token, or one that is not valid.
    Unauthorized, "unauthorized", 401, Failed, "A valid token is needed";
    /// Known, but not allowed.
    Forbidden, "forbidden", 403, Failed, "This is not allowed";
    NotFound, "not_found", 404, NotFoundOrRefused, "There is no such thing";
    MethodNotAllowed, "method_not_allowed", 405, BadInput, "This address does not take that method";
    /// The state says no; the detail says why.
    Refused, "refused", 409, NotFoundOrRefused, "The present state does not allow it";
    /// The route belongs to another cluster mode.
    WrongMode, "wrong_mode", 409, NotFoundOrRefused, "This cluster mode does not use that";
    /// The same `Idempotency-Key` came with another body.
    IdempotencyMismatch, "idempotency_mismatch", 409, NotFoundOrRefused, "The key was used for another request";
    /// The event log no longer holds the revision asked for.
    RevisionGone, "revision_gone", 410, NotFoundOrRefused, "That revision is no longer kept";
    /// A full inbox: try again after the time given.
    Busy, "busy", 503, Failed, "The server is busy";
    NoLeader, "no_leader", 503, NoLeader, "The cluster has no leader";
    ShuttingDown, "shutting_down", 503, NoLeader, "The server is shutting down";
    /// The disk of the server has no room.
    DiskFull, "disk_full", 503, Failed, "The disk of the server is full";
    /// Nothing can be kept: the data directory was removed or moved.
    StorageGone, "storage_gone", 503, Failed, "The data directory is gone";
    /// It may or may not have happened.
    OutcomeUnknown, "outcome_unknown", 504, Failed, "The outcome is not known";
    /// Another node had to answer and did not.
    NodeUnreachable, "node_unreachable", 502, Failed, "The node does not answer";
    /// A node tried it, with somebody else it may be, and that did not work.
    Failed, "failed", 502, Failed, "It was tried and did not work";
    /// What this build or host cannot do.
    NotSupported, "not_supported", 501, Failed, "This host cannot do that";
    Internal, "internal", 500, Failed, "An error inside the server";
    TokenMalformed, "token_malformed", 401, Failed, "The bootstrap token cannot be read";
    TokenBadSignature, "token_bad_signature", 401, Failed, "The bootstrap token was not signed by this cluster";
    TokenExpired, "token_expired", 401, Failed, "The bootstrap token has expired";
    TokenUsedUp, "token_used_up", 401, Failed, "The bootstrap token has been used up";
    TokenOtherCluster, "token_other_cluster", 401, Failed, "The bootstrap token belongs to another cluster";
    TokenLabels, "token_labels", 403, Failed, "The bootstrap token does not allow these labels";
}
