//! Carries a command's streams between its caller and the pipes of a [`RunSession`].

use std::io;
use std::os::fd::OwnedFd;

use dhow_core::ids::ReplicaName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot};

use super::client::RunSession;
use super::record::ExitStatus;
use crate::driver::{Cause, DriverError, ExecChunk, ExecSession, Exit, OUTPUT_CHUNKS_MAX, Stage};
use crate::logs::Stream;

/// One read of output.
const CHUNK_BYTES: usize = 16 * 1024;
/// Pieces of input that wait for the command: the caller waits behind them.
const INPUT_CHUNKS_MAX: usize = 16;

/// The daemon's ends of a command's streams.
pub struct ExecPipes {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl ExecPipes {
    /// Our ends, and stdin, stdout and stderr for the command.
    pub fn open(with_stdin: bool) -> io::Result<(Self, [OwnedFd; 3])> {
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        let (stdin, their_stdin): (Option<OwnedFd>, OwnedFd) = if with_stdin {
            let (theirs, ours) = io::pipe()?;
            (Some(ours.into()), theirs.into())
        } else {
            (None, std::fs::File::open("/dev/null")?.into())
        };
        let ours = Self {
            stdin,
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        Ok((ours, [their_stdin, their_stdout.into(), their_stderr.into()]))
    }
}

/// Starts the carrying tasks. They end with the command, or kill it when the caller drops the session.
pub fn exec_session(run: RunSession, pipes: ExecPipes, name: ReplicaName) -> io::Result<ExecSession> {
    let stdout = Receiver::from_owned_fd(pipes.stdout)?;
    let stderr = Receiver::from_owned_fd(pipes.stderr)?;
    let (output_to, output) = mpsc::channel(OUTPUT_CHUNKS_MAX);
    let (exit_to, exit) = oneshot::channel();
    let stdin = match pipes.stdin {
        Some(fd) => {
            let (to, from) = mpsc::channel(INPUT_CHUNKS_MAX);
            tokio::spawn(carry_input(from, Sender::from_owned_fd(fd)?));
            Some(to)
        }
        None => None,
    };
    tokio::spawn(carry_output(stdout, Stream::Stdout, output_to.clone()));
    tokio::spawn(carry_output(stderr, Stream::Stderr, output_to));
    tokio::spawn(watch(run, exit_to, name));
    Ok(ExecSession { output, stdin, exit })
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
async fn watch(mut run: RunSession, mut to: oneshot::Sender<Result<Exit, DriverError>>, name: ReplicaName) {
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
