//! The handle of a running runtime.

use std::sync::Arc;

use tokio::sync::watch;

use super::error::RuntimeFailure;
use super::event_log::EventLogSender;
use super::inbox::InputSender;
use super::shutdown::RuntimeTask;
use super::view::RuntimeView;

/// How the reducer ended; none while it runs.
pub(super) type Ended = Option<Result<(), Arc<RuntimeFailure>>>;

/// Gives what others need of the runtime, and outlives it: what it gave may be dropped, and the runtime may end,
/// before its tasks are waited for.
#[derive(Debug)]
pub struct RuntimeHandle {
    pub(super) input: InputSender,
    pub(super) event_log: EventLogSender,
    pub(super) view: RuntimeView,
    pub(super) ended: watch::Receiver<Ended>,
    pub(super) tasks: Vec<RuntimeTask>,
}

impl RuntimeHandle {
    /// The way to the reducer.
    pub fn input(&self) -> InputSender {
        self.input.clone()
    }

    /// The way to the event log.
    pub fn event_log(&self) -> EventLogSender {
        self.event_log.clone()
    }

    /// What readers see.
    pub fn view(&self) -> RuntimeView {
        self.view.clone()
    }

    /// Waits until the reducer has ended, and says why where it failed. A daemon waits for this beside its
    /// signals: a runtime that fails ends the daemon with the cause.
    pub async fn ended(&self) -> Result<(), Arc<RuntimeFailure>> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ok(())),
            // It was dropped without a word: it panicked, or was aborted.
            Err(_) => Err(Arc::new(RuntimeFailure::Reducer)),
        }
    }

    /// All tasks, to wait for with [`super::drain`]. The handle's own way to the reducer is given up with it.
    pub fn into_join_handles(self) -> Vec<RuntimeTask> {
        self.tasks
    }
}
