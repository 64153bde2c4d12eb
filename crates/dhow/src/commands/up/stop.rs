//! What ends `dhow up` in the foreground: Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Two signals within this time are one: some senders reach a process twice, by its number and by its group, and a
/// terminal that is closed may be told by its shell and by the kernel.
const ECHO: Duration = Duration::from_millis(500);

/// Cancels the token with the first signal that asks for an end.
pub(super) fn stop_on_signals(stop: &CancellationToken) -> io::Result<()> {
    let mut signals = Signals::new()?;
    let stop = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        stop.cancel();
    });
    Ok(())
}

/// A signal that is not the echo of the first.
pub(super) async fn second_signal() {
    tokio::time::sleep(ECHO).await;
    match Signals::new() {
        Ok(mut signals) => signals.next().await,
        // They were caught once; where they cannot be any more, nobody asks.
        Err(_) => std::future::pending().await,
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started this wants it to outlive the terminal, as `nohup` does.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hang_up = match ignores_hang_up(&status) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up,
        })
    }

    async fn next(&mut self) {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hang_up => {}
        }
    }
}

/// Whether the status of a process, as the kernel writes it, says that it ignores SIGHUP.
fn ignores_hang_up(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signals count from 1, and SIGHUP is the first.
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores_hang_up;

    #[test]
    fn a_process_under_nohup_outlives_its_terminal() {
        assert!(ignores_hang_up("Name:\tdhow\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hang_up("Name:\tdhow\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hang_up(""));
    }
}
