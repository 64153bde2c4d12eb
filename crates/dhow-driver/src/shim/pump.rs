//! Copies a workload's output to its log and notices when a child ends: the one loop of a shim.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::pipe2;
use rustix::process::{WaitOptions, wait};

use super::protocol::DETAIL_MAX_BYTES;
use super::record::{ExitStatus, unix_us};
use crate::logs::{LogWriter, Stream};

/// One read. A quarter of the pipe: output of both streams is taken in turns.
const READ_BYTES: usize = 16 * 1024;
/// An unfinished line is shown after a second of silence.
const PARTIAL_AFTER_MS: u16 = 1_000;

/// What one turn of the loop saw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// A child may have ended.
    pub children: bool,
    /// Both streams are at their end.
    pub drained: bool,
}

/// The pipes of a workload's output and the signals of a shim.
pub struct Pump {
    stdout: Option<File>,
    stderr: Option<File>,
    signals: SignalFd,
    pub log: LogWriter,
    /// The last output, kept while a starter runs: if it fails, that is the reason.
    recent: Option<Vec<u8>>,
}

/// The ends of the pipes that the workload writes to.
pub struct Outputs {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Pump {
    pub fn open(log: LogWriter) -> io::Result<(Self, Outputs)> {
        let (stdout_read, stdout) = pipe2(OFlag::O_CLOEXEC)?;
        let (stderr_read, stderr) = pipe2(OFlag::O_CLOEXEC)?;
        let pump = Self {
            stdout: Some(stdout_read.into()),
            stderr: Some(stderr_read.into()),
            signals: child_signals()?,
            log,
            recent: None,
        };
        Ok((pump, Outputs { stdout, stderr }))
    }

    /// Keeps the last output from here on.
    pub fn keep_recent(&mut self) {
        self.recent = Some(Vec::new());
    }

    /// What was kept, as text.
    pub fn take_recent(&mut self) -> String {
        String::from_utf8_lossy(&self.recent.take().unwrap_or_default()).into_owned()
    }

    /// How much has been read while output was kept, up to the limit of what is kept.
    pub fn recent_bytes(&self) -> usize {
        self.recent.as_ref().map_or(0, Vec::len)
    }

    /// Waits for output, a child's end or the timeout, and deals with the output.
    pub fn turn(&mut self, timeout_ms: Option<u16>) -> io::Result<Turn> {
        let partial = self.log.has_partial();
        let timeout = match timeout_ms {
            Some(ms) => PollTimeout::from(ms),
            None if partial => PollTimeout::from(PARTIAL_AFTER_MS),
            None => PollTimeout::NONE,
        };
        let (mut out_ready, mut err_ready) = (false, false);
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(
            self.stdout
                .iter()
                .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)),
        );
        polled.extend(
            self.stderr
                .iter()
                .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)),
        );
        let count = match poll(&mut polled, timeout) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        let mut ready = polled.iter().map(|fd| fd.any().unwrap_or(false));
        let children = ready.next().unwrap_or(false);
        if self.stdout.is_some() {
            out_ready = ready.next().unwrap_or(false);
        }
        if self.stderr.is_some() {
            err_ready = ready.next().unwrap_or(false);
        }
        drop(ready);
        if count == 0 && partial && timeout_ms.is_none() {
            self.log.flush_partial(unix_us());
        }
        if children {
            // Signals of several children fold into one: reading it only clears the mark.
            while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        }
        if out_ready {
            self.take(Stream::Stdout);
        }
        if err_ready {
            self.take(Stream::Stderr);
        }
        Ok(Turn {
            children,
            drained: self.stdout.is_none() && self.stderr.is_none(),
        })
    }

    fn take(&mut self, stream: Stream) {
        let slot = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
            Stream::Notice => return,
        };
        let Some(file) = slot else { return };
        let mut buffer = [0u8; READ_BYTES];
        match file.read(&mut buffer) {
            Ok(count @ 1..) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                self.log.append(stream, bytes, unix_us());
                if let Some(recent) = &mut self.recent {
                    recent.extend_from_slice(bytes);
                    let excess = recent.len().saturating_sub(DETAIL_MAX_BYTES);
                    recent.drain(..excess);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                *slot = None;
                self.log.close(stream, unix_us());
            }
        }
    }
}

/// A descriptor that becomes readable when a child ends. The signal itself stays blocked.
pub fn child_signals() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    Ok(SignalFd::with_flags(
        &mask,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// Reaps one ended child, whichever it is; `None` when none is waiting for that.
pub fn reap_one() -> Option<(u32, ExitStatus)> {
    loop {
        // Not through `nix`, which loses the status of a child that a real-time signal ended.
        let (pid, status) = match wait(WaitOptions::NOHANG) {
            Ok(Some(ended)) => ended,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(None) | Err(_) => return None,
        };
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => continue,
        };
        return Some((pid.as_raw_nonzero().get().unsigned_abs(), status));
    }
}
