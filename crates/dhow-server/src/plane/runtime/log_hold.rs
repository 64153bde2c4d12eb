//! The last handle of the log. Closing a log waits for its disk, so it is never done on a thread that others need: an
//! orderly end waits for it beside, and a reducer that is aborted because its disk hangs leaves it behind.

use std::sync::Arc;

use crate::plane::log::Log;

/// Held by the reducer's task for longer than the reducer itself has the log.
pub(super) struct LogHold {
    /// Taken when the hold ends.
    log: Option<Arc<dyn Log>>,
}

impl LogHold {
    pub fn new(log: &Arc<dyn Log>) -> Self {
        Self {
            log: Some(Arc::clone(log)),
        }
    }

    /// Lets the log go and waits until it is closed, where nobody else has it.
    pub async fn close(mut self) {
        let log = self.log.take();
        if let Some(log) = &log {
            log.close().await;
        }
        // A thread that panicked while closing has closed all that it could.
        let _ = tokio::task::spawn_blocking(move || drop(log)).await;
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            // Where no thread can be had the log is closed here, which may take as long as the disk does.
            let _ = std::thread::Builder::new()
                .name("log-close".to_owned())
                .spawn(move || drop(log));
        }
    }
}
