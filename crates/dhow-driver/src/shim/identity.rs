//! Which process is meant: a number alone can belong to somebody else tomorrow.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process by its number and the moment it began, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self {
            pid,
            start_ticks: Stat::read(pid)?.start_ticks,
        })
    }

    pub fn of_self() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// A descriptor that means this process and no other; `None` when it is gone. It becomes readable when
    /// the process ends.
    pub fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(errno) if means_gone(errno) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Looked up after opening: if the start time is right now, the descriptor means the right process.
        Ok(self.lives().then_some(fd))
    }

    /// Whether it still runs. A process that has ended and waits to be reaped does not.
    pub fn lives(self) -> bool {
        Stat::read(self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.is_zombie())
    }
}

/// Whether no process has the number: nobody has it, or a thread of another process, or one that is ending at this moment,
/// which newer kernels call ENOENT and older ones EINVAL.
fn means_gone(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(errno, Errno::SRCH | Errno::NOENT | Errno::INVAL)
}

/// Kills the process that has this number now, if it is the one that is meant. `is_meant` is asked once the number can
/// no longer come to mean another one: what it says is then true of the process, or the process has ended.
pub fn kill_if(pid: u32, is_meant: impl FnOnce() -> bool) {
    signal_if(pid, &[Signal::KILL], is_meant);
}

/// The same with other signals, one after the other.
pub fn signal_if(pid: u32, signals: &[Signal], is_meant: impl FnOnce() -> bool) {
    // 0 and 1 would mean our own group and everybody's parent.
    let Some(number) = i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .and_then(Pid::from_raw)
    else {
        return;
    };
    if let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty())
        && is_meant()
    {
        for signal in signals {
            // One that ended meanwhile is what was wanted.
            let _ = pidfd_send_signal(&pidfd, *signal);
        }
    }
}

/// Whether a process is below another one that lives.
pub fn is_below(pid: u32, ancestor: ProcessId) -> bool {
    // A loop in what changes meanwhile must end.
    const DEPTH_MAX: usize = 65_536;
    let mut at = pid;
    for _ in 0..DEPTH_MAX {
        let Ok(stat) = Stat::read(at) else { return false };
        at = stat.parent;
        if at == ancestor.pid {
            return ancestor.lives();
        }
        if at <= 1 {
            return false;
        }
    }
    false
}

/// What `/proc/PID/stat` says that we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub state: char,
    pub parent: u32,
    pub session: u32,
    /// Time on a CPU in user and kernel mode, in clock ticks.
    pub cpu_ticks: u64,
    pub start_ticks: u64,
    pub resident_pages: u64,
}

impl Stat {
    pub fn read(pid: u32) -> io::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown form")))
    }

    /// The name stands in brackets and may hold anything, brackets and spaces included: count from the last.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text
            .get(text.rfind(')')? + 1..)?
            .split_ascii_whitespace()
            .collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            cpu_ticks: number(11)?.saturating_add(number(12)?),
            start_ticks: number(19)?,
            resident_pages: number(21)?,
        })
    }

    pub fn is_zombie(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The direct children of a process, whichever of its threads made them.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let Ok(text) = std::fs::read_to_string(thread.path().join("children")) else {
            // A kernel built without that file: look at everybody's parent.
            return all_processes(|stat| stat.parent == pid);
        };
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}

/// All processes below one, itself left out. Bounded: a fork bomb must not become ours.
pub fn descendants(pid: u32) -> Vec<u32> {
    const DESCENDANTS_MAX: usize = 65_536;
    let mut found = children(pid);
    let mut next = 0;
    while let Some(child) = found.get(next).copied() {
        if found.len() >= DESCENDANTS_MAX {
            break;
        }
        found.extend(children(child));
        next += 1;
    }
    found
}

/// All processes of a session.
pub fn session_members(session: u32) -> Vec<u32> {
    all_processes(|stat| stat.session == session && !stat.is_zombie())
}

/// One pass over `/proc`.
fn all_processes(wanted: impl Fn(Stat) -> bool) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| Stat::read(*pid).is_ok_and(&wanted))
        .collect()
}

/// Changes with every start of the host: what ran under another one is gone.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let text = "42 (a) b) (c) S 7 42 40 0 -1 0 1 2 3 4 50 60 0 0 20 0 1 0 987654 1000 33 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: 'S',
                parent: 7,
                session: 40,
                cpu_ticks: 110,
                start_ticks: 987_654,
                resident_pages: 33
            }
        );
        assert_eq!(Stat::parse("42 (x"), None);
        assert_eq!(Stat::parse("42 (x) S 1"), None);
    }

    #[test]
    fn a_recycled_number_is_not_the_same_process() {
        let me = ProcessId::of_self().unwrap();
        assert!(me.lives());
        assert!(me.open().unwrap().is_some());
        let other = ProcessId {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!other.lives());
        assert!(other.open().unwrap().is_none());
        assert!(
            ProcessId {
                pid: 0,
                start_ticks: 0
            }
            .open()
            .unwrap()
            .is_none()
        );
    }

    #[test]
    fn a_number_that_a_thread_has_by_now_is_no_process() {
        let (said, thread) = std::sync::mpsc::sync_channel(1);
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
        let other = std::thread::spawn(move || {
            said.send(nix::unistd::gettid()).unwrap();
            let _ = ended.recv();
        });
        let pid = thread.recv().unwrap().as_raw().cast_unsigned();
        let gone = ProcessId { pid, start_ticks: 1 };
        assert!(gone.open().unwrap().is_none());
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn only_the_process_that_is_meant_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let me = ProcessId::of_self().unwrap();
        assert!(is_below(child.id(), me));
        assert!(!is_below(me.pid, ProcessId::of(child.id()).unwrap()));
        kill_if(child.id(), || false);
        kill_if(0, || true);
        kill_if(1, || true);
        assert!(child.try_wait().unwrap().is_none(), "it was not meant");
        kill_if(child.id(), || is_below(child.id(), me));
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
