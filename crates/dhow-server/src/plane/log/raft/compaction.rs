//! After the reducer has made a snapshot: the consensus library learns of it, and the log forgets what the snapshot
//! before it covers. So a member that was away for less than the time between two snapshots gets entries, not a
//! snapshot.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::engine::Engine;
use super::limits::MEMBER_TIMEOUT_MS;
use super::types::log_id;
use crate::plane::log::store::StoreError;

/// Works until the log is closed.
pub async fn run(engine: Arc<Engine>, mut wakeups: mpsc::Receiver<()>) {
    let cancel = engine.shared.cancel.clone();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            woken = wakeups.recv() => if woken.is_none() { return },
        }
        let compacted = tokio::select! {
            () = cancel.cancelled() => return,
            compacted = compact(&engine) => compacted,
        };
        if let Err(error) = compacted {
            tracing::warn!(%error, "the log was not made shorter; the next snapshot tries again");
        }
    }
}

async fn compact(engine: &Engine) -> Result<(), StoreError> {
    let newest = engine
        .shared
        .store
        .blocking(|store| Ok(store.snapshots().newest()?.map(|reader| reader.position())))
        .await?;
    let Some(newest) = newest.map(log_id) else {
        return Ok(());
    };
    if engine.raft.trigger().snapshot().await.is_err() {
        return Err(StoreError::Closed);
    }
    let timeout = Duration::from_millis(MEMBER_TIMEOUT_MS);
    let wait = engine.raft.wait(Some(timeout));
    let known = wait.metrics(
        |metrics| metrics.snapshot >= Some(newest),
        "the snapshot is known",
    );
    if known.await.is_err() {
        return Ok(());
    }
    let purgeable = engine
        .shared
        .store
        .blocking(|store| store.snapshots().purgeable())
        .await?;
    if let Some(upto) = purgeable
        && engine.raft.trigger().purge_log(upto.index).await.is_err()
    {
        return Err(StoreError::Closed);
    }
    Ok(())
}
