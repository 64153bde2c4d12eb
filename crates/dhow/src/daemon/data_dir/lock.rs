//! The lock of the directory, which one daemon has. One that was killed is waited for: the kernel may need a second to close the
//! thousands of connections of a busy server, and whoever starts it again at once is not to be told that it runs.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long a process that ends is waited for.
const ENDS_WITHIN_MS: u16 = 10_000;

/// The flag of a process that is on its way out, as the kernel shows it.
const EXITING: u64 = 0x4;

/// The bit of SIGKILL in a set of signals.
const KILLED: u64 = 1 << 8;

/// Takes the lock, or says who has it. Blocks while a daemon that was killed ends.
pub(super) fn take(lock: &mut File) -> Result<(), Option<u32>> {
    let try_it = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive);
    if try_it(lock).is_ok() {
        return Ok(());
    }
    let mut written = String::new();
    let _ = lock.read_to_string(&mut written);
    let other: Option<u32> = written.trim().parse().ok();
    if let Some(other) = other {
        await_end(other);
    }
    try_it(lock).map_err(|_| other)
}

/// Returns at once where the process does not end.
fn await_end(other: u32) {
    let Some(pid) = i32::try_from(other).ok().and_then(Pid::from_raw) else {
        return;
    };
    // Held before it is looked at, so that it is one process that is looked at and waited for.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let read = |name: &str| fs::read_to_string(format!("/proc/{other}/{name}")).unwrap_or_default();
    if is_ending(&read("stat"), &read("status")) {
        let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut ended, PollTimeout::from(ENDS_WITHIN_MS));
    }
}

/// Whether the kernel says of a process that it is on its way out, or that its SIGKILL waits for it.
fn is_ending(stat: &str, status: &str) -> bool {
    // The name stands in brackets and may hold anything: what follows the last one are fields 3 and on.
    let flags = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(6)?.parse::<u64>().ok());
    let is_killed = status.lines().any(|line| {
        let waiting = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"));
        let signals = waiting.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        signals.is_some_and(|signals| signals & KILLED != 0)
    });
    is_killed || flags.is_some_and(|flags| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_told_from_one_that_runs() {
        let stat = |flags: u64| format!("12 (dhow) x) S 1 12 12 0 -1 {flags} 100 0 0 0");
        let status =
            |own: u64, shared: u64| format!("Name:\tdhow\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n");
        assert!(!is_ending(&stat(0x40_0140), &status(0, 0)));
        assert!(
            !is_ending(&stat(0), &status(1 << 14, 1 << 14)),
            "asked to end, which may take its time"
        );
        assert!(is_ending(&stat(0x40_0144), &status(0, 0)));
        assert!(is_ending(&stat(0), &status(KILLED, 0)) && is_ending(&stat(0), &status(0, KILLED)));
        assert!(!is_ending("", "") && !is_ending("12 (a", "SigPnd: no number"));
    }

    #[test]
    fn who_runs_is_named_at_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(file.as_file_mut(), std::process::id().to_string().as_bytes()).unwrap();
        let open = || {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(file.path())
                .unwrap()
        };
        let (mut first, mut second) = (open(), open());
        assert_eq!(take(&mut first), Ok(()));
        assert_eq!(take(&mut second), Err(Some(std::process::id())));
        drop(first);
        assert_eq!(take(&mut second), Ok(()));
    }
}
