//! Why a set could not be read from elsewhere. No message has a credential or more than a line of what a server said.

use dhow_wire::manifest::{FILES_MAX, SET_BYTES_MAX};

use super::limits::{DEPTH_MAX, LOOK_DEADLINE};

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("the address cannot be used: {0}")]
    BadUrl(String),
    #[error("the secret `{0}` is not there; `dhow secret set {0}` keeps one")]
    NoSecret(String),
    #[error("the secret `{0}` cannot be used: {1}")]
    BadSecret(String, &'static str),
    #[error("the server cannot be reached")]
    Unreachable(#[source] HttpCause),
    #[error("the server took longer than {} s and was given up", LOOK_DEADLINE.as_secs())]
    TooSlow,
    #[error("the server answered {status} to {what}{hint}")]
    Status {
        status: u16,
        what: String,
        hint: &'static str,
    },
    #[error("{what} is larger than {max} bytes: split the set, or give it a repository of its own")]
    TooLarge { what: String, max: u64 },
    #[error("the set has more than {FILES_MAX} files or {SET_BYTES_MAX} bytes; split it")]
    SetTooLarge,
    #[error("the server speaks no git protocol of version 2: {0}")]
    NoProtocol(String),
    #[error("the repository has no branch or tag `{0}`")]
    NoReference(String),
    #[error("the repository has no folder `{0}` at that commit")]
    NoFolder(String),
    #[error("there is no `index.json` in that folder: `dhow source sign` makes it")]
    NoIndex,
    #[error("the server says: {0}")]
    Said(String),
    #[error("what the server sent cannot be read: {0}")]
    Malformed(String),
    #[error("{0} is neither a plain file nor a folder; a set holds nothing else")]
    NotAFile(String),
    #[error("{0} lies deeper than {DEPTH_MAX} folders")]
    TooDeep(String),
    #[error("the reading was cut off")]
    CutOff,
}

/// What the HTTP client said, without the address, which stands before it already.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HttpCause(String);

/// The most of a server's own words that is repeated.
const SAID_CHARS_MAX: usize = 200;

/// A server's words on one line, without what a terminal would act on.
pub(super) fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SAID_CHARS_MAX).collect()
}

impl From<reqwest::Error> for RemoteError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::TooSlow;
        }
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            text.push_str(&format!(": {next}"));
            cause = next.source();
        }
        Self::Unreachable(HttpCause(one_line(text.as_bytes())))
    }
}
