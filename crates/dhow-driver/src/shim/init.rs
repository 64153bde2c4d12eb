//! The first process of a container that wants an init: a fork of the shim that does nothing but reap what
//! others leave, so that the workload is an ordinary process that signals end as usual.
//!
//! The namespace is made before the workload, and the runtime joins it by a link. The process inside is as empty
//! as it can be: no root but an empty read-only folder, no descriptors, no user, no capabilities. When the
//! shim kills it, the kernel ends all of its namespace.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{self, ForkResult, Gid, Uid};

use super::pump::reap_one;
use super::unchecked::{self, Inherited};

/// Nobody, on every system.
const NOBODY: u32 = 65_534;

/// Makes the namespace and its first process, a child of this one from then on, and a link to the namespace.
/// Its processes are in the groups whose files are `join`.
pub fn make(link: &Path, join: &[PathBuf]) -> nix::Result<()> {
    let (pid_read, pid_write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (done_read, done_write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let empty = link.parent().unwrap_or(Path::new("/"));
    match unchecked::fork_single_threaded()? {
        ForkResult::Child => {
            drop((pid_read, done_read));
            let code = between(File::from(pid_write), File::from(done_write), empty, join);
            unchecked::exit_now(code)
        }
        ForkResult::Parent { child } => {
            drop((pid_write, done_write));
            let mut pid = Vec::new();
            let read = File::from(pid_read).read_to_end(&mut pid);
            let mut done = Vec::new();
            let finished = File::from(done_read).read_to_end(&mut done);
            let _ = waitpid(child, None);
            if read.is_err() || finished.is_err() {
                return Err(Errno::EIO);
            }
            match errno_in(&done) {
                0 => {}
                errno => return Err(Errno::from_raw(errno)),
            }
            let target = format!("/proc/{}/ns/pid", errno_in(&pid));
            // Left by a start that was cut off.
            let _ = fs::remove_file(link);
            symlink(target, link)
                .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32)))
        }
    }
}

/// A number of four bytes; what is cut short counts as a failed read.
fn errno_in(bytes: &[u8]) -> i32 {
    <[u8; 4]>::try_from(bytes).map_or(Errno::EIO as i32, i32::from_le_bytes)
}

/// The process in between, which has to be: only children of the one that asks are in a new pid namespace.
fn between(mut pid: File, mut done: File, empty: &Path, join: &[PathBuf]) -> i32 {
    let forked = join_groups(join)
        .and_then(|()| unshare(CloneFlags::CLONE_NEWPID))
        .and_then(|()| unchecked::fork_single_threaded());
    match forked {
        Ok(ForkResult::Child) => {
            drop(pid);
            first(done, empty)
        }
        Ok(ForkResult::Parent { child }) => {
            let _ = pid.write_all(&child.as_raw().to_le_bytes());
            0
        }
        Err(errno) => {
            let _ = done.write_all(&(errno as i32).to_le_bytes());
            1
        }
    }
}

fn join_groups(files: &[PathBuf]) -> nix::Result<()> {
    for file in files {
        fs::write(file, "0")
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32)))?;
    }
    Ok(())
}

/// The first process of the namespace: empties itself, says so, and reaps for ever.
fn first(mut done: File, empty: &Path) -> ! {
    let errno = match give_everything_up(empty) {
        Ok(()) => 0,
        Err(errno) => errno as i32,
    };
    let told = done.write_all(&errno.to_le_bytes());
    if errno != 0 || told.is_err() || unchecked::from_zero_up(Inherited::Close).is_err() {
        unchecked::exit_now(1)
    }
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    if mask.thread_block().is_err() {
        unchecked::exit_now(1)
    }
    loop {
        while reap_one().is_some() {}
        let _ = mask.wait();
    }
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
