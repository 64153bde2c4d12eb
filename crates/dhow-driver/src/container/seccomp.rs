//! Which system calls a container may make. What programs need is allowed; what reaches past the container
//! is refused with EPERM; a call that this list does not know is answered with ENOSYS, so that programs fall
//! back to an older one.

use super::capabilities::CapabilitySet;
use super::oci::{Seccomp, SyscallArg, SyscallRule};

const ALLOW: &str = "SCMP_ACT_ALLOW";
const REFUSE: &str = "SCMP_ACT_ERRNO";
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURES: &[&str] = &[];

/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// Sockets to the hypervisor: no namespace holds them.
const AF_VSOCK: u64 = 40;
/// Execution domains that only change what a program sees of the system: Linux, 32 bit of it, the same
/// without random addresses, and the question which one it is.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Files, their names and attributes.
const FILES: &[&str] = &[
    "access",
    "chdir",
    "chmod",
    "chown",
    "chown32",
    "close",
    "close_range",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fadvise64_64",
    "fallocate",
    "fanotify_mark",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchown32",
    "fchownat",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstat64",
    "fstatat64",
    "fstatfs",
    "fstatfs64",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "futimesat",
    "getcwd",
    "getdents",
    "getdents64",
    "getxattr",
    "getxattrat",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "ioctl",
    "lchown",
    "lchown32",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "listxattrat",
    "llistxattr",
    "_llseek",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lstat",
    "lstat64",
    "memfd_create",
    "memfd_secret",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "name_to_handle_at",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pipe",
    "pipe2",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "removexattr",
    "removexattrat",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "sendfile64",
    "setxattr",
    "setxattrat",
    "splice",
    "stat",
    "stat64",
    "statfs",
    "statfs64",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "sync_file_range2",
    "syncfs",
    "tee",
    "truncate",
    "truncate64",
    "umask",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimensat_time64",
    "utimes",
    "vmsplice",
    "write",
    "writev",
    "chroot",
    "arm_sync_file_range",
    "arm_fadvise64_64",
    "statmount",
    "listmount",
    "file_getattr",
    "file_setattr",
];

/// Memory.
const MEMORY: &[&str] = &[
    "arch_prctl",
    "brk",
    "cachestat",
    "get_thread_area",
    "madvise",
    "map_shadow_stack",
    "membarrier",
    "mincore",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mmap2",
    "modify_ldt",
    "mprotect",
    "mremap",
    "mseal",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "process_madvise",
    "process_mrelease",
    "remap_file_pages",
    "set_thread_area",
    "cacheflush",
    "set_tls",
];

/// Processes, threads, users, limits and signals.
const PROCESSES: &[&str] = &[
    "alarm",
    "capget",
    "capset",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fork",
    "futex",
    "futex_requeue",
    "futex_time64",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "get_robust_list",
    "getegid",
    "getegid32",
    "geteuid",
    "geteuid32",
    "getgid",
    "getgid32",
    "getgroups",
    "getgroups32",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getresgid",
    "getresgid32",
    "getresuid",
    "getresuid32",
    "getrlimit",
    "getrusage",
    "getsid",
    "gettid",
    "getuid",
    "getuid32",
    "ioprio_get",
    "ioprio_set",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "nice",
    "pause",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "prlimit64",
    "ptrace",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_sigtimedwait_time64",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_rr_get_interval_time64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "set_robust_list",
    "set_tid_address",
    "setfsgid",
    "setfsgid32",
    "setfsuid",
    "setfsuid32",
    "setgid",
    "setgid32",
    "setgroups",
    "setgroups32",
    "setpgid",
    "setpriority",
    "setregid",
    "setregid32",
    "setresgid",
    "setresgid32",
    "setresuid",
    "setresuid32",
    "setreuid",
    "setreuid32",
    "setrlimit",
    "setsid",
    "setuid",
    "setuid32",
    "sgetmask",
    "sigaction",
    "sigaltstack",
    "signal",
    "signalfd",
    "signalfd4",
    "sigpending",
    "sigprocmask",
    "sigreturn",
    "sigsuspend",
    "ssetmask",
    "tgkill",
    "tkill",
    "ugetrlimit",
    "vfork",
    "wait4",
    "waitid",
    "waitpid",
    "getcpu",
    "sysinfo",
    "uname",
    "getrandom",
    "lsm_get_self_attr",
    "lsm_set_self_attr",
    "lsm_list_modules",
    "uretprobe",
];

/// Waiting, time, messages between processes.
const WAITING: &[&str] = &[
    "adjtimex",
    "clock_adjtime",
    "clock_adjtime64",
    "clock_getres",
    "clock_getres_time64",
    "clock_gettime",
    "clock_gettime64",
    "clock_nanosleep",
    "clock_nanosleep_time64",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_ctl_old",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "epoll_wait_old",
    "eventfd",
    "eventfd2",
    "getitimer",
    "gettimeofday",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_pgetevents_time64",
    "io_setup",
    "io_submit",
    "ipc",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedreceive_time64",
    "mq_timedsend",
    "mq_timedsend_time64",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "_newselect",
    "poll",
    "ppoll",
    "ppoll_time64",
    "pselect6",
    "pselect6_time64",
    "select",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "semtimedop_time64",
    "setitimer",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_gettime64",
    "timer_settime",
    "timer_settime64",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_gettime64",
    "timerfd_settime",
    "timerfd_settime64",
    "times",
];

/// Sockets, all but the making of one.
const SOCKETS: &[&str] = &[
    "accept",
    "accept4",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmmsg_time64",
    "recvmsg",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socketcall",
    "socketpair",
];

/// What only a capability opens: the capability, and its calls.
const BEHIND: &[(&str, &[&str])] = &[
    (
        "SYS_ADMIN",
        &[
            "bpf",
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "perf_event_open",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "syslog",
            "umount",
            "umount2",
            "unshare",
            "pivot_root",
            "swapon",
            "swapoff",
        ],
    ),
    ("SYS_BOOT", &["reboot", "kexec_load", "kexec_file_load"]),
    ("SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("SYS_PACCT", &["acct"]),
    (
        "SYS_PTRACE",
        &["kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev"],
    ),
    ("SYS_RAWIO", &["ioperm", "iopl"]),
    (
        "SYS_TIME",
        &["settimeofday", "stime", "clock_settime", "clock_settime64"],
    ),
    ("SYS_TTY_CONFIG", &["vhangup"]),
    (
        "SYS_NICE",
        &[
            "get_mempolicy",
            "mbind",
            "set_mempolicy",
            "set_mempolicy_home_node",
            "migrate_pages",
            "move_pages",
        ],
    ),
    ("SYSLOG", &["syslog"]),
    ("BPF", &["bpf"]),
    ("PERFMON", &["perf_event_open"]),
    ("DAC_READ_SEARCH", &["open_by_handle_at"]),
];

/// Calls that no capability opens: known ways out of containers or into the kernel's keys.
const NEVER: &[&str] = &[
    "add_key",
    "keyctl",
    "request_key",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "nfsservctl",
    "vm86",
    "vm86old",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
];

/// The profile for a container with these capabilities.
pub(super) fn profile(capabilities: CapabilitySet) -> Seccomp {
    let mut allowed: Vec<&'static str> = [FILES, MEMORY, PROCESSES, WAITING, SOCKETS]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    let mut refused = NEVER.to_vec();
    for (capability, calls) in BEHIND {
        let list = if capabilities.has(capability) {
            &mut allowed
        } else {
            &mut refused
        };
        list.extend_from_slice(calls);
    }
    for list in [&mut allowed, &mut refused] {
        list.sort_unstable();
        list.dedup();
    }
    refused.retain(|call| allowed.binary_search(call).is_err());
    let mut syscalls = vec![
        rule(allowed, ALLOW, None, Vec::new()),
        rule(refused, REFUSE, Some(EPERM), Vec::new()),
        rule(
            vec!["socket"],
            ALLOW,
            None,
            vec![arg(0, AF_VSOCK, 0, "SCMP_CMP_NE")],
        ),
    ];
    let personalities = PERSONALITIES.into_iter();
    syscalls.extend(personalities.map(|value| {
        rule(
            vec!["personality"],
            ALLOW,
            None,
            vec![arg(0, value, 0, "SCMP_CMP_EQ")],
        )
    }));
    if capabilities.has("SYS_ADMIN") {
        syscalls.push(rule(vec!["clone", "clone3"], ALLOW, None, Vec::new()));
    } else {
        // The flags of the newer call lie in memory, where no filter sees them: programs fall back.
        syscalls.push(rule(vec!["clone3"], REFUSE, Some(ENOSYS), Vec::new()));
        let no_namespaces = vec![arg(0, NAMESPACE_FLAGS, 0, "SCMP_CMP_MASKED_EQ")];
        syscalls.push(rule(vec!["clone"], ALLOW, None, no_namespaces));
    }
    Seccomp {
        default_action: REFUSE,
        default_errno_ret: ENOSYS,
        architectures: ARCHITECTURES,
        syscalls,
    }
}

fn rule(
    names: Vec<&'static str>,
    action: &'static str,
    errno_ret: Option<u32>,
    args: Vec<SyscallArg>,
) -> SyscallRule {
    SyscallRule {
        names,
        action,
        errno_ret,
        args,
    }
}

fn arg(index: u32, value: u64, value_two: u64, op: &'static str) -> SyscallArg {
    SyscallArg {
        index,
        value,
        value_two,
        op,
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::Capabilities;

    use super::*;

    fn action(profile: &Seccomp, call: &str) -> Option<&'static str> {
        let rules = profile.syscalls.iter().filter(|rule| rule.args.is_empty());
        let found: Vec<_> = rules
            .filter(|rule| rule.names.contains(&call))
            .map(|rule| rule.action)
            .collect();
        assert!(found.len() <= 1, "{call} is in several rules");
        found.first().copied()
    }

    #[test]
    fn capabilities_open_their_calls_and_nothing_is_both() {
        let set = |add: &[&str]| {
            let add = add.iter().map(|name| (*name).to_owned()).collect();
            let wanted = Capabilities {
                add,
                drop: Vec::new(),
            };
            CapabilitySet::of(&wanted, false, CapabilitySet::EVERY).0
        };
        let usual = profile(set(&[]));
        for (call, expected) in [
            ("read", ALLOW),
            ("mount", REFUSE),
            ("bpf", REFUSE),
            ("clone3", REFUSE),
        ] {
            assert_eq!(action(&usual, call), Some(expected), "{call}");
        }
        assert_eq!(action(&usual, "a_call_of_tomorrow"), None);
        let admin = profile(set(&["SYS_ADMIN"]));
        for call in ["mount", "bpf", "clone3", "unshare"] {
            assert_eq!(action(&admin, call), Some(ALLOW), "{call}");
        }
        assert_eq!(action(&profile(set(&["BPF"])), "bpf"), Some(ALLOW));
    }
}
