//! The names of system calls, by what they are for. Between spaces, so that a line holds many.

/// Files, their names and attributes.
pub(super) const FILES: &str = "\
    _llseek access arm_fadvise64_64 arm_sync_file_range chdir chmod chown chown32 chroot close \
    close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fadvise64_64 \
    fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 \
    fdatasync fgetxattr file_getattr file_setattr flistxattr flock fremovexattr fsetxattr fstat fstat64 \
    fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents getdents64 \
    getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown \
    lchown32 lgetxattr link linkat listmount listxattr listxattrat llistxattr lremovexattr lseek \
    lsetxattr lstat lstat64 memfd_create memfd_secret mkdir mkdirat mknod mknodat name_to_handle_at \
    newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read \
    readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir \
    sendfile sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statmount statx symlink \
    symlinkat sync sync_file_range sync_file_range2 syncfs tee truncate truncate64 umask unlink unlinkat \
    utime utimensat utimensat_time64 utimes vmsplice write writev";

/// Memory.
pub(super) const MEMORY: &str = "\
    arch_prctl brk cacheflush cachestat get_thread_area madvise map_shadow_stack membarrier mincore \
    mlock mlock2 mlockall mmap mmap2 modify_ldt mprotect mremap mseal msync munlock munlockall munmap \
    pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease remap_file_pages set_thread_area \
    set_tls";

/// Processes, threads, users, limits and signals.
pub(super) const PROCESSES: &str = "\
    alarm capget capset execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait \
    futex_waitv futex_wake get_robust_list getcpu getegid getegid32 geteuid geteuid32 getgid getgid32 \
    getgroups getgroups32 getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 \
    getresuid getresuid32 getrlimit getrusage getsid gettid getuid getuid32 ioprio_get ioprio_set kill \
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules \
    lsm_set_self_attr nice pause pidfd_open pidfd_send_signal prctl prlimit64 ptrace restart_syscall \
    rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
    rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max \
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler \
    sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam \
    sched_setscheduler sched_yield seccomp set_robust_list set_tid_address setfsgid setfsgid32 setfsuid \
    setfsuid32 setgid setgid32 setgroups setgroups32 setpgid setpriority setregid setregid32 setresgid \
    setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setuid setuid32 sgetmask \
    sigaction sigaltstack signal signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend ssetmask \
    sysinfo tgkill tkill ugetrlimit uname uretprobe vfork wait4 waitid waitpid";

/// Waiting, time, messages between processes.
pub(super) const WAITING: &str = "\
    _newselect adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime \
    clock_gettime64 clock_nanosleep clock_nanosleep_time64 epoll_create epoll_create1 epoll_ctl \
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 getitimer \
    gettimeofday io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit \
    ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend \
    mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd nanosleep poll ppoll ppoll_time64 pselect6 \
    pselect6_time64 select semctl semget semop semtimedop semtimedop_time64 setitimer shmat shmctl shmdt \
    shmget time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime \
    timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 \
    times";

/// Sockets, all but the making of one.
pub(super) const SOCKETS: &str = "\
    accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg \
    recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair";

/// Calls that no capability opens: known ways out of containers or into the kernel's keys.
pub(super) const NEVER: &str = "\
    _sysctl add_key io_uring_enter io_uring_register io_uring_setup keyctl nfsservctl request_key sysfs \
    uselib userfaultfd ustat vm86 vm86old";

/// What only a capability opens: the capability, and its calls.
pub(super) const BEHIND: [(&str, &str); 13] = [
    (
        "SYS_ADMIN",
        "bpf fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr \
         move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns \
         syslog umount umount2 unshare pivot_root swapon swapoff",
    ),
    ("SYS_BOOT", "reboot kexec_load kexec_file_load"),
    ("SYS_MODULE", "delete_module init_module finit_module"),
    ("SYS_PACCT", "acct"),
    (
        "SYS_PTRACE",
        "kcmp pidfd_getfd process_vm_readv process_vm_writev",
    ),
    ("SYS_RAWIO", "ioperm iopl"),
    ("SYS_TIME", "settimeofday stime clock_settime clock_settime64"),
    ("SYS_TTY_CONFIG", "vhangup"),
    (
        "SYS_NICE",
        "get_mempolicy mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
    ),
    ("SYSLOG", "syslog"),
    ("BPF", "bpf"),
    ("PERFMON", "perf_event_open"),
    ("DAC_READ_SEARCH", "open_by_handle_at"),
];
