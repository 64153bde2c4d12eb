//! Whether one commit comes after another one.

use std::collections::BTreeSet;

use super::object::ObjectId;
use super::pack::Pack;
use super::protocol::{Server, Want};
use super::unpacked;
use crate::plane::remote_sets::error::RemoteError;

/// Why `tip` does not come after `before`, in words; none where it does. The server sends the commits that are behind the
/// one and not behind the other; whether their parents lead there is seen here.
pub(super) async fn why_not_after(
    server: &Server<'_>,
    tip: ObjectId,
    before: ObjectId,
) -> Result<Option<String>, RemoteError> {
    let not_shown = |why: &str| {
        Some(format!(
            "commit {tip} does not come after {before}, which is in force{why}"
        ))
    };
    let fetched = match server.fetch(&Want::commits_since(tip, before)).await {
        Ok(pack) => unpacked(pack, Pack::default()).await,
        Err(error) => Err(error),
    };
    match fetched {
        Ok(pack) if comes_after(&pack, tip, before) => Ok(None),
        Ok(_) => Ok(not_shown("")),
        // A server that does not know the commit any more sends the whole history.
        Err(RemoteError::TooLarge { .. }) => Ok(not_shown(", as far as can be seen")),
        Err(error) => Err(error),
    }
}

fn comes_after(pack: &Pack, tip: ObjectId, before: ObjectId) -> bool {
    let mut seen = BTreeSet::from([tip]);
    let mut next = vec![tip];
    while let Some(id) = next.pop() {
        let Some((_, parents)) = pack.get(&id).and_then(|object| object.commit()) else {
            continue;
        };
        for parent in parents {
            if parent == before {
                return true;
            }
            if seen.insert(parent) {
                next.push(parent);
            }
        }
    }
    false
}
