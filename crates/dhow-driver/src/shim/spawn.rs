//! Forks and execs a program in two steps, so that a workload never runs unrecorded: the child sets itself
//! up and waits; only when its record is on disk is it released to exec. If its parent dies in between, the
//! child ends by itself.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{self, AccessFlags, ForkResult, Gid, Pid, Uid};

use super::identity::ProcessId;
use super::protocol::{Failure, Program, RlimitKind, SetUp, Step};
use super::terminal;
use super::unchecked::{self, Inherited};

/// What the program reads and writes.
pub struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Exec's arguments as the kernel wants them, made before the fork.
struct Image {
    path: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
}

/// A child that has joined its groups and waits to become the program.
pub struct Waiting<'a> {
    pub process: ProcessId,
    program: &'a Program,
    go: File,
    errors: File,
}

/// Forks a child that waits.
pub fn prepare<'a>(program: &'a Program, stdio: &Stdio) -> Result<Waiting<'a>, Failure> {
    let image = Image::of(program)?;
    let pipe = || {
        unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| Failure::new(Step::Resources, errno, "making a pipe"))
    };
    let (go_read, go_write) = pipe()?;
    let (errors_read, errors_write) = pipe()?;
    // A signal to the child before it is the program must not get lost in what the shim ignores: while it is
    // blocked it waits, and takes effect once the child has put everything back to its default.
    let mask = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_SETMASK)
        .map_err(|errno| Failure::new(Step::Resources, errno, "blocking signals"))?;
    let forked = unchecked::fork_single_threaded();
    if !matches!(forked, Ok(ForkResult::Child)) {
        mask.thread_set_mask()
            .map_err(|errno| Failure::new(Step::Resources, errno, "unblocking signals"))?;
    }
    match forked {
        Err(errno) => Err(Failure::new(Step::Resources, errno, "making a process")),
        Ok(ForkResult::Child) => {
            // The parent's end must not stay open here, or its death would not be noticed.
            drop((go_write, errors_read));
            become_program(
                program,
                &image,
                stdio,
                File::from(go_read),
                File::from(errors_write),
            )
        }
        Ok(ForkResult::Parent { child }) => {
            drop((go_read, errors_write));
            let pid = u32::try_from(child.as_raw()).unwrap_or(0);
            let process =
                ProcessId::of(pid).map_err(|error| Failure::io(Step::Record, &error, "its start time"))?;
            Ok(Waiting {
                process,
                program,
                go: File::from(go_write),
                errors: File::from(errors_read),
            })
        }
    }
}

impl Waiting<'_> {
    /// Lets the child exec and waits until it has, or until it says why not.
    pub fn release(mut self) -> Result<ProcessId, Failure> {
        // A child that ended before it waited has left its reason in the other pipe.
        let _ = self.go.write_all(&[1]);
        let mut report = Vec::new();
        let read = self.errors.read_to_end(&mut report);
        let result = match (read, report.as_slice()) {
            (Ok(_), []) => return Ok(self.process),
            (Ok(_), [step, index, errno @ ..]) => Err(self.failure(*step, *index, errno)),
            (Ok(_), [_]) | (Err(_), _) => Err(Failure::new(Step::Resources, Errno::EIO, "a child's report")),
        };
        if let Ok(pid) = i32::try_from(self.process.pid) {
            let _ = waitpid(Pid::from_raw(pid), None);
        }
        result
    }

    fn failure(&self, step: u8, index: u8, errno: &[u8]) -> Failure {
        let step = Step::from_byte(step).unwrap_or(Step::Resources);
        let errno =
            <[u8; 4]>::try_from(errno).map_or(Errno::EIO, |bytes| Errno::from_raw(i32::from_le_bytes(bytes)));
        Failure::new(step, errno, detail(self.program, step, usize::from(index)))
    }
}

/// Which part of the program's description a step was about.
fn detail(program: &Program, step: Step, index: usize) -> String {
    let path_text = |path: Option<&PathBuf>| path.map(|p| p.display().to_string()).unwrap_or_default();
    match step {
        Step::Group => path_text(program.join.get(index)),
        Step::Workdir => path_text(program.workdir.as_ref()),
        Step::Rlimit => program
            .rlimits
            .get(index)
            .map(|limit| format!("{limit:?}"))
            .unwrap_or_default(),
        Step::User => program
            .user
            .as_ref()
            .map(|user| format!("{}:{}", user.uid, user.gid))
            .unwrap_or_default(),
        Step::Program => program.argv.first().cloned().unwrap_or_default(),
        Step::Stdio => "its standard streams".into(),
        Step::SetUp => program
            .set_up
            .get(index)
            .map(SetUp::to_string)
            .unwrap_or_default(),
        Step::Request | Step::Log | Step::Resources | Step::Record | Step::Starter | Step::PidFile => {
            String::new()
        }
    }
}

impl Image {
    fn of(program: &Program) -> Result<Self, Failure> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| {
                Failure::new(
                    Step::Request,
                    Errno::EINVAL,
                    format!("{text:?} holds a zero byte"),
                )
            })
        };
        let Some(name) = program.argv.first() else {
            return Err(Failure::new(
                Step::Request,
                Errno::EINVAL,
                "there is no program to run",
            ));
        };
        let found =
            look_up(name, program).ok_or_else(|| Failure::new(Step::Program, Errno::ENOENT, name.clone()))?;
        let path = CString::new(found.as_os_str().as_bytes()).map_err(|_| {
            Failure::new(
                Step::Request,
                Errno::EINVAL,
                format!("{name:?} holds a zero byte"),
            )
        })?;
        let argv = program
            .argv
            .iter()
            .map(|word| text(word))
            .collect::<Result<_, _>>()?;
        let envp = program
            .env
            .iter()
            .map(|(key, value)| text(&format!("{key}={value}")));
        Ok(Self {
            path,
            argv,
            envp: envp.collect::<Result<_, _>>()?,
        })
    }
}

/// The file that a program is run from.
pub fn file_of(program: &Program) -> Option<PathBuf> {
    look_up(program.argv.first()?, program)
}

/// A name without a slash is looked up as a shell would.
fn look_up(name: &str, program: &Program) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let (_, path) = program.env.iter().find(|(key, _)| key == "PATH")?;
    path.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|file| file.is_file() && unistd::access(file, AccessFlags::X_OK).is_ok())
}

/// The child's side: sets itself up, waits, execs. Never returns.
fn become_program(program: &Program, image: &Image, stdio: &Stdio, mut go: File, mut errors: File) -> ! {
    let set_up = join_groups(program).and_then(|()| {
        let mut byte = [0u8];
        match go.read(&mut byte) {
            Ok(1) => Ok(()),
            // The parent died: nobody would know of the program.
            Ok(_) | Err(_) => unchecked::exit_now(1),
        }
    });
    let failed = set_up.and_then(|()| enter(program, stdio)).and_then(|()| {
        let errno = match unistd::execve(&image.path, &image.argv, &image.envp) {
            Err(errno) => errno,
            Ok(never) => match never {},
        };
        Err::<(), _>((Step::Program, 0, errno))
    });
    if let Err((step, index, errno)) = failed {
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        let mut report = vec![step as u8, index];
        report.extend_from_slice(&(errno as i32).to_le_bytes());
        let _ = errors.write_all(&report);
    }
    unchecked::exit_now(127)
}

/// The step that failed, which of several, and the kernel's reason.
type ChildFailure = (Step, usize, Errno);

fn join_groups(program: &Program) -> Result<(), ChildFailure> {
    for (index, file) in program.join.iter().enumerate() {
        let joined = std::fs::OpenOptions::new()
            .write(true)
            .open(file)
            .and_then(|mut file| file.write_all(b"0"));
        joined.map_err(|error| (Step::Group, index, errno_of(&error)))?;
    }
    Ok(())
}

fn enter(program: &Program, stdio: &Stdio) -> Result<(), ChildFailure> {
    let at = |step: Step| move |errno: Errno| (step, 0, errno);
    unistd::setsid().map_err(at(Step::Resources))?;
    unchecked::default_signals();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).map_err(at(Step::Resources))?;
    unistd::dup2_stdin(stdio.stdin.as_fd()).map_err(at(Step::Stdio))?;
    unistd::dup2_stdout(stdio.stdout.as_fd()).map_err(at(Step::Stdio))?;
    unistd::dup2_stderr(stdio.stderr.as_fd()).map_err(at(Step::Stdio))?;
    unchecked::from_three_up(Inherited::CloseOnExec).map_err(|error| (Step::Stdio, 0, errno_of(&error)))?;
    for (index, preparation) in program.set_up.iter().enumerate() {
        set_up(preparation).map_err(|errno| (Step::SetUp, index, errno))?;
    }
    for (index, limit) in program.rlimits.iter().enumerate() {
        setrlimit(rlimit_resource(limit.kind), limit.soft, limit.hard)
            .map_err(|errno| (Step::Rlimit, index, errno))?;
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    if let Some(user) = &program.user {
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        unistd::setgroups(&groups).map_err(at(Step::User))?;
        unistd::setgid(Gid::from_raw(user.gid)).map_err(at(Step::User))?;
        unistd::setuid(Uid::from_raw(user.uid)).map_err(at(Step::User))?;
    }
    if program.no_new_privileges {
        nix::sys::prctl::set_no_new_privs().map_err(at(Step::User))?;
    }
    // As the user: a folder that it may not enter is an error, whoever the daemon is.
    let workdir = program
        .workdir
        .as_deref()
        .map_or(OsStr::new("/"), Path::as_os_str);
    unistd::chdir(workdir).map_err(at(Step::Workdir))
}

/// Does one preparation to the calling process.
fn set_up(preparation: &SetUp) -> nix::Result<()> {
    match preparation {
        SetUp::PrivateMounts => {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // Slave, not private: what the host unmounts later must go away here too.
            let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
            mount(None::<&Path>, "/", None::<&Path>, flags, None::<&Path>)
        }
        SetUp::Unmount { path } => umount2(path, MntFlags::MNT_DETACH),
        SetUp::TakeTerminal => terminal::take(),
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}

/// The kernel's name of a limit.
pub(crate) fn rlimit_resource(kind: RlimitKind) -> Resource {
    match kind {
        RlimitKind::As => Resource::RLIMIT_AS,
        RlimitKind::Core => Resource::RLIMIT_CORE,
        RlimitKind::Cpu => Resource::RLIMIT_CPU,
        RlimitKind::Data => Resource::RLIMIT_DATA,
        RlimitKind::Fsize => Resource::RLIMIT_FSIZE,
        RlimitKind::Locks => Resource::RLIMIT_LOCKS,
        RlimitKind::Memlock => Resource::RLIMIT_MEMLOCK,
        RlimitKind::Msgqueue => Resource::RLIMIT_MSGQUEUE,
        RlimitKind::Nice => Resource::RLIMIT_NICE,
        RlimitKind::Nofile => Resource::RLIMIT_NOFILE,
        RlimitKind::Nproc => Resource::RLIMIT_NPROC,
        RlimitKind::Rss => Resource::RLIMIT_RSS,
        RlimitKind::Rtprio => Resource::RLIMIT_RTPRIO,
        RlimitKind::Rttime => Resource::RLIMIT_RTTIME,
        RlimitKind::Sigpending => Resource::RLIMIT_SIGPENDING,
        RlimitKind::Stack => Resource::RLIMIT_STACK,
    }
}
