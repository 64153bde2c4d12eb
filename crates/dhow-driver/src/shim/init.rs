//! The first process of a container that wants an init: it does nothing but reap what others leave, so that the
//! workload is an ordinary process that signals end as usual.
//!
//! The namespace of processes is made before the workload, and the runtime joins it by a link. Once the runtime has
//! made the others, and before the workload runs, the init, until then a fork of the shim, joins them. Then it is as
//! empty as it can be: no root but a read-only folder with the one program that it becomes, no descriptors, no user, no
//! capabilities, and of all system calls those that reaping takes. What runs in the container finds nothing of the
//! host's behind it, not even a program. When the shim kills it, the kernel ends all of its namespace.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{self, ForkResult, Gid, Uid};

use super::reaper;
use super::unchecked;
use crate::call_filter::{Call, CallFilter};

/// Where it is once its folder is the root, and what others see it as.
const PROGRAM: &CStr = c"/init";
const PROGRAM_NAME: &CStr = c"init";

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

/// The first process of the namespace: empties itself and becomes the program that reaps, which closes its end.
fn first(mut pipes: Pipes, empty: &Path) -> ! {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let emptied = enter_workload(&mut pipes.workload)
        .and_then(|()| give_everything_up(empty))
        // The program waits for it.
        .and_then(|()| mask.thread_block())
        .and_then(|()| {
            let filter = CallFilter::allowing(&CALLS, Errno::EPERM);
            filter.apply().map_err(|error| errno_of(&error))
        })
        .and_then(|()| unchecked::all_close_on_exec().map_err(|error| errno_of(&error)))
        .and_then(|()| unistd::execve(PROGRAM, &[PROGRAM_NAME], &[] as &[&CStr]));
    let errno = match emptied {
        Err(errno) => errno,
        Ok(never) => match never {},
    };
    let _ = pipes.done.write_all(&(errno as i32).to_le_bytes());
    unchecked::exit_now(1)
}

/// What becoming the program takes and what reaping takes. Once it runs, there is no other program that it could run,
/// and no descriptor that it could write to.
const CALLS: [Call; 10] = [
    Call::Any(nix::libc::SYS_close_range),
    Call::Any(nix::libc::SYS_execve),
    Call::Any(nix::libc::SYS_write),
    Call::Any(nix::libc::SYS_wait4),
    Call::Any(nix::libc::SYS_waitid),
    Call::Any(nix::libc::SYS_rt_sigtimedwait),
    Call::Any(nix::libc::SYS_rt_sigreturn),
    Call::Any(nix::libc::SYS_restart_syscall),
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
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let folder = |flags| {
        mount(
            Some("init"),
            empty,
            Some("tmpfs"),
            flags,
            Some("size=4k,mode=555"),
        )
    };
    folder(flags)?;
    write_program(empty).map_err(|error| errno_of(&error))?;
    folder(flags | MsFlags::MS_RDONLY | MsFlags::MS_REMOUNT)?;
    unistd::chdir(empty)?;
    unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    unistd::chdir("/")?;
    prctl::set_no_new_privs()?;
    unistd::setgroups(&[])?;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    unistd::setresgid(group, group, group)?;
    // Leaving root gives up every capability, and keeps others from looking into this process.
    unistd::setresuid(user, user, user)
}

/// Nobody may read it but root: whose program cannot be read by who runs it, is kept from others' looks as well.
fn write_program(folder: &Path) -> std::io::Result<()> {
    let mut file = File::create_new(folder.join(PROGRAM_NAME.to_str().unwrap_or_default()))?;
    file.write_all(&reaper::file())?;
    file.set_permissions(fs::Permissions::from_mode(0o111))
}
