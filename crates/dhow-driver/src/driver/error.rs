//! What failed, for which replica, at which stage, and why, for the person who reads it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use dhow_core::ids::ReplicaName;

use super::{DriverResult, Pending};
use crate::cgroup::CgroupError;
use crate::image::{ImageError, RootfsError};
use crate::shim::ShimError;
use crate::volume::VolumeError;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Open,
    Prepare,
    Start,
    List,
    Inspect,
    Wait,
    Stop,
    Exec,
    Connect,
    Usage,
    Logs,
    Remove,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "opening the driver",
            Self::Prepare => "preparing",
            Self::Start => "starting",
            Self::List => "listing replicas",
            Self::Inspect => "looking at",
            Self::Wait => "waiting for",
            Self::Stop => "stopping",
            Self::Exec => "running a command in",
            Self::Connect => "connecting to",
            Self::Usage => "measuring",
            Self::Logs => "reading the logs of",
            Self::Remove => "removing",
        })
    }
}

/// A failed call.
#[derive(Debug)]
pub struct DriverError {
    pub stage: Stage,
    /// Boxed: errors are rare and travel through every result.
    pub replica: Option<Box<ReplicaName>>,
    pub cause: Box<Cause>,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("there is no such replica on this host")]
    NoSuchReplica,
    #[error("it runs already, as process {pid}: stop it first")]
    AlreadyRuns { pid: u32 },
    #[error(
        "it runs from {}, which is not in this data directory, under process {pid}: put that folder back, or end what \
         runs there", folder.display()
    )]
    RunsElsewhere { pid: u32, folder: PathBuf },
    #[error("another start or removal of it is under way: try again")]
    Busy,
    #[error("it does not run")]
    NotRunning,
    #[error("`{field}` cannot be carried out: {why}")]
    Unsupported { field: &'static str, why: String },
    #[error("there is no command to run: give the service a `command`")]
    NoCommand,
    #[error("there is no program `{program}` in {searched}: install it or give its full path")]
    ProgramNotFound { program: String, searched: String },
    #[error("the program `{program}` does not exist")]
    ProgramMissing { program: String },
    #[error("the interpreter that the first line of `{program}` names does not exist")]
    InterpreterMissing { program: String },
    #[error("the program `{program}` cannot be executed")]
    ProgramRefused {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the working directory {path} cannot be entered")]
    Workdir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("this host has no user or group `{name}`")]
    UnknownUser { name: String },
    #[error("it cannot run as user {user}: run the daemon as root, or leave `user` out")]
    UserRefused {
        user: String,
        #[source]
        source: io::Error,
    },
    #[error("`{name}` is no signal: write for example SIGTERM or SIGINT")]
    UnknownSignal { name: String },
    #[error("its control group failed")]
    Cgroup(#[source] CgroupError),
    #[error("{doing} {path} failed")]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("its supervisor failed")]
    Shim(#[source] ShimError),
    #[error(transparent)]
    Image(Box<ImageError>),
    #[error(transparent)]
    Rootfs(Box<RootfsError>),
    #[error(
        "{} leads to {}, which must not be bound here (rule `policy.host_binds` of the daemon's configuration)",
        source_path.display(), leads_to.display()
    )]
    BindForbidden { source_path: PathBuf, leads_to: PathBuf },
    #[error("its volume cannot be made ready")]
    Volume(#[source] Box<VolumeError>),
    #[error("its image has no user or group `{name}`")]
    UnknownImageUser { name: String },
    #[error("containers cannot run here: {why}")]
    NoContainers { why: String },
    #[error("its network failed: {doing}")]
    Network {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "all {count} addresses of the subnet {subnet} are in use: remove replicas, or give this node a larger subnet"
    )]
    NoAddress { subnet: String, count: u32 },
    #[error("the runtime refused it: {output}")]
    Runtime { output: String },
    #[error("nothing answers on port {port}")]
    Port {
        port: u16,
        #[source]
        source: io::Error,
    },
    #[error("process {pid} did not end within {waited_ms} ms after it was killed: it hangs in the kernel")]
    Unkillable { pid: u32, waited_ms: u64 },
    #[error("{0}")]
    Scripted(String),
    #[error("a task of the daemon ended early")]
    Task(#[source] tokio::task::JoinError),
}

impl Stage {
    /// A step that a driver takes for one replica: where it fails, the error says which step that was, and of whom.
    pub(crate) fn of<'a, T>(
        self,
        replica: &'a ReplicaName,
        work: impl Future<Output = Result<T, Cause>> + Send + 'a,
    ) -> Pending<'a, DriverResult<T>> {
        Box::pin(async move { work.await.map_err(|cause| cause.at(self, replica)) })
    }
}

impl Cause {
    pub fn at(self, stage: Stage, replica: &ReplicaName) -> DriverError {
        DriverError {
            stage,
            replica: Some(Box::new(replica.clone())),
            cause: Box::new(self),
        }
    }

    pub fn at_host(self, stage: Stage) -> DriverError {
        DriverError {
            stage,
            replica: None,
            cause: Box::new(self),
        }
    }

    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Cause {
        let path = path.into();
        move |source| Cause::File { doing, path, source }
    }
}

impl DriverError {
    /// Whether the same call can only fail again until somebody changes the spec or the host. What is not
    /// permanent is worth another try after a pause.
    pub fn is_permanent(&self) -> bool {
        match &*self.cause {
            Cause::Unsupported { .. }
            | Cause::BindForbidden { .. }
            | Cause::NoCommand
            | Cause::ProgramNotFound { .. }
            | Cause::ProgramMissing { .. }
            | Cause::InterpreterMissing { .. }
            | Cause::ProgramRefused { .. }
            | Cause::Workdir { .. }
            | Cause::UnknownUser { .. }
            | Cause::UnknownImageUser { .. }
            | Cause::NoContainers { .. }
            | Cause::UserRefused { .. }
            | Cause::UnknownSignal { .. } => true,
            Cause::Image(error) => is_permanent_of_image(error),
            Cause::NoSuchReplica
            | Cause::Rootfs(_)
            | Cause::Volume(_)
            | Cause::Network { .. }
            | Cause::NoAddress { .. }
            | Cause::AlreadyRuns { .. }
            | Cause::RunsElsewhere { .. }
            | Cause::Busy
            | Cause::NotRunning
            | Cause::Cgroup(_)
            | Cause::File { .. }
            | Cause::Shim(_)
            | Cause::Runtime { .. }
            | Cause::Port { .. }
            | Cause::Unkillable { .. }
            | Cause::Scripted(_)
            | Cause::Task(_) => false,
        }
    }
}

/// What an image's author or the spec's has to change. An image that does not exist may exist tomorrow, and
/// a registry that is down comes back.
fn is_permanent_of_image(error: &ImageError) -> bool {
    match error {
        ImageError::Reference(_)
        | ImageError::NoPlatform { .. }
        | ImageError::BadManifest { .. }
        | ImageError::BadLayer { .. }
        | ImageError::NotRoot { .. }
        | ImageError::NotHere { .. } => true,
        ImageError::NotFound { .. }
        | ImageError::Unreachable { .. }
        | ImageError::RegistryFailed { .. }
        | ImageError::BadAnswer { .. }
        | ImageError::Unauthorised { .. }
        | ImageError::WrongDigest { .. }
        | ImageError::WrongSize { .. }
        | ImageError::BadSource { .. }
        | ImageError::DiskFull { .. }
        | ImageError::NoRoom { .. }
        | ImageError::Store { .. }
        | ImageError::Open { .. }
        | ImageError::Catalogue(_)
        | ImageError::InUse { .. }
        | ImageError::Credentials { .. }
        | ImageError::Certificate { .. }
        | ImageError::Setup { .. }
        | ImageError::Cancelled { .. } => false,
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.replica {
            Some(replica) => write!(f, "{} {replica}: {}", self.stage, self.cause),
            None => write!(f, "{}: {}", self.stage, self.cause),
        }
    }
}

/// The cause's text is part of this error's own, so the chain goes on behind it.
impl Error for DriverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// An error with everything behind it, on one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
