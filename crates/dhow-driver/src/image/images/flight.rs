//! Pulls under way. Callers that want the same reference share one: its work, its progress and its outcome,
//! so that a registry that is down is waited for once and not once per replica.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{Image, Inner};
use crate::image::error::{ImageError, Subject};
use crate::image::progress::{ProgressSender, PullProgress};
use crate::image::pull;
use crate::image::reference::ImageRef;

type Outcome = Option<Result<Image, ImageError>>;

#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Only those that somebody waits for; the mutex is held for a map operation, never longer.
    map: Mutex<HashMap<ImageRef, Weak<Flight>>>,
}

/// One pull, alive while somebody wants it.
#[derive(Debug)]
struct Flight {
    progress: ProgressSender,
    outcome: watch::Receiver<Outcome>,
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
        let mut outcome = self.flight.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        let cancelled = || Err(Subject::of(&self.reference).cancelled());
        // An error says that the task ended without an outcome: the runtime is shutting down.
        ended.map_or_else(
            |_| cancelled(),
            |outcome| outcome.clone().unwrap_or_else(cancelled),
        )
    }
}

impl Flights {
    pub fn join(&self, inner: &Arc<Inner>, reference: &ImageRef) -> Pull {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let running = map.get(reference).and_then(Weak::upgrade);
        // One that has ended told what held then; a new caller wants what holds now.
        let running =
            running.filter(|flight| flight.outcome.borrow().is_none() && !flight.task.is_finished());
        let flight = running.unwrap_or_else(|| {
            map.retain(|_, flight| flight.strong_count() > 0);
            let flight = Arc::new(Flight::start(Arc::clone(inner), reference.clone()));
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
    fn start(inner: Arc<Inner>, reference: ImageRef) -> Self {
        let progress = ProgressSender::new();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (sender, outcome) = watch::channel(None);
        let job = pull::Job {
            inner,
            reference,
            progress: progress.clone(),
            cancelled: Arc::clone(&cancelled),
        };
        let task = tokio::spawn(async move {
            let ended = job.run().await;
            sender.send_replace(Some(ended));
        });
        Self {
            progress,
            outcome,
            task: task.abort_handle(),
            cancelled,
        }
    }
}
