//! What the daemon says to a fork of the zygote, and what it hears back: one request and one or two
//! replies per connection, as JSON behind a length. Both ends are the same build (a zygote of another build
//! is replaced), so there is no version here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::identity::ProcessId;
use super::record::ExitStatus;
use crate::cgroup::Group;
use crate::logs::LogLimits;

/// Arguments and environment may be 2 MiB for the kernel; JSON at most doubles text and the rest is small.
pub const REQUEST_MAX_BYTES: usize = 8 << 20;
/// A failure's text is cut to [`DETAIL_MAX_BYTES`]; the rest is a few numbers.
pub const REPLY_MAX_BYTES: usize = 64 << 10;
/// What a reply quotes of a starter's output: the last lines hold the reason.
pub const DETAIL_MAX_BYTES: usize = 4 << 10;

/// What the daemon asks of a fork of the zygote.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Become the shim of a replica. Comes with two descriptors: the replica's lock and its folder.
    Supervise(Box<ShimSpec>),
    /// Run one command. Comes with three descriptors: its stdin, stdout and stderr.
    Run(Box<RunSpec>),
    /// Become a socket store. Comes with one descriptor: the socket that it listens on.
    KeepSockets,
}

/// What a shim does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShimSpec {
    /// Where the replica's folder is, for messages: records and logs go to the descriptor that comes with this.
    pub dir: PathBuf,
    pub log: LogLimits,
    pub workload: Workload,
    /// Where the workload's processes are: for killing what it leaves and for knowing about memory. The
    /// shim itself is never in it.
    pub group: Option<Group>,
    /// Run one after the other when the workload has ended and before the exit is recorded, such as
    /// `runc delete`. Their failure is a notice in the log.
    pub after: Vec<Program>,
}

/// How the workload comes to life.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// The program is the workload. It leads a session of its own.
    Program(Program),
    /// A command that leaves the workload behind as an orphan, which the shim inherits and reaps:
    /// `runc create --pid-file …`, then `runc start …`. Both write to the workload's log; on failure
    /// the end of what they wrote is the reason.
    Starter {
        create: Program,
        pid_file: PathBuf,
        start: Option<Box<Program>>,
        /// Made before `create`, which joins its namespace; it joins those of the workload before `start`.
        init: Option<Init>,
        /// Looked at between `create` and `start`: nothing of the workload runs where one of them is not as it was
        /// found.
        shown: Vec<Shown>,
    },
}

/// What a folder or a file inside the workload has to be: somebody may have made its source lead elsewhere since that
/// was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Where it is mounted.
    pub target: String,
    /// What it was mounted from, for messages.
    pub source: PathBuf,
    pub device: u64,
    pub inode: u64,
}

/// A pid namespace with a first process that only reaps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Init {
    /// Leads to the namespace.
    pub link: PathBuf,
    /// The files by which its process joins groups.
    pub join: Vec<PathBuf>,
}

/// Something that a process does to itself before the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetUp {
    /// A mount namespace of its own, so that what follows is seen by this process and what it starts alone.
    PrivateMounts,
    /// Detaches a mount.
    Unmount { path: PathBuf },
    /// Makes the terminal that stdin is its own.
    TakeTerminal,
}

impl std::fmt::Display for SetUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PrivateMounts => f.write_str("a mount namespace of its own"),
            Self::Unmount { path } => write!(f, "{}", path.display()),
            Self::TakeTerminal => f.write_str("its terminal"),
        }
    }
}

/// A program to exec.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// The first is looked up in the environment's `PATH` unless it has a slash.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    pub workdir: Option<PathBuf>,
    pub user: Option<UserIds>,
    pub rlimits: Vec<Rlimit>,
    /// Nothing that it starts gains rights.
    #[serde(default)]
    pub no_new_privileges: bool,
    /// Files to write `0` to before the program runs, as `Group::join_files` gives them.
    pub join: Vec<PathBuf>,
    /// Done by the program's own process before it becomes the program: nobody else sees it.
    #[serde(default)]
    pub set_up: Vec<SetUp>,
}

/// The user and groups that a program runs as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// A limit of the kernel that the shim sets before it starts the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    pub kind: RlimitKind,
    pub soft: u64,
    pub hard: u64,
}

/// The limits that Linux knows, by their names in a deployment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RlimitKind {
    As,
    Core,
    Cpu,
    Data,
    Fsize,
    Locks,
    Memlock,
    Msgqueue,
    Nice,
    Nofile,
    Nproc,
    Rss,
    Rtprio,
    Rttime,
    Sigpending,
    Stack,
}

impl RlimitKind {
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }
}

/// Runs one command and says how it ended. The command ends when the connection does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    pub program: Program,
    /// When the connection ends, it and all that it started are told by a hang-up and have a moment before they are
    /// killed.
    pub hangs_up: bool,
}

/// What the fork answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It runs. For `Supervise` and `KeepSockets` this is the last reply.
    Started { process: ProcessId },
    /// For `Run`: it has ended.
    Ended { status: ExitStatus },
    /// It does not run, and nothing of it is left.
    Failed(Failure),
}

/// Why something did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub step: Step,
    /// The kernel's word on it.
    pub errno: Option<i32>,
    /// Which file, program or user, or what a starter wrote.
    pub detail: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.step)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail.trim_end())?;
        }
        match self.errno {
            Some(errno) => write!(f, ": {}", std::io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

impl Failure {
    pub fn new(step: Step, errno: nix::errno::Errno, detail: impl Into<String>) -> Self {
        Self {
            step,
            errno: Some(errno as i32),
            detail: cut(detail.into()),
        }
    }

    pub fn io(step: Step, error: &std::io::Error, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        match error.raw_os_error() {
            Some(errno) => Self {
                step,
                errno: Some(errno),
                detail: cut(detail),
            },
            None => Self {
                step,
                errno: None,
                detail: cut(format!("{detail}: {error}")),
            },
        }
    }
}

/// The last [`DETAIL_MAX_BYTES`] of a text.
fn cut(text: String) -> String {
    let Some(excess) = text.len().checked_sub(DETAIL_MAX_BYTES) else {
        return text;
    };
    let start = (excess..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    text.get(start..).unwrap_or_default().to_owned()
}

/// The step of a start that failed. Numbered, because a forked child reports its own in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Step {
    Request = 1,
    Log = 2,
    SetUp = 3,
    Resources = 4,
    Record = 5,
    Group = 6,
    Rlimit = 7,
    Stdio = 8,
    User = 9,
    Workdir = 10,
    Program = 11,
    Starter = 12,
    PidFile = 13,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Request => "the request was not understood",
            Self::Log => "its log could not be opened",
            Self::SetUp => "it could not be prepared",
            Self::Resources => "the host refused a process, a pipe or a session",
            Self::Record => "its record could not be written",
            Self::Group => "its control group could not be joined",
            Self::Rlimit => "a limit was refused",
            Self::Stdio => "its standard streams could not be set up",
            Self::User => "its user could not be taken on",
            Self::Workdir => "its working directory could not be entered",
            Self::Program => "its program could not be executed",
            Self::Starter => "the runtime refused it",
            Self::PidFile => "the runtime did not say which process it started",
        })
    }
}

impl Step {
    pub fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Step; 13] = [
            Step::Request,
            Step::Log,
            Step::SetUp,
            Step::Resources,
            Step::Record,
            Step::Group,
            Step::Rlimit,
            Step::Stdio,
            Step::User,
            Step::Workdir,
            Step::Program,
            Step::Starter,
            Step::PidFile,
        ];
        ALL.into_iter().find(|step| *step as u8 == byte)
    }
}
