//! Carries a command's streams between its caller and the pipes or the terminal of a [`RunSession`].

use std::io;
use std::os::fd::OwnedFd;

use dhow_core::ids::ReplicaName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot, watch};

use super::client::RunSession;
use super::protocol::UserIds;
use super::record::ExitStatus;
use super::terminal::{self, Manners, Screen};
use crate::driver::{
    Cause, DriverError, ExecChunk, ExecRequest, ExecSession, Exit, OUTPUT_CHUNKS_MAX, Stage, WindowSize,
};
use crate::logs::Stream;

/// One read of output.
const CHUNK_BYTES: usize = 16 * 1024;
/// Pieces of input that wait for the command: the caller waits behind them.
const INPUT_CHUNKS_MAX: usize = 16;

/// The daemon's ends of a command's streams.
pub enum ExecStreams {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Terminal {
        screen: OwnedFd,
        size: WindowSize,
        manners: Manners,
        with_stdin: bool,
    },
}

impl ExecStreams {
    /// Our ends, and stdin, stdout and stderr for the command.
    pub fn open(
        request: &ExecRequest,
        manners: Manners,
        owner: Option<&UserIds>,
    ) -> io::Result<(Self, [OwnedFd; 3])> {
        match &request.terminal {
            Some(wanted) => Self::terminal(wanted.size, request.stdin, manners, owner),
            None => Self::pipes(request.stdin),
        }
    }

    fn terminal(
        size: WindowSize,
        with_stdin: bool,
        manners: Manners,
        owner: Option<&UserIds>,
    ) -> io::Result<(Self, [OwnedFd; 3])> {
        let (screen, theirs) = terminal::open_pair(size, manners, owner)?;
        let ours = Self::Terminal {
            screen,
            size,
            manners,
            with_stdin,
        };
        Ok((ours, [theirs.try_clone()?, theirs.try_clone()?, theirs]))
    }

    fn pipes(with_stdin: bool) -> io::Result<(Self, [OwnedFd; 3])> {
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        let (stdin, their_stdin): (Option<OwnedFd>, OwnedFd) = if with_stdin {
            let (theirs, ours) = io::pipe()?;
            (Some(ours.into()), theirs.into())
        } else {
            (None, std::fs::File::open("/dev/null")?.into())
        };
        let ours = Self::Pipes {
            stdin,
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        Ok((ours, [their_stdin, their_stdout.into(), their_stderr.into()]))
    }
}

/// Starts the carrying tasks. They end with the command, or kill it when the caller drops the session.
pub fn exec_session(run: RunSession, streams: ExecStreams, name: ReplicaName) -> io::Result<ExecSession> {
    let (output_to, output) = mpsc::channel(OUTPUT_CHUNKS_MAX);
    let (exit_to, exit) = oneshot::channel();
    let (stdin, resize) = match streams {
        ExecStreams::Pipes {
            stdin,
            stdout,
            stderr,
        } => {
            let stdout = Receiver::from_owned_fd(stdout)?;
            let stderr = Receiver::from_owned_fd(stderr)?;
            let stdin = stdin.map(Sender::from_owned_fd).transpose()?.map(|pipe| {
                let (to, from) = mpsc::channel(INPUT_CHUNKS_MAX);
                tokio::spawn(carry_input(from, pipe));
                to
            });
            tokio::spawn(carry_output(stdout, Stream::Stdout, output_to.clone()));
            tokio::spawn(carry_output(stderr, Stream::Stderr, output_to));
            (stdin, None)
        }
        ExecStreams::Terminal {
            screen,
            size,
            manners,
            with_stdin,
        } => {
            let runtime = match manners {
                Manners::Usual => None,
                Manners::Raw => Some(run.process),
            };
            let screen = Screen::of(screen)?;
            let (sizes_to, sizes) = watch::channel(size);
            let stdin = with_stdin.then(|| {
                let (to, from) = mpsc::channel(INPUT_CHUNKS_MAX);
                tokio::spawn(screen.clone().carry_input(from));
                to
            });
            tokio::spawn(screen.clone().carry_sizes(sizes, runtime));
            tokio::spawn(screen.carry_output(output_to));
            (stdin, Some(sizes_to))
        }
    };
    tokio::spawn(wait_for_end(run, exit_to, name));
    Ok(ExecSession {
        output,
        stdin,
        resize,
        exit,
    })
}

/// Ends when the caller drops its end, or the command closes its own.
async fn carry_input(mut from: mpsc::Receiver<Vec<u8>>, mut to: Sender) {
    while let Some(bytes) = from.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn carry_output(mut from: Receiver, stream: Stream, to: mpsc::Sender<ExecChunk>) {
    let mut buffer = vec![0u8; CHUNK_BYTES];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        if to.send(ExecChunk { stream, bytes }).await.is_err() {
            return;
        }
    }
}

/// Waits for the end. When nobody is interested any more the session is dropped, which kills the command.
async fn wait_for_end(
    mut run: RunSession,
    mut to: oneshot::Sender<Result<Exit, DriverError>>,
    name: ReplicaName,
) {
    let ended = tokio::select! {
        ended = run.wait() => ended,
        () = to.closed() => return,
    };
    let exit = ended
        .map(|status| match status {
            ExitStatus::Code(code) => Exit::code(code),
            ExitStatus::Signal(signal) => Exit::signal(signal),
        })
        .map_err(|error| Cause::Shim(error).at(Stage::Exec, &name));
    // A caller that has just lost interest has nothing to hear.
    let _ = to.send(exit);
}
