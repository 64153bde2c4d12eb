//! Reads sets of signed files from servers elsewhere: from below an address, or from a git repository. What comes is
//! believed by nobody here: the manifest poll proves it by its signature. This is only about reading within limits of
//! size and time, from the one server that is named, with credentials that no other one sees. Nothing is kept on disk.

mod error;
mod git;
mod http;
mod https_set;
mod limits;
mod login;

pub use error::RemoteError;
pub use login::Credentials;
pub(crate) use login::open;

use std::sync::Arc;

use dhow_core::state::{RemoteKind, RemoteSource};
use dhow_wire::manifest::ReceivedSet;

use http::RemoteHttp;

/// What is known of a source before it is read.
#[derive(Clone, Debug)]
pub struct Known {
    /// The commit that brought the set in force: what comes must come after it.
    pub commit: Option<Arc<str>>,
    /// The hash of the index in force. A set with this index is not read any further.
    pub index_hash: Option<[u8; 32]>,
    /// A commit that was looked at before and brought nothing new.
    pub looked_at: Option<Arc<str>>,
}

/// What was read.
#[derive(Debug)]
pub enum Read {
    /// Nothing has changed since the last look.
    Unchanged,
    Set {
        set: ReceivedSet,
        commit: Option<Arc<str>>,
        /// Why the commit does not come after the known one, where that is so.
        rewritten: Option<String>,
    },
}

/// Reads a set within [`limits::LOOK_DEADLINE`], whatever the server does.
pub async fn read(
    remote: &RemoteSource,
    credentials: Credentials,
    known: &Known,
) -> Result<Read, RemoteError> {
    let reading = async {
        let http = RemoteHttp::open(&remote.url, credentials).await?;
        match remote.kind {
            RemoteKind::Https => https_set::read(&http, known).await,
            RemoteKind::Git => git::read(&http, remote, known).await,
        }
    };
    let read = tokio::time::timeout(limits::LOOK_DEADLINE, reading).await;
    read.unwrap_or(Err(RemoteError::TooSlow))
}

#[cfg(test)]
mod tests;
