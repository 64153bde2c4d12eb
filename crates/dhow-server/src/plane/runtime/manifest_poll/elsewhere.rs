//! One look at what a server elsewhere has.

use std::sync::Arc;

use dhow_core::state::{RemoteSource, State};
use dhow_wire::manifest::Verdict;

use super::judge::{Judge, Purpose, SourceError};
use crate::plane::remote_sets::{self, Credentials, Known, Read, RemoteError};
use crate::plane::secrets::SecretBox;

/// What a look came to, and the commit that need not be read again.
pub(super) type Found = (Verdict, Option<Arc<str>>);

/// Reads what is there and judges it.
pub(super) async fn look_elsewhere(
    judge: Judge,
    remote: &RemoteSource,
    state: &State,
    secrets: Option<&SecretBox>,
    looked_at: Option<Arc<str>>,
) -> Result<Found, SourceError> {
    let unread = |judge: &Judge, cause: RemoteError| SourceError::Elsewhere {
        place: judge.place(),
        cause: Box::new(cause),
    };
    let is_asked = judge.is_wanted_again || judge.purpose != Purpose::Follow;
    let known = Known {
        commit: judge.source.commit(state),
        index_hash: judge.taken.filter(|_| !is_asked).map(|taken| taken.index_hash),
        looked_at: looked_at.filter(|_| !is_asked),
    };
    let credentials = Credentials::of(remote, state, secrets).map_err(|cause| unread(&judge, cause))?;
    let read = remote_sets::read(remote, credentials, &known).await;
    match read.map_err(|cause| unread(&judge, cause))? {
        Read::Unchanged => Ok((Verdict::Unchanged, known.looked_at)),
        Read::Set {
            set,
            commit,
            rewritten,
        } => {
            // Hashes and files of megabytes.
            let judged = tokio::task::spawn_blocking(move || {
                let verdict = judge.verdict(&set, commit.as_ref(), rewritten)?;
                Ok((verdict, commit))
            });
            let (verdict, commit) = judged.await.unwrap_or(Err(SourceError::CutOff))?;
            let is_unchanged = verdict == Verdict::Unchanged;
            Ok((verdict, commit.filter(|_| is_unchanged)))
        }
    }
}
