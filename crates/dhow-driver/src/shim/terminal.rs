//! A pseudo terminal: a command has one side of it, the daemon the other, where a person's screen and keyboard would be.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::{FileType, Mode, OFlags, fstat, major, open};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use super::identity::{self, ProcessId};
use super::protocol::UserIds;
use super::unchecked;
use crate::driver::{ExecChunk, WindowSize};
use crate::logs::Stream;

/// One read of output.
const CHUNK_BYTES: usize = 16 * 1024;

/// Processes of a command whose streams are looked at for its terminal: the first has it, unless it was started oddly.
const LOOKED_AT_MAX: usize = 16;
/// The kernel's numbers for the sides of pseudo terminals that commands have.
const TERMINAL_MAJORS: RangeInclusive<u32> = 136..=143;

/// What the terminal does by itself with what passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// It echoes, edits lines and turns Ctrl-C into a signal until the command wants it otherwise.
    Usual,
    /// Nothing: a terminal behind it does.
    Raw,
}

/// The daemon's side, and the command's.
pub fn open_pair(
    size: WindowSize,
    manners: Manners,
    owner: Option<&UserIds>,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    // Not by its name, which may mean another one where somebody has mounted something there.
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    resize(&ours, size);
    if manners == Manners::Raw {
        let mut attributes = tcgetattr(&theirs)?;
        attributes.make_raw();
        tcsetattr(&theirs, OptionalActions::Now, &attributes)?;
    }
    if let Some(owner) = owner {
        // Programs that open their terminal by its name may do so.
        fchown(&theirs, Some(Uid::from_raw(owner.uid)), None::<Gid>)?;
    }
    Ok((ours, theirs))
}

/// The daemon's side while a command runs.
#[derive(Clone)]
pub struct Screen(Arc<AsyncFd<OwnedFd>>);

impl Screen {
    pub fn of(ours: OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(unchecked::watch_both(ours)?)))
    }

    /// Ends when the caller drops its end, or nobody has the terminal any more.
    pub async fn carry_input(self, mut from: mpsc::Receiver<Vec<u8>>) {
        while let Some(bytes) = from.recv().await {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let written = self
                    .0
                    .async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, rest)?));
                match written.await {
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(_) => return,
                }
            }
        }
    }

    /// Until nobody has the terminal any more, which reading it tells by an error.
    pub async fn carry_output(self, to: mpsc::Sender<ExecChunk>) {
        let mut buffer = vec![0u8; CHUNK_BYTES];
        loop {
            let read = self.0.async_io(Interest::READABLE, |fd| {
                rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut buffer)).map_err(io::Error::from)
            });
            let count = match read.await {
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            let chunk = ExecChunk {
                stream: Stream::Stdout,
                bytes: buffer.get(..count).unwrap_or_default().to_vec(),
            };
            if to.send(chunk).await.is_err() {
                return;
            }
        }
    }

    /// Ends when the caller drops its end. The kernel tells the command. A runtime has another terminal behind this one.
    pub async fn carry_sizes(self, mut sizes: watch::Receiver<WindowSize>, runtime: Option<ProcessId>) {
        while sizes.changed().await.is_ok() {
            let size = *sizes.borrow_and_update();
            resize(self.0.get_ref(), size);
            if let Some(runtime) = runtime {
                // It fails only where this process is ending.
                let _ = tokio::task::spawn_blocking(move || resize_behind(runtime, size)).await;
            }
        }
    }
}

/// Gives the new size to the terminal that a runtime has opened in the container: not every runtime does, such as `crun`.
fn resize_behind(runtime: ProcessId, size: WindowSize) {
    let below = identity::descendants(runtime.pid);
    for pid in below.into_iter().take(LOOKED_AT_MAX) {
        for number in 0..3 {
            if let Some(terminal) = terminal_of(pid, number, runtime) {
                resize(&terminal, size);
            }
        }
    }
}

/// What a process below the runtime has as one of its streams, where that is a terminal. Nothing else is opened: the
/// container chooses what its streams are.
fn terminal_of(pid: u32, number: u32, runtime: ProcessId) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = open(format!("/proc/{pid}/fd/{number}"), flags, Mode::empty()).ok()?;
    let found = fstat(&place).ok()?;
    let is_terminal = FileType::from_raw_mode(found.st_mode).is_char_device()
        && TERMINAL_MAJORS.contains(&major(found.st_rdev))
        && identity::is_below(pid, runtime);
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    is_terminal
        .then(|| open(path, flags, Mode::empty()).ok())
        .flatten()
}

/// A terminal that is going has no size.
fn resize(ours: &OwnedFd, size: WindowSize) {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    if let Err(error) = tcsetwinsize(ours, size) {
        let terminal = ours.as_raw_fd();
        tracing::debug!(%error, terminal, "a terminal has not taken its new size");
    }
}

/// Makes the terminal at stdin the one of the calling process, which leads a session: it gets the signals of keys, and the
/// word that its caller has hung up.
pub fn take() -> nix::Result<()> {
    let taken = rustix::process::ioctl_tiocsctty(io::stdin());
    taken.map_err(|errno: Errno| nix::errno::Errno::from_raw(errno.raw_os_error()))
}
