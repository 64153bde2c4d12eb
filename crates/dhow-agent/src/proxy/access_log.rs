//! The access log: a line for each request of the endpoints that ask for it, in the proxy's log. Requests never wait for it:
//! a thread writes, and what finds no room is counted and told.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Lines that wait to be written, of some 200 bytes: a tenth of a second of a busy node.
const LINES_MAX: usize = 4096;

/// Where lines are put; clones are the same. The thread begins with the first line.
#[derive(Clone, Default)]
pub struct AccessLog(Arc<Lines>);

#[derive(Default)]
struct Lines {
    sender: OnceLock<SyncSender<String>>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    pub fn write(&self, line: String) {
        let lines = &self.0;
        let sender = lines.sender.get_or_init(|| {
            let (sender, receiver) = sync_channel(LINES_MAX);
            let lost = Arc::clone(&lines.lost);
            // Without a thread nothing is taken, and all of it is counted as lost.
            let _ = std::thread::Builder::new()
                .name("access-log".to_owned())
                .spawn(move || drain(&receiver, &lost));
            sender
        });
        if sender.try_send(line).is_err() {
            lines.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn drain(lines: &Receiver<String>, lost: &AtomicU64) {
    while let Ok(line) = lines.recv() {
        let mut text = line;
        text.push('\n');
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            text.push_str(&format!("access: {missing} lines found no room\n"));
        }
        // A log that cannot be written must not end the proxy.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
