//! What can be wrong with a reference, each with a sentence for the person who wrote it.

use super::super::digest::DigestError;

/// Why a text is no image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("the image is empty; write a name such as `nginx:1.27`")]
    Empty,
    #[error("the image reference is {length_bytes} bytes long; the limit is {max_bytes}")]
    TooLong { length_bytes: usize, max_bytes: usize },
    #[error("the image `{text}` holds the character {character:?}, which no reference may hold")]
    Character { text: String, character: char },
    #[error(
        "an image reference has no `{scheme}://`; write `{rest}` \
         (only a registry on loopback may speak plain HTTP)"
    )]
    Scheme { scheme: String, rest: String },
    #[error("the image `{text}` names no path; {what} belongs after the colon")]
    NoPath { text: String, what: &'static str },
    #[error("the registry `{registry}` in the image `{text}` is no host name with an optional port")]
    Registry { text: String, registry: String },
    #[error("repository names are lower case; did you mean `{suggestion}` instead of `{text}`?")]
    UpperCase { text: String, suggestion: String },
    #[error(
        "the repository `{repository}` in the image `{text}` is malformed; its parts are a-z and 0-9, \
         joined by `.`, `_`, `__` or `-`, and separated by `/`"
    )]
    Repository { text: String, repository: String },
    #[error("the repository name in `{text}` is longer than {max_bytes} bytes")]
    RepositoryTooLong { text: String, max_bytes: usize },
    #[error(
        "the tag `{tag}` in the image `{text}` is malformed; a tag has 1 to 128 letters, digits, `_`, `.` \
         or `-` and does not start with `.` or `-`"
    )]
    Tag { text: String, tag: String },
    #[error(transparent)]
    Digest(#[from] DigestError),
}
