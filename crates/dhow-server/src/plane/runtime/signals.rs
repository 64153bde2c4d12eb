//! SIGTERM and SIGINT begin an orderly end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Cancels the token at the first SIGTERM or SIGINT. From the moment this returns the signals no longer end the
/// process by themselves. The task ends with the token, however that is cancelled.
pub fn cancel_on_signals(cancel: CancellationToken) -> io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = cancel.cancelled() => return,
        };
        tracing::info!(signal = name, "shutting down");
        cancel.cancel();
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};

    #[tokio::test]
    async fn both_signals_cancel() {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let cancel = CancellationToken::new();
            let task = cancel_on_signals(cancel.clone()).unwrap();
            raise(signal).unwrap();
            cancel.cancelled().await;
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_task_ends_with_the_token() {
        let cancel = CancellationToken::new();
        let task = cancel_on_signals(cancel.clone()).unwrap();
        cancel.cancel();
        task.await.unwrap();
    }
}
