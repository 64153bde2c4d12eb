//! The few calls that Rust cannot check, each with the reason why it is sound. All but watching, signalling, and
//! those that give rights up for good, are for the zygote, the shim and the command runner, which are single-threaded:
//! `zygote::main` refuses to run otherwise.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{ForkResult, Pid, fork};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Forks, in a process with one thread.
pub fn fork_single_threaded() -> nix::Result<ForkResult> {
    // SAFETY: with one thread no lock can be held by a thread that the child lacks, so the child may do
    // whatever the parent could. `zygote::main` checks the number of threads before it serves, and
    // neither it nor its forks ever start one.
    unsafe { fork() }
}

/// What becomes of inherited descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Inherited {
    Close,
    CloseOnExec,
}

/// Closes, or marks to be closed at exec, every descriptor from 3 up.
pub fn from_three_up(what: Inherited) -> io::Result<()> {
    close_range(3, what)
}

/// Marks every descriptor to be closed at exec.
pub fn all_close_on_exec() -> io::Result<()> {
    close_range(0, Inherited::CloseOnExec)
}

fn close_range(first: nix::libc::c_uint, what: Inherited) -> io::Result<()> {
    let flags = match what {
        Inherited::Close => 0,
        Inherited::CloseOnExec => nix::libc::CLOSE_RANGE_CLOEXEC,
    };
    // SAFETY: no memory is passed. `Close` is called only as the first act of the zygote, which owns no
    // descriptor above 2 yet; `CloseOnExec` closes nothing in this process. The system call is made by its
    // number because musl has no function for it.
    let result =
        unsafe { nix::libc::syscall(nix::libc::SYS_close_range, first, nix::libc::c_uint::MAX, flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Puts the calling thread under a system call filter.
pub fn set_call_filter(instructions: &[nix::libc::sock_filter]) -> io::Result<()> {
    let program = nix::libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(io::Error::other)?,
        filter: instructions.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads the program, whose length is that of the slice, during the call, and changes
    // neither; both outlive it.
    let result = unsafe {
        nix::libc::prctl(
            nix::libc::PR_SET_SECCOMP,
            nix::libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    result_of(result.into())
}

/// Gives the calling thread these capabilities and no other; it must have them.
pub fn set_capabilities(keep: &[u8]) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    // Sets of 64, in two halves.
    const VERSION_3: u32 = 0x2008_0522;
    let set: u64 = keep
        .iter()
        .filter(|bit| **bit < 64)
        .fold(0, |set, bit| set | 1 << bit);
    let half = |shift: u32| u32::try_from(set >> shift & 0xffff_ffff).unwrap_or(0);
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let data = [half(0), half(32)].map(|bits| Data {
        effective: bits,
        permitted: bits,
        inheritable: 0,
    });
    // SAFETY: the kernel reads one header and, for this version, two sets; both are laid out as it wants them and
    // outlive the call.
    let result = unsafe { nix::libc::syscall(nix::libc::SYS_capset, &raw const header, data.as_ptr()) };
    result_of(result)
}

/// Takes a capability away from all that this process ever runs.
pub fn drop_from_bounding_set(capability: u8) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let result = unsafe {
        nix::libc::prctl(
            nix::libc::PR_CAPBSET_DROP,
            nix::libc::c_ulong::from(capability),
            0,
            0,
            0,
        )
    };
    result_of(result.into())
}

fn result_of(result: nix::libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Signals the process behind a descriptor and no other.
pub fn signal_process(pidfd: &OwnedFd, signal: Signal) -> nix::Result<()> {
    send_signal(pidfd, signal as nix::libc::c_int, 0)
}

/// Signals the process group that the process behind a descriptor leads; `pid` is its number.
pub fn signal_group(pidfd: &OwnedFd, pid: u32, signal: Signal) -> nix::Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: nix::libc::c_uint = 1 << 2;
    match send_signal(pidfd, signal as nix::libc::c_int, PIDFD_SIGNAL_PROCESS_GROUP) {
        // Kernels before 6.9 take groups by their number alone. It is asked for right before: a number is given out
        // again only after all the others.
        Err(Errno::EINVAL) => {
            // No signal: only whether it is still there.
            send_signal(pidfd, 0, 0)?;
            let group = i32::try_from(pid).ok().filter(|pid| *pid > 1);
            killpg(Pid::from_raw(group.ok_or(Errno::ESRCH)?), signal)
        }
        sent => sent,
    }
}

fn send_signal(pidfd: &OwnedFd, number: nix::libc::c_int, flags: nix::libc::c_uint) -> nix::Result<()> {
    let nothing = std::ptr::null::<nix::libc::siginfo_t>();
    // SAFETY: the descriptor is open for the whole call, and no memory is passed: a null pointer stands for what a
    // plain kill says.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            nothing,
            flags,
        )
    };
    Errno::result(result).map(drop)
}

/// Puts every signal back to its default: Rust ignores SIGPIPE, and exec would hand that on.
pub fn default_signals() {
    // Real-time signals included, which have no names in `nix`.
    const SIGNAL_MAX: i32 = 64;
    for number in 1..=SIGNAL_MAX {
        // SAFETY: the default action runs no code of ours. KILL, STOP and the two that the C library keeps
        // for itself refuse, which is right.
        unsafe { nix::libc::signal(number, nix::libc::SIG_DFL) };
    }
}

/// Ignores one signal.
pub fn ignore_signal(number: nix::sys::signal::Signal) {
    use nix::sys::signal::{SigHandler, signal};
    // SAFETY: ignoring runs no code of ours.
    let _ = unsafe { signal(number, SigHandler::SigIgn) };
}

/// Takes over a descriptor that a received message brought.
pub fn own_descriptor(number: i32) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for the receiver of the message, and nobody else
    // knows its number.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Ends a forked child without running what its parent registered for its own end.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; no memory of ours is looked at any more.
    unsafe { nix::libc::_exit(code) }
}

/// Watches a descriptor from the daemon's runtime, for reading and for writing.
pub fn watch_both(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned, hence open, and moves into the watcher, which alone closes it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::WRITABLE) };
    watched.map_err(|error| error.into_parts().1)
}

/// Watches a descriptor from the daemon's runtime.
pub fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned, hence open, and moves into the watcher, which alone closes it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
