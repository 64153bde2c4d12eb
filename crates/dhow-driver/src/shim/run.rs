//! Runs one command for the daemon: exec into a replica. It lives no longer than the daemon's interest: when
//! the connection closes, everything that the command started is killed; where the request says so, it hears SIGHUP before.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use rustix::process::Signal;

use super::identity::{self, ProcessId};
use super::protocol::{Failure, Reply, RunSpec, Step};
use super::pump::{child_signals, reap_one};
use super::record::ExitStatus;
use super::spawn::{self, Stdio};
use super::transport;

/// An editor that hears of the hang-up saves what it has.
const HANG_UP_GRACE: Duration = Duration::from_secs(2);
const CLEAR_UP_TIMEOUT: Duration = Duration::from_secs(5);
const CLEAR_UP_PAUSE: Duration = Duration::from_millis(5);

/// Runs the command to its end.
pub fn run(connection: &mut UnixStream, stdio: Stdio, spec: &RunSpec) -> Result<(), Failure> {
    let signals =
        child_signals().map_err(|error| Failure::io(Step::Resources, &error, "watching for its end"))?;
    let process = spawn::prepare(&spec.program, &stdio)?.release()?;
    // Only the command holds the streams now: their reader sees the end when it ends.
    drop(stdio);
    transport::reply(connection, &Reply::Started { process });
    let status = wait(connection, &signals, process);
    if status.is_none() && spec.hangs_up {
        hang_up();
    }
    kill_children();
    if let Some(status) = status {
        transport::reply(connection, &Reply::Ended { status });
    }
    Ok(())
}

/// How the command ended; `None` when the daemon hung up first.
fn wait(connection: &UnixStream, signals: &SignalFd, process: ProcessId) -> Option<ExitStatus> {
    loop {
        while let Some((pid, status)) = reap_one() {
            if pid == process.pid {
                return Some(status);
            }
        }
        // The daemon says nothing more on this connection: readable means closed.
        let mut polled = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(connection.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        let [children, hung_up] = polled.map(|fd| fd.any().unwrap_or(false));
        if children {
            while matches!(signals.read_signal(), Ok(Some(_))) {}
        } else if hung_up {
            return None;
        }
    }
}

/// Tells all that is below this process that its caller has gone, as a terminal would, and gives it a moment. Whoever is
/// still there after that is killed, also where its parent has ended meanwhile, so that it is below another one now.
fn hang_up() {
    let Ok(me) = ProcessId::of_self() else {
        return;
    };
    let deadline = Instant::now() + HANG_UP_GRACE;
    let mut told = BTreeSet::new();
    loop {
        while reap_one().is_some() {}
        for pid in identity::descendants(me.pid) {
            let Ok(process) = ProcessId::of(pid) else { continue };
            if told.insert(process) {
                // One that is stopped hears nothing before it goes on.
                let signals = [Signal::HUP, Signal::CONT];
                identity::signal_if(pid, &signals, || process.lives() && identity::is_below(pid, me));
            }
        }
        told.retain(|process| process.lives());
        if told.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(CLEAR_UP_PAUSE);
    }
    for process in told {
        identity::kill_if(process.pid, || process.lives());
    }
}

/// Kills all that is below this process: it inherits every orphan. All of the tree at a time: what runs in
/// another namespace is inherited by that namespace's first process once its parent is gone.
fn kill_children() {
    let Ok(me) = ProcessId::of_self() else {
        return;
    };
    let deadline = Instant::now() + CLEAR_UP_TIMEOUT;
    loop {
        while reap_one().is_some() {}
        let children = identity::descendants(me.pid);
        if children.is_empty() || Instant::now() >= deadline {
            return;
        }
        for child in children {
            identity::kill_if(child, || identity::is_below(child, me));
        }
        std::thread::sleep(CLEAR_UP_PAUSE);
    }
}

/// The three streams that came with the request.
pub fn stdio(descriptors: Vec<OwnedFd>) -> io::Result<Stdio> {
    let count = descriptors.len();
    match <[OwnedFd; 3]>::try_from(descriptors) {
        Ok([stdin, stdout, stderr]) => Ok(Stdio {
            stdin,
            stdout,
            stderr,
        }),
        Err(_) => Err(io::Error::other(format!(
            "a command comes with 3 descriptors, not {count}"
        ))),
    }
}
