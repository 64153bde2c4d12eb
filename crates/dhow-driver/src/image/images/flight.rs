//! Pulls under way. Callers that want the same reference share one: its work, its progress and its outcome,
//! so that a registry that is down is waited for once and not once per replica.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{Image, ImagesParts};
use crate::image::error::{ImageError, Subject};
use crate::image::progress::{ProgressSender, PullProgress};
use crate::image::pull;
use crate::image::reference::ImageRef;

/// The pulls under way, by reference.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Only those that somebody waits for; the mutex is held for a map operation, never longer.
    map: Mutex<HashMap<ImageRef, Weak<Flight>>>,
}

/// One pull, alive while somebody wants it.
#[derive(Debug)]
struct Flight {
    progress: ProgressSender,
    /// Kept here alone and not in a channel, so that nobody but those who asked holds the image.
    outcome: Mutex<Option<Result<Image, ImageError>>>,
    ended: watch::Receiver<bool>,
    task: AbortHandle,
    /// Blocking work cannot be aborted; it looks at this.
    cancelled: Arc<AtomicBool>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// A pull that was asked for. Dropping it gives up the interest in it.
#[derive(Debug)]
pub struct Pull {
    reference: ImageRef,
    flight: Arc<Flight>,
}

impl Pull {
    /// How far it has come; keeps the newest value only.
    pub fn progress(&self) -> watch::Receiver<PullProgress> {
        self.flight.progress.subscribe()
    }

    /// Waits for the image.
    pub async fn wait(self) -> Result<Image, ImageError> {
        let mut ended = self.flight.ended.clone();
        // An error says that the task ended without an outcome: the runtime is shutting down.
        let _ = ended.wait_for(|ended| *ended).await;
        let outcome = self
            .flight
            .outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        outcome.unwrap_or_else(|| Err(Subject::of(&self.reference).cancelled()))
    }
}

impl Flights {
    pub fn join(&self, inner: &Arc<ImagesParts>, reference: &ImageRef) -> Pull {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let running = map.get(reference).and_then(Weak::upgrade);
        // One that has ended told what held then; a new caller wants what holds now.
        let running = running.filter(|flight| !*flight.ended.borrow() && !flight.task.is_finished());
        let flight = running.unwrap_or_else(|| {
            map.retain(|_, flight| flight.strong_count() > 0);
            let flight = Flight::start(Arc::clone(inner), reference.clone());
            map.insert(reference.clone(), Arc::downgrade(&flight));
            flight
        });
        Pull {
            reference: reference.clone(),
            flight,
        }
    }
}

impl Flight {
    fn start(inner: Arc<ImagesParts>, reference: ImageRef) -> Arc<Self> {
        let progress = ProgressSender::new();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (sender, ended) = watch::channel(false);
        let job = pull::Job {
            inner,
            reference,
            progress: progress.clone(),
            cancelled: Arc::clone(&cancelled),
        };
        Arc::new_cyclic(|flight: &Weak<Self>| {
            let flight = flight.clone();
            let task = tokio::spawn(async move {
                let outcome = job.run().await;
                if let Some(flight) = flight.upgrade() {
                    *flight.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                }
                sender.send_replace(true);
            });
            Self {
                progress,
                outcome: Mutex::default(),
                ended,
                task: task.abort_handle(),
                cancelled,
            }
        })
    }
}
