//! The store, as long as the log is open. Everything that works on it borrows it for a moment, so that closing the
//! log closes the store, whatever is still on its way.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::pace::Pace;
use crate::plane::log::store::{Batch, Entry, LogBounds, MetaKey, Op, SegmentStore, StoreError};

/// The open store of a raft log, which closing the log takes away from every part at once; clones are the same slot.
#[derive(Clone, Debug)]
pub struct StoreSlot {
    store: Arc<RwLock<Option<SegmentStore>>>,
    pace: Arc<Pace>,
}

impl StoreSlot {
    pub fn new(store: SegmentStore) -> Self {
        Self {
            store: Arc::new(RwLock::new(Some(store))),
            pace: Arc::default(),
        }
    }

    /// Works on the store. What is done inside must not wait for another task.
    pub fn with<T>(
        &self,
        work: impl FnOnce(&SegmentStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // The lock guards a handle that is only ever taken out whole.
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        work(store.as_ref().ok_or(StoreError::Closed)?)
    }

    /// The same on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SegmentStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let slot = self.clone();
        tokio::task::spawn_blocking(move || slot.with(work))
            .await
            .unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until the steps are durable.
    pub async fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        let begun = Instant::now();
        let (answer, outcome) = oneshot::channel();
        let done = Box::new(move |result: Result<_, StoreError>| {
            // A caller that went away does not want to know.
            let _ = answer.send(result.map(drop));
        });
        self.with(|store| store.submit(Batch::new(ops), done))?;
        let outcome = outcome.await.unwrap_or(Err(StoreError::Closed));
        self.pace.took(begun.elapsed());
        outcome
    }

    /// How long the disk takes.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Entries of a range, from memory where they are there.
    pub async fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        let cached = self.with(|store| Ok(store.read_cached(range.clone(), max_bytes)))?;
        match cached {
            Some(entries) => Ok(entries),
            None => self.blocking(move |store| store.read(range, max_bytes)).await,
        }
    }

    pub fn bounds(&self) -> Result<LogBounds, StoreError> {
        self.with(|store| Ok(store.bounds()))
    }

    pub fn meta(&self, key: MetaKey) -> Result<Option<Bytes>, StoreError> {
        self.with(|store| Ok(store.meta(key)))
    }

    /// Takes the store away from everybody and closes it. Blocks the thread.
    pub fn close(&self) {
        let store = self.store.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(store);
    }
}
