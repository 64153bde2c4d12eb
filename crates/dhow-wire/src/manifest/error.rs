//! Every way in which a set is refused. None of it changes anything in the cluster.

use super::received::{FILE_BYTES_MAX, FILES_MAX, SET_BYTES_MAX};

/// Why a set of manifests was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the index of the set is {found} bytes long, the limit is {max}: split the set")]
    IndexTooLarge { found: usize, max: usize },
    #[error("the set has {found} files, the limit is {FILES_MAX}: split it")]
    TooManyFiles { found: usize },
    #[error("{path} is {found} bytes long, the limit for one deployment file is {FILE_BYTES_MAX}")]
    FileTooLarge { path: String, found: u64 },
    #[error("the files of the set are {found} bytes together, the limit is {SET_BYTES_MAX}: split it")]
    SetTooLarge { found: u64 },
    #[error("the signature of the index is not 128 hexadecimal digits: sign the set again")]
    MalformedSignature,
    #[error(
        "the index of the set is not signed with a key that this cluster trusts: it was changed after \
         signing, or signed with another key"
    )]
    BadSignature,
    #[error("the index is signed but cannot be read: it was made by another version, or by another tool")]
    MalformedIndex {
        #[source]
        cause: IndexReadError,
    },
    #[error(
        "the set is dated {ahead_secs} s in the future, more than the {allowed_secs} s allowed: check the clocks \
         of this host and of the one that signed"
    )]
    FutureDated { ahead_secs: u64, allowed_secs: u32 },
    #[error(
        "the set has version {found} but is dated {behind_secs} s before version {previous}, more than the \
         {allowed_secs} s allowed: check the clock of the host that signed"
    )]
    BackDated {
        found: u64,
        previous: u64,
        behind_secs: u64,
        allowed_secs: u32,
    },
    #[error(
        "version {version} of the set was signed {age_secs} s ago, more than the `max_age` of {max_secs} s: sign a new one"
    )]
    Stale {
        version: u64,
        age_secs: u64,
        max_secs: u64,
    },
    #[error(
        "the set has version {found}, older than version {previous}, which was taken from this source already: sign \
         it again, with a higher version"
    )]
    Older { found: u64, previous: u64 },
    #[error(
        "the set has version {version}, as the one that was taken, but other content: give every new set a higher \
         version"
    )]
    SameVersionOtherContent { version: u64 },
    #[error(
        "the index names {path:?}, which is not a plain relative path of letters, digits, `.`, `_` and `-`"
    )]
    BadPath { path: String },
    #[error("the index names {path} as a deployment file, but that name belongs to the set itself")]
    ReservedPath { path: String },
    #[error("the index names {path} twice")]
    DuplicatePath { path: String },
    #[error("{path} is in the index but not in the set")]
    MissingFile { path: String },
    #[error("{path:?} lies in the set but is not in the index")]
    ExtraFile { path: String },
    #[error("{path} is {found} bytes long, the index says {expected}: it was changed after signing")]
    WrongSize { path: String, expected: u64, found: u64 },
    #[error("{path} has other content than the index says: it was changed after signing, or swapped")]
    WrongHash { path: String },
    #[error("{path} is not UTF-8 text")]
    NotText { path: String },
    #[error("{path} is not a valid deployment file:\n{findings}")]
    InvalidDeployment { path: String, findings: String },
    #[error("{path} and {other} both define the deployment {deployment}")]
    DuplicateDeployment {
        deployment: String,
        path: String,
        other: String,
    },
}

/// What the JSON reader said; kept as text, because its own error cannot be compared or cloned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IndexReadError(pub(super) String);
