//! How little a proxy may do once it has begun. It speaks with strangers, so it is nobody's: a user of its own, of
//! root's rights that to bind ports below 1024, and the system calls of a program that moves bytes.

use std::io;
use std::path::Path;

use dhow_driver::call_filter::{Call, CallFilter};
use dhow_driver::unprivileged::{NET_BIND_SERVICE, become_user, keep_only, keep_through_change};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::geteuid;

use super::note;
use super::store::Store;

/// Users from here to the end of the positive numbers are given out by no distribution and no container manager.
const FIRST_USER: u32 = 0x7000_0000;
const USERS: u64 = 0x1000_0000;

/// Flags of `clone` that make namespaces.
const NAMESPACES: u32 = 0x7e02_0000;

/// Gives up what only the start needs, for this thread and those that it starts. A thread that is there already has
/// said that it expects it.
pub fn give_up(dir: &Path, store: &Store) -> io::Result<()> {
    if geteuid().is_root() {
        let id = user_of(dir);
        store.give_to(id)?;
        match become_user(id, &[NET_BIND_SERVICE]) {
            Ok(became) if became == id => {}
            Ok(became) => {
                note(&format!(
                    "this host has no user {id}: the proxy is user {became}, and saves no table"
                ));
            }
            Err(error) => note(&format!(
                "the proxy stays root, without root's capabilities: {error}"
            )),
        }
    }
    forbid_calls()
}

/// For a thread that is there before the process becomes another user: the change is all threads', and would take the
/// right to bind low ports from this one.
pub fn expect_change() -> io::Result<()> {
    match geteuid().is_root() {
        true => keep_through_change(&[NET_BIND_SERVICE]),
        false => Ok(()),
    }
}

/// Gives up in such a thread what [`give_up`] has given up in its own.
pub fn follow() -> io::Result<()> {
    keep_only(&[NET_BIND_SERVICE])?;
    forbid_calls()
}

fn forbid_calls() -> io::Result<()> {
    match CallFilter::allowing(&calls(), Errno::ENOSYS).apply() {
        // A kernel that was built without filters.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            note("this kernel has no filters of system calls: the proxy runs without one");
            Ok(())
        }
        other => other,
    }
}

/// Who a proxy of a folder becomes when it is started as root here.
pub fn user_here(dir: &Path) -> u32 {
    dhow_driver::unprivileged::user_for(user_of(dir))
}

/// The user of the proxy of a folder: the same each time, and hardly that of another folder's.
fn user_of(dir: &Path) -> u32 {
    let text = dir.to_string_lossy();
    // FNV-1a.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_USER + u32::try_from(hash % USERS).unwrap_or(0)
}

const SOCKETS: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// Descriptors, and waiting for them.
const WAITING: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_splice,
];

/// Files below the folder that it holds, and what everybody may read.
const FILES: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
];

const MEMORY: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
];

/// Threads, signals, time.
const THREADS: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
];

/// What it knows of itself, and its end.
const ITSELF: &[libc::c_long] = &[
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_prlimit64,
    libc::SYS_prctl,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The same under older numbers, where the architecture has them.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_arch_prctl,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// What waiting, moving bytes, memory, threads and the saved table take. All else is answered as if the kernel did
/// not have it, so that libraries fall back to what is here.
fn calls() -> Vec<Call> {
    let any = [SOCKETS, WAITING, FILES, MEMORY, THREADS, ITSELF, OLDER].concat();
    let mut calls: Vec<Call> = any.into_iter().map(Call::Any).collect();
    calls.push(Call::Without(libc::SYS_clone, NAMESPACES));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_has_a_user_of_its_own_that_nobody_else_has() {
        let (one, other) = (
            user_of(Path::new("/var/lib/dhow/proxy")),
            user_of(Path::new("/srv/dhow/proxy")),
        );
        assert_eq!(one, user_of(Path::new("/var/lib/dhow/proxy")));
        assert_ne!(one, other);
        assert!((FIRST_USER..1 << 31).contains(&one) && (FIRST_USER..1 << 31).contains(&other));
    }

    #[test]
    fn nothing_is_started_or_traced() {
        let calls = calls();
        for never in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_kill,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_clone3,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
        ] {
            assert!(!calls.contains(&Call::Any(never)), "{never}");
        }
    }
}
