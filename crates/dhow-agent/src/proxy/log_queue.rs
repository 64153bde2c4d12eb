//! Lines on their way to the proxy's log, which its shim keeps. Whoever has one never waits for it, whatever becomes of the
//! shim: a thread writes, and what finds no room is counted and told.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait to be written, of some 200 bytes: a tenth of a second of a busy node.
const LINES_MAX: usize = 4096;

/// A thread that writes, and what waits for it.
pub struct LogQueue {
    sender: SyncSender<Waiting>,
    lost: Arc<AtomicU64>,
}

/// What the thread is given.
enum Waiting {
    Line(String),
    /// Whoever wants to know that all before it is written.
    Flush(SyncSender<()>),
}

impl LogQueue {
    /// Begins the thread. `name` is what it calls itself where it tells of lines that are missing.
    pub fn start(name: &'static str, sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&lost);
        std::thread::Builder::new()
            .name(format!("{name}-log"))
            .spawn(move || drain(name, sink, &receiver, &missing))?;
        Ok(Self { sender, lost })
    }

    pub fn write(&self, line: String) {
        if self.sender.try_send(Waiting::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, and no longer than this. It blocks: for the end of the process alone.
    pub fn flush(&self, longest: Duration) {
        let (written, told) = sync_channel(1);
        if self.sender.try_send(Waiting::Flush(written)).is_ok() {
            // A log that cannot be written keeps nobody.
            let _ = told.recv_timeout(longest);
        }
    }
}

fn drain(name: &str, mut sink: impl Write, waiting: &Receiver<Waiting>, lost: &AtomicU64) {
    while let Ok(next) = waiting.recv() {
        let mut text = match next {
            Waiting::Line(line) => line,
            Waiting::Flush(written) => {
                // Who has asked may have gone.
                let _ = written.try_send(());
                continue;
            }
        };
        text.push('\n');
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            text.push_str(&format!("{name}: {missing} lines found no room\n"));
        }
        // A log that cannot be written must not end the proxy.
        let _ = sink.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A log that takes nothing until it is let.
    struct Stalled {
        gate: Receiver<()>,
        begun: SyncSender<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(());
            // Its other end goes when everything may pass.
            let _ = self.gate.recv();
            self.written.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_takes_nothing() {
        let ((open, gate), (begun, has_begun)) = (sync_channel(1), sync_channel(LINES_MAX + 1));
        let written = Arc::new(Mutex::new(Vec::new()));
        let stalled = Stalled {
            gate,
            begun,
            written: Arc::clone(&written),
        };
        let log = LogQueue::start("proxy", stalled).unwrap();
        log.write("first".to_owned());
        has_begun.recv().unwrap();
        // One is being written, so many wait, and for three there is no room.
        for number in 0..LINES_MAX + 3 {
            log.write(number.to_string());
        }
        log.flush(Duration::ZERO);
        drop(open);
        // Until the last of them is on its way, and there is room to ask.
        for _ in 0..LINES_MAX {
            has_begun.recv().unwrap();
        }
        log.flush(Duration::from_secs(20));
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(&lines[..3], ["first", "0", "proxy: 3 lines found no room"]);
        assert_eq!(lines.len(), LINES_MAX + 2);
    }
}
