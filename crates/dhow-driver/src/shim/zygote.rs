//! The zygote: waits on a socket and forks. It reads nothing of what is sent, so nobody can hold it up.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dhow_disk::Outlives;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{ForkResult, geteuid, setsid};
use serde::{Deserialize, Serialize};

use super::identity::ProcessId;
use super::protocol::{Failure, Reply, Request, Step};
use super::record::{RECORD_VERSION, Record};
use super::unchecked::{self, Inherited};
use super::{run, socket_store, supervise, transport};

pub const SOCKET_FILE: &str = "zygote.sock";
pub const LOCK_FILE: &str = "zygote.lock";
pub const RECORD_FILE: &str = "zygote.json";

/// A zygote whose socket was removed from disk can never be reached again: it looks this often.
const LOOK_INTERVAL_MS: u16 = 60_000;
/// For want of descriptors or processes, serving pauses instead of spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// Which zygote serves a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteRecord {
    pub version: u32,
    pub process: ProcessId,
    /// The build that it runs: a daemon of another one replaces it.
    pub build: String,
}

impl Record for ZygoteRecord {
    fn version(&self) -> u32 {
        self.version
    }
}

/// What stands on the zygote's command line: `--dir DIR --build TEXT [--files NUMBER] [--join FILE]…`.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    dir: PathBuf,
    build: String,
    /// How many files replicas may have open, unless they say otherwise.
    files: Option<u64>,
    join: Vec<PathBuf>,
}

/// Runs a zygote: the binary's `shim-zygote` command, called with what follows that word, before the binary
/// has started any thread. Gives the exit code; returns in the forks too, whose code it is then. Whoever
/// calls it ends the process with that code at once.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    match serve(args) {
        Ok(()) => 0,
        Err(error) => {
            // Heard by the daemon that starts it; later nobody listens, and nothing is said.
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

fn serve(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    unchecked::from_three_up(Inherited::Close)?;
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "a zygote has one thread, this process has {threads}"
        )));
    }
    let arguments = Arguments::parse(args)?;
    std::env::set_current_dir("/")?;
    if let Some(files) = arguments.files {
        crate::files::lower(files)?;
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&arguments.dir)?;
    for file in &arguments.join {
        // Outside of the daemon's own group it survives whoever ends that; without, it merely does not.
        let _ = OpenOptions::new()
            .write(true)
            .open(file)
            .and_then(|mut file| file.write_all(b"0"));
    }
    let Some(lock) = lock(&arguments.dir)? else {
        return Ok(());
    };
    let socket = arguments.dir.join(SOCKET_FILE);
    let listener = listen(&arguments.dir)?;
    match unchecked::fork_single_threaded()? {
        ForkResult::Parent { child } => {
            let pid = u32::try_from(child.as_raw()).map_err(io::Error::other)?;
            let record = ZygoteRecord {
                version: RECORD_VERSION,
                process: ProcessId::of(pid)?,
                build: arguments.build,
            };
            // No zygote outlives a power cut.
            let bytes = serde_json::to_vec(&record)?;
            dhow_disk::replace(&arguments.dir.join(RECORD_FILE), &bytes, Outlives::Process)
        }
        ForkResult::Child => {
            detach()?;
            let served = accept_loop(listener, lock, &socket);
            unchecked::exit_now(i32::from(served.is_err()))
        }
    }
}

impl Arguments {
    fn parse(args: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let usage =
            || io::Error::other("usage: shim-zygote --dir DIR --build TEXT [--files NUMBER] [--join FILE]…");
        let (mut dir, mut build, mut files, mut join) = (None, None, None, Vec::new());
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(usage)?;
            match name.to_str() {
                Some("--dir") => dir = Some(PathBuf::from(value)),
                Some("--build") => build = value.into_string().ok(),
                Some("--files") => {
                    let number = value.to_str().and_then(|text| text.parse().ok());
                    files = Some(number.ok_or_else(usage)?);
                }
                Some("--join") => join.push(PathBuf::from(value)),
                Some(_) | None => return Err(usage()),
            }
        }
        let dir = dir.filter(|dir| dir.is_absolute()).ok_or_else(usage)?;
        Ok(Self {
            dir,
            build: build.ok_or_else(usage)?,
            files,
            join,
        })
    }
}

/// One zygote per folder; `None` when there is one already. The lock goes with the last copy of the file:
/// a fork that closes its own leaves the zygote's alone.
fn lock(dir: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Binds the socket. A socket's address has 108 bytes at most; from inside its folder any name is short.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(dir.join(SOCKET_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    std::env::set_current_dir(dir)?;
    let listener = UnixListener::bind(SOCKET_FILE)?;
    std::env::set_current_dir("/")?;
    Ok(listener)
}

/// Leaves the daemon's session and streams, and the name that would make it look like another daemon.
fn detach() -> io::Result<()> {
    setsid()?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(null.as_fd())?;
    nix::unistd::dup2_stdout(null.as_fd())?;
    nix::unistd::dup2_stderr(null.as_fd())?;
    prctl::set_name(c"dhow-zygote")?;
    // The kernel reaps shims for a parent that ignores their end. Forks put that back before they fork.
    unchecked::ignore_signal(Signal::SIGCHLD);
    Ok(())
}

fn accept_loop(listener: UnixListener, lock: File, socket: &Path) -> io::Result<()> {
    let inode = fs::metadata(socket)?.ino();
    loop {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(LOOK_INTERVAL_MS)) {
            Ok(0) | Err(Errno::EINTR) => {
                if fs::metadata(socket).map_or(true, |found| found.ino() != inode) {
                    return Ok(());
                }
                continue;
            }
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut connection = match listener.accept() {
            Ok((connection, _)) => connection,
            Err(_) => {
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        // What it starts runs as root: the folder is closed to others, and this holds where somebody has opened it.
        if !may_ask(peer_of(&connection), geteuid().as_raw()) {
            continue;
        }
        match unchecked::fork_single_threaded() {
            Ok(ForkResult::Parent { .. }) => {}
            Ok(ForkResult::Child) => {
                // The lock and the address belong to the zygote: a shim that kept them would keep a
                // successor from taking its place.
                drop((listener, lock));
                become_shim(connection)
            }
            Err(errno) => {
                let failure = Failure::new(Step::Resources, errno, "making the replica's supervisor");
                transport::reply(&mut connection, &Reply::Failed(failure));
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// The user at the other end, as the kernel says.
fn peer_of(connection: &UnixStream) -> Option<u32> {
    getsockopt(connection, PeerCredentials)
        .ok()
        .map(|peer| peer.uid())
}

/// Whether it is root or the zygote's own user who asks, whichever way anybody else has reached the socket.
fn may_ask(peer: Option<u32>, own: u32) -> bool {
    peer.is_some_and(|peer| peer == 0 || peer == own)
}

/// A fork's whole life. The connection is open until its very end, unless it supervises: whoever has the last
/// answer and then sees it close knows that nothing of the fork is left.
fn become_shim(connection: UnixStream) -> ! {
    unchecked::default_signals();
    // A shim ends when its workload has; asking it to end earlier would cost the exit code.
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGPIPE,
    ] {
        unchecked::ignore_signal(signal);
    }
    let mut connection = Some(connection);
    if let Err(failure) = serve_request(&mut connection)
        && let Some(connection) = &mut connection
    {
        transport::reply(connection, &Reply::Failed(failure));
    }
    unchecked::exit_now(0)
}

fn serve_request(connection: &mut Option<UnixStream>) -> Result<(), Failure> {
    let set_up = setsid()
        .map(drop)
        .and_then(|()| prctl::set_child_subreaper(true))
        .and_then(|()| prctl::set_name(c"dhow-shim"));
    set_up.map_err(|errno| Failure::new(Step::Resources, errno, "leaving the zygote's session"))?;
    let bad_request = |error: io::Error| Failure::io(Step::Request, &error, "reading the request");
    let Some(stream) = connection.as_mut() else {
        return Ok(());
    };
    let received = transport::receive(stream).map_err(bad_request)?;
    match received.request {
        Request::Supervise(spec) => {
            let hold = supervise::hold(received.descriptors, &spec.dir).map_err(bad_request)?;
            supervise::run(connection, hold, *spec)
        }
        Request::Run(spec) => {
            let stdio = run::stdio(received.descriptors).map_err(bad_request)?;
            run::run(stream, stdio, &spec)
        }
        Request::KeepSockets => {
            let listener = socket_store::listener(received.descriptors).map_err(bad_request)?;
            socket_store::run(connection, listener)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> io::Result<Arguments> {
        Arguments::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn only_root_and_its_own_user_may_ask() {
        let (asks, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_of(&asks), Some(geteuid().as_raw()));
        assert!(may_ask(Some(0), 1000) && may_ask(Some(1000), 1000));
        for (peer, own) in [(Some(1001), 1000), (Some(1000), 0), (None, 0)] {
            assert!(!may_ask(peer, own), "{peer:?} asks {own}");
        }
    }

    #[test]
    fn arguments_are_checked() {
        let words = [
            "--dir", "/d", "--build", "b", "--files", "9", "--join", "/x", "--join", "/y",
        ];
        let good = parse(&words).unwrap();
        assert_eq!(
            good,
            Arguments {
                dir: "/d".into(),
                build: "b".into(),
                files: Some(9),
                join: vec!["/x".into(), "/y".into()]
            }
        );
        for bad in [
            &["--dir", "/d"][..],
            &["--dir", "d", "--build", "b"],
            &["--dir"],
            &["--what", "x"],
            &["--dir", "/d", "--build", "b", "--files", "many"],
            &[],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
