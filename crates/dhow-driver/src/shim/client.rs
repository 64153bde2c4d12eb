//! The daemon's way to the zygote: finds it, starts it when there is none, replaces one of another build,
//! and hands requests to its forks. Calls run in parallel; only starting a zygote is done by one at a time.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::error::ShimError;
use super::identity::ProcessId;
use super::launch;
use super::protocol::{REPLY_MAX_BYTES, REQUEST_MAX_BYTES, Reply, Request, RunSpec, ShimSpec};
use super::record::{ExitStatus, read_record};
use super::replica_dirs::StartLock;
use super::running::ended;
use super::zygote::{RECORD_FILE, SOCKET_FILE, ZygoteRecord};
use crate::cgroup::{CgroupHost, Limits};

/// From connecting to a zygote that answers. Starting one takes milliseconds; a loaded host is given time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// From the request to the word that it runs: a runtime under load takes a second, a dead disk for ever.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// From the last answer to the end of the process that gave it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a process that belongs to the daemon is started, the zygote or the proxy: a command line to which its arguments are
/// added.
#[derive(Clone, Debug)]
pub struct OwnCommand {
    pub program: PathBuf,
    pub args: Vec<String>,
}

impl OwnCommand {
    /// A command of this very binary, even when the file has been replaced since.
    pub fn of_this_binary(verb: &str) -> Self {
        Self {
            program: "/proc/self/exe".into(),
            args: vec![verb.to_owned()],
        }
    }
}

/// What the daemon opens its way to the zygote with.
#[derive(Clone, Debug)]
pub struct ShimConfig {
    /// Where the zygote's socket is: one folder per daemon.
    pub dir: PathBuf,
    pub command: OwnCommand,
    /// Control groups that the zygote joins, so that it is not in the daemon's own.
    pub join: Vec<PathBuf>,
}

impl ShimConfig {
    /// The name of the group that holds zygote and shims, beside those of the replicas.
    pub const GROUP: &str = "shims";

    /// This binary's own zygote, out of the daemon's control groups where the host allows that: whoever ends
    /// the daemon with all of its group must not end what it supervises. Blocks.
    pub fn new(dir: PathBuf, cgroups: &CgroupHost) -> Self {
        let group = cgroups
            .is_usable()
            .then(|| cgroups.create(Self::GROUP, &Limits::default()).ok());
        Self {
            dir,
            command: OwnCommand::of_this_binary("shim-zygote"),
            join: group
                .flatten()
                .map(|group| group.join_files())
                .unwrap_or_default(),
        }
    }
}

/// The daemon's way to its zygote. The drivers and the balancer start shims through it.
#[derive(Debug)]
pub struct ShimClient {
    config: ShimConfig,
    build: String,
    /// Whether the zygote that answers is known to be of this build. Held while one is started.
    checked: Mutex<bool>,
}

impl ShimClient {
    /// Opens nothing yet: the zygote is found or made at the first call.
    pub fn new(config: ShimConfig) -> Result<Self, ShimError> {
        let absolute = |dir: &Path| std::path::absolute(dir);
        let launch = |source| ShimError::Launch {
            program: config.command.program.clone(),
            source,
        };
        let build = build_of(&config.command.program).map_err(launch)?;
        let dir = absolute(&config.dir).map_err(launch)?;
        Ok(Self {
            config: ShimConfig { dir, ..config },
            build,
            checked: Mutex::new(false),
        })
    }

    /// Starts a replica's shim with its workload. The shim holds lock and folder from then on, whoever else does.
    pub async fn supervise(&self, spec: ShimSpec, lock: &StartLock) -> Result<ProcessId, ShimError> {
        let descriptors = [lock.lock.as_raw_fd(), lock.folder.as_fd().as_raw_fd()];
        let mut stream = self
            .send(&Request::Supervise(Box::new(spec)), &descriptors)
            .await?;
        match start_reply(&mut stream).await? {
            Reply::Started { process } => Ok(process),
            Reply::Failed(failure) => Err(ShimError::Refused(failure)),
            Reply::Ended { .. } => Err(out_of_order()),
        }
    }

    /// Starts a socket store that listens on this socket.
    pub async fn keep_sockets(&self, listener: OwnedFd) -> Result<ProcessId, ShimError> {
        let mut stream = self.send(&Request::KeepSockets, &[listener.as_raw_fd()]).await?;
        // When the store ends, nobody may seem to listen any more.
        drop(listener);
        match start_reply(&mut stream).await? {
            Reply::Started { process } => Ok(process),
            Reply::Failed(failure) => Err(ShimError::Refused(failure)),
            Reply::Ended { .. } => Err(out_of_order()),
        }
    }

    /// Starts a command with these as stdin, stdout and stderr.
    pub async fn run(&self, spec: RunSpec, stdio: [OwnedFd; 3]) -> Result<RunSession, ShimError> {
        let numbers: Vec<i32> = stdio.iter().map(AsRawFd::as_raw_fd).collect();
        let mut stream = self.send(&Request::Run(Box::new(spec)), &numbers).await?;
        // Only the command may hold them from here on, or nobody would see their end.
        drop(stdio);
        match start_reply(&mut stream).await? {
            Reply::Started { process } => Ok(RunSession { process, stream }),
            Reply::Failed(failure) => Err(ShimError::Refused(failure)),
            Reply::Ended { .. } => Err(out_of_order()),
        }
    }

    /// The zygote that serves now, if any.
    pub fn zygote(&self) -> Result<Option<ProcessId>, ShimError> {
        Ok(self
            .record()?
            .map(|record| record.process)
            .filter(|process| process.lives()))
    }

    /// Ends the zygote. Shims go on; the next start makes a new one.
    pub async fn stop_zygote(&self) -> Result<(), ShimError> {
        let mut checked = self.checked.lock().await;
        *checked = false;
        self.end_zygote().await
    }

    fn record(&self) -> Result<Option<ZygoteRecord>, ShimError> {
        let path = self.config.dir.join(RECORD_FILE);
        read_record(&path).map_err(|source| ShimError::Record { path, source })
    }

    async fn end_zygote(&self) -> Result<(), ShimError> {
        let unreachable = |source| ShimError::Unreachable {
            socket: self.config.dir.join(SOCKET_FILE),
            source,
        };
        let Some(record) = self.record()? else {
            return Ok(());
        };
        let Some(pidfd) = record.process.open().map_err(unreachable)? else {
            return Ok(());
        };
        // It holds nothing that a kill could hurt.
        match rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => return Err(unreachable(errno.into())),
        }
        ended(pidfd).await.map_err(unreachable)
    }

    /// Connects, making sure that what answers is a zygote of this build.
    async fn connect(&self) -> Result<UnixStream, ShimError> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut checked = self.checked.lock().await;
        if !*checked {
            if self.record()?.is_some_and(|record| record.build != self.build) {
                self.end_zygote().await?;
            }
            *checked = true;
        }
        drop(checked);
        loop {
            match self.try_connect().await {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= deadline => {
                    return Err(ShimError::Unreachable {
                        socket: self.config.dir.join(SOCKET_FILE),
                        source: error,
                    });
                }
                Err(error) if is_absent(&error) => self.launch().await?,
                // Its queue is full, or it is just being replaced: a moment later there is room.
                Err(_) => sleep(CONNECT_PAUSE).await,
            }
        }
    }

    /// A socket's address has 108 bytes at most: it is named through a descriptor of its folder.
    async fn try_connect(&self) -> io::Result<UnixStream> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let dir = rustix::fs::open(&self.config.dir, flags, rustix::fs::Mode::empty())?;
        UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET_FILE}", dir.as_raw_fd())).await
    }

    /// Starts a zygote unless one has appeared meanwhile.
    async fn launch(&self) -> Result<(), ShimError> {
        let _one_at_a_time = self.checked.lock().await;
        match self.try_connect().await {
            // The zygote's fork for this connection sees it close and ends.
            Ok(_) => return Ok(()),
            Err(error) if is_absent(&error) => {}
            Err(_) => return Ok(()),
        }
        let (config, build) = (self.config.clone(), self.build.clone());
        let launched = tokio::task::spawn_blocking(move || launch::launch(&config, &build)).await;
        launched.map_err(|error| ShimError::Launch {
            program: self.config.command.program.clone(),
            source: io::Error::other(error),
        })??;
        // Another daemon's zygote may hold the lock and be about to listen.
        sleep(CONNECT_PAUSE).await;
        Ok(())
    }

    async fn send(&self, request: &Request, descriptors: &[i32]) -> Result<UnixStream, ShimError> {
        let body = serde_json::to_vec(request).map_err(|error| ShimError::Lost(error.into()))?;
        if body.len() > REQUEST_MAX_BYTES {
            return Err(ShimError::TooLong { bytes: body.len() });
        }
        let mut stream = self.connect().await?;
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
        let rights = [ControlMessage::ScmRights(descriptors)];
        let number = stream.as_raw_fd();
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let slices = [IoSlice::new(&length)];
                sendmsg::<()>(number, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None).map_err(io::Error::from)
            })
            .await
            .map_err(ShimError::Lost)?;
        stream
            .write_all(length.get(sent..).unwrap_or_default())
            .await
            .map_err(ShimError::Lost)?;
        stream.write_all(&body).await.map_err(ShimError::Lost)?;
        Ok(stream)
    }
}

/// What tells one build of a program from another. Blocks.
pub fn build_of(program: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(program)?;
    // A file that was replaced has another number or another time.
    Ok(format!(
        "{}-{:x}-{:x}-{:x}.{:x}",
        env!("CARGO_PKG_VERSION"),
        metadata.dev(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec()
    ))
}

/// A command that runs. Dropping it kills the command and all that it started.
#[derive(Debug)]
pub struct RunSession {
    pub process: ProcessId,
    stream: UnixStream,
}

impl RunSession {
    pub async fn wait(&mut self) -> Result<ExitStatus, ShimError> {
        match receive(&mut self.stream).await? {
            Reply::Ended { status } => Ok(status),
            Reply::Failed(failure) => Err(ShimError::Refused(failure)),
            Reply::Started { .. } => Err(out_of_order()),
        }
    }
}

/// Nobody listens: the folder, the socket or the process behind it is missing.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn out_of_order() -> ShimError {
    ShimError::Lost(io::Error::other("an answer to another question"))
}

async fn start_reply(stream: &mut UnixStream) -> Result<Reply, ShimError> {
    let timeout_ms = u64::try_from(START_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    timeout(START_TIMEOUT, receive(stream))
        .await
        .map_err(|_| ShimError::Silent { timeout_ms })?
}

async fn receive(stream: &mut UnixStream) -> Result<Reply, ShimError> {
    let length = stream.read_u32_le().await.map_err(ShimError::Lost)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > REPLY_MAX_BYTES {
        return Err(ShimError::Lost(io::Error::other(format!(
            "an answer of {length} bytes"
        ))));
    }
    let mut body = vec![0u8; length];
    stream.read_exact(&mut body).await.map_err(ShimError::Lost)?;
    let reply = serde_json::from_slice(&body).map_err(|error| ShimError::Lost(error.into()))?;
    match reply {
        Reply::Started { .. } => {}
        Reply::Ended { .. } | Reply::Failed(_) => {
            // The last word: when the connection closes, the process at its other end is gone. One that
            // takes long is no reason to keep the answer back.
            let _ = timeout(CLOSE_TIMEOUT, stream.read_u8()).await;
        }
    }
    Ok(reply)
}
