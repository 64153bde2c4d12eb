//! `dhow daemon stop`: asks the daemon of this host to end, and waits until it has.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use dhow_core::spec::TimeSpan;
use dhow_wire::Setting;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::config_of;
use crate::exit::Exit;
use crate::output;

/// End the daemon of this host; everything that it started runs on
///
/// The daemon that listens at the socket gets a SIGTERM and is waited for. The next `dhow daemon` takes up what runs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  dhow daemon stop\n  dhow daemon stop --data-dir /srv/dhow --timeout 1m")]
pub struct Args {
    /// The directory of its state
    #[arg(long, value_name = "DIR")]
    data_dir: Option<OsString>,

    /// Its Unix socket
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,

    /// How long to wait for its end
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    timeout: TimeSpan,
}

/// Whoever listens at the socket, held so that no other process is meant by its number.
struct Listener {
    pid: Pid,
    process: OwnedFd,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let given = [
        (Setting::DataDir, &args.data_dir),
        (Setting::Socket, &args.socket),
    ];
    let flags: Vec<_> = given
        .into_iter()
        .filter_map(|(setting, value)| Some((setting, value.clone()?)))
        .collect();
    let config = match config_of(None, &flags) {
        Ok(config) => config,
        Err(findings) => {
            output::findings(&findings);
            return Ok(Exit::BadInput);
        }
    };
    let socket = config.socket.as_path();
    let Some(listener) = listener(socket)? else {
        output::failure(&format!(
            "no daemon listens at {}; --data-dir or --socket name another one",
            socket.display()
        ));
        return Ok(Exit::NoDaemon);
    };
    end(&listener, args.timeout.to_std())
}

/// The daemon at the socket; none where nobody listens there.
fn listener(socket: &Path) -> anyhow::Result<Option<Listener>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("the socket {} cannot be reached", socket.display()));
        }
    };
    let asked = |stream: &UnixStream| socket_peercred(stream).context("the kernel does not say who listens");
    let pid = asked(&stream)?.pid;
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(None);
    };
    // It could have ended, and its number be another's, before it was held.
    let again = match UnixStream::connect(socket) {
        Ok(stream) => asked(&stream)?.pid,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok((again == pid).then_some(Listener { pid, process }))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn end(listener: &Listener, timeout: Duration) -> anyhow::Result<Exit> {
    let pid = listener.pid.as_raw_nonzero();
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if is_foreground_up(&words) {
        output::failure(&format!(
            "this daemon is part of `dhow up` (process {pid}), which would take its deployment down: end it there with \
             Ctrl-C, or use `dhow up -d`"
        ));
        return Ok(Exit::Refused);
    }
    pidfd_send_signal(&listener.process, Signal::TERM)
        .with_context(|| format!("the daemon (process {pid}) cannot be signalled; run this as its user"))?;
    let mut ended = [PollFd::new(listener.process.as_fd(), PollFlags::POLLIN)];
    let patience = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let count = poll(
        &mut ended,
        PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX),
    )?;
    if count == 0 {
        output::failure(&format!(
            "the daemon (process {pid}) was asked to end and has not; its log says what it waits for"
        ));
        return Ok(Exit::Failed);
    }
    output::note(&format!(
        "the daemon (process {pid}) has ended; what it started runs on, and the next daemon takes it up"
    ));
    Ok(Exit::Done)
}

/// Whether a process, by its words, is `dhow up` in the foreground, with a daemon inside.
fn is_foreground_up(cmdline: &[u8]) -> bool {
    let words = cmdline.split(|byte| *byte == 0).skip(1);
    let mut verbs = words.filter(|word| !word.starts_with(b"-") && !word.is_empty());
    verbs.any(|word| word == b"up") && !cmdline.split(|byte| *byte == 0).any(|word| word == b"daemon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_inside_of_up_is_told_from_one_of_its_own() {
        assert!(is_foreground_up(b"dhow\0up\0examples/hello.dhow.yaml\0"));
        assert!(is_foreground_up(b"dhow\0--host\0unix:///x\0up\0"));
        assert!(!is_foreground_up(
            b"/proc/self/exe\0daemon\0--data-dir\0/srv/up\0"
        ));
        assert!(!is_foreground_up(b"dhow\0worker\0--servers\0a:1\0"));
        assert!(!is_foreground_up(b""));
    }

    #[test]
    fn nobody_listens_where_there_is_no_socket_or_a_dead_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dhow.sock");
        assert!(listener(&path).unwrap().is_none());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(listener(&path).unwrap().is_none());
    }

    #[test]
    fn whoever_listens_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dhow.sock");
        let _open = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let found = listener(&path).unwrap().unwrap();
        assert_eq!(
            found.pid.as_raw_nonzero().get().unsigned_abs(),
            std::process::id()
        );
    }
}
