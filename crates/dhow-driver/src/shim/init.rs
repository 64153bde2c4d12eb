//! The first process of a container that wants an init: a fork of the shim that does nothing but reap what
//! others leave, so that the workload is an ordinary process that signals end as usual.
//!
//! The namespace of processes is made before the workload, and the runtime joins it by a link. Once the runtime has
//! made the others, and before the workload runs, the init joins them. Then it is as empty as it can be: no root
//! but an empty read-only folder, no descriptors, no user, no capabilities, and of all system calls those that
//! reaping takes. When the shim kills it, the kernel ends all of its namespace.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{self, ForkResult, Gid, Uid};

use super::pump::reap_one;
use super::unchecked::{self, Inherited};
use crate::call_filter::{Call, CallFilter};

/// Nobody, on every system.
const NOBODY: u32 = 65_534;

/// The namespaces of the workload that an init is in too. Mounts are its own: there is nothing in them.
const SHARED: [&str; 4] = ["net", "ipc", "uts", "cgroup"];

/// An init that waits for its workload.
pub struct Waiting {
    workload: File,
    done: File,
}

/// Makes the namespace and its first process, a child of this one from then on, and a link to the namespace.
/// Its processes are in the groups whose files are `join`.
pub fn make(link: &Path, join: &[PathBuf]) -> nix::Result<Waiting> {
    let (pid_read, pid_write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (workload_read, workload_write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (done_read, done_write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let empty = link.parent().unwrap_or(Path::new("/"));
    match unchecked::fork_single_threaded()? {
        ForkResult::Child => {
            // A writing end that stayed open here would hide the shim's death.
            drop((pid_read, workload_write, done_read));
            let pipes = Pipes {
                workload: File::from(workload_read),
                done: File::from(done_write),
            };
            let code = between(File::from(pid_write), pipes, empty, join);
            unchecked::exit_now(code)
        }
        ForkResult::Parent { child } => {
            drop((pid_write, workload_read, done_write));
            let mut pid = Vec::new();
            let read = File::from(pid_read).read_to_end(&mut pid);
            let _ = waitpid(child, None);
            let mut done = File::from(done_read);
            let pid = match (read, <[u8; 4]>::try_from(pid)) {
                (Ok(_), Ok(bytes)) => i32::from_le_bytes(bytes),
                // It has not come so far, and says why.
                (Ok(_) | Err(_), _) => return Err(reported(&mut done).err().unwrap_or(Errno::EIO)),
            };
            // Left by a start that was cut off.
            let _ = fs::remove_file(link);
            symlink(format!("/proc/{pid}/ns/pid"), link).map_err(|error| errno_of(&error))?;
            Ok(Waiting {
                workload: File::from(workload_write),
                done,
            })
        }
    }
}

impl Waiting {
    /// Has the init join the namespaces of the workload, which must not run anything of an image yet, and returns
    /// when it has given up all else.
    pub fn join(mut self, workload: u32) -> nix::Result<()> {
        self.workload
            .write_all(&workload.to_le_bytes())
            .map_err(|error| errno_of(&error))?;
        reported(&mut self.done)
    }
}

/// What the other end said before it closed the pipe: nothing where all went well.
fn reported(done: &mut File) -> nix::Result<()> {
    let mut bytes = Vec::new();
    let read = done.read_to_end(&mut bytes);
    match (read, bytes.as_slice()) {
        (Ok(_), []) => Ok(()),
        (Ok(_) | Err(_), bytes) => Err(Errno::from_raw(errno_in(bytes))),
    }
}

/// An init's ends of its pipes.
struct Pipes {
    workload: File,
    done: File,
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

/// A number of four bytes; what is cut short counts as a failed read.
fn errno_in(bytes: &[u8]) -> i32 {
    <[u8; 4]>::try_from(bytes).map_or(Errno::EIO as i32, i32::from_le_bytes)
}

/// The process in between, which has to be: only children of the one that asks are in a new pid namespace.
fn between(mut pid: File, mut pipes: Pipes, empty: &Path, join: &[PathBuf]) -> i32 {
    let forked = join_groups(join)
        .and_then(|()| unshare(CloneFlags::CLONE_NEWPID))
        .and_then(|()| unchecked::fork_single_threaded());
    match forked {
        Ok(ForkResult::Child) => {
            drop(pid);
            first(pipes, empty)
        }
        Ok(ForkResult::Parent { child }) => {
            let _ = pid.write_all(&child.as_raw().to_le_bytes());
            0
        }
        Err(errno) => {
            let _ = pipes.done.write_all(&(errno as i32).to_le_bytes());
            1
        }
    }
}

fn join_groups(files: &[PathBuf]) -> nix::Result<()> {
    for file in files {
        fs::write(file, "0").map_err(|error| errno_of(&error))?;
    }
    Ok(())
}

/// The first process of the namespace: empties itself, says so by closing its end, and reaps for ever.
fn first(mut pipes: Pipes, empty: &Path) -> ! {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let emptied = enter_workload(&mut pipes.workload)
        .and_then(|()| give_everything_up(empty))
        .and_then(|()| mask.thread_block())
        .and_then(|()| {
            let filter = CallFilter::allowing(&CALLS, Errno::EPERM);
            filter.apply().map_err(|error| errno_of(&error))
        });
    if let Err(errno) = emptied {
        let _ = pipes.done.write_all(&(errno as i32).to_le_bytes());
        unchecked::exit_now(1)
    }
    if unchecked::from_zero_up(Inherited::Close).is_err() {
        unchecked::exit_now(1)
    }
    loop {
        while reap_one().is_some() {}
        let _ = mask.wait();
    }
}

/// What reaping takes, and closing what is open.
const CALLS: [Call; 8] = [
    Call::Any(nix::libc::SYS_wait4),
    Call::Any(nix::libc::SYS_waitid),
    Call::Any(nix::libc::SYS_rt_sigtimedwait),
    Call::Any(nix::libc::SYS_rt_sigreturn),
    Call::Any(nix::libc::SYS_restart_syscall),
    Call::Any(nix::libc::SYS_close_range),
    Call::Any(nix::libc::SYS_exit),
    Call::Any(nix::libc::SYS_exit_group),
];

/// Waits for the workload and joins its namespaces. Ends with the shim: nobody would tell of a workload then.
fn enter_workload(workload: &mut File) -> nix::Result<()> {
    let mut bytes = [0u8; 4];
    if workload.read_exact(&mut bytes).is_err() {
        unchecked::exit_now(1)
    }
    let pid = u32::from_le_bytes(bytes);
    for kind in SHARED {
        let file = File::open(format!("/proc/{pid}/ns/{kind}")).map_err(|error| errno_of(&error))?;
        setns(file, CloneFlags::empty())?;
    }
    Ok(())
}

fn give_everything_up(empty: &Path) -> nix::Result<()> {
    unistd::setsid()?;
    let none = None::<&Path>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(
        Some("empty"),
        empty,
        Some("tmpfs"),
        flags,
        Some("size=4k,mode=555"),
    )?;
    unistd::chdir(empty)?;
    unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    unistd::chdir("/")?;
    prctl::set_no_new_privs()?;
    unistd::setgroups(&[])?;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    unistd::setresgid(group, group, group)?;
    // Leaving root gives up every capability, and keeps others from looking into this process.
    unistd::setresuid(user, user, user)?;
    prctl::set_dumpable(false)?;
    prctl::set_name(c"init")
}
