//! A command run beside a workload.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::error::DriverError;
use super::status::Exit;
use crate::carry::Carry;
use crate::logs::Stream;

/// Chunks of output that wait for their reader: 16 × 16 KiB is 256 KiB, then the command itself waits.
pub const OUTPUT_CHUNKS_MAX: usize = 16;

/// A command that is to run inside a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub command: Vec<String>,
    /// Whether the command reads what the caller sends; otherwise its input is empty.
    pub stdin: bool,
    /// The terminal that it runs at; then it has no stream for errors of its own.
    pub terminal: Option<Terminal>,
    /// Files that are carried in place of a command.
    pub carry: Option<Carry>,
    /// Whether it hears SIGHUP and has a moment when its caller goes, before it is killed.
    pub hangs_up: bool,
}

/// The terminal that a command runs at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// The command's `TERM`.
    pub term: String,
    pub size: WindowSize,
}

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    pub rows: u16,
    pub cols: u16,
}

impl ExecRequest {
    pub fn new(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// Output as it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecChunk {
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// A command under way. Dropping it kills the command and all that it started.
#[derive(Debug)]
pub struct ExecSession {
    /// Ends when both of the command's streams have.
    pub output: mpsc::Receiver<ExecChunk>,
    /// Takes the command's input where the request wanted that; drop it to end the input.
    pub stdin: Option<mpsc::Sender<Vec<u8>>>,
    /// Takes new sizes of its terminal where it has one.
    pub resize: Option<watch::Sender<WindowSize>>,
    /// How it ended. Read all output first, or drop `output`: a command that nobody reads may wait for ever.
    pub exit: oneshot::Receiver<Result<Exit, DriverError>>,
}

/// All of a short command's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more than the limit; the rest was dropped.
    pub truncated: bool,
    pub exit: Exit,
}

impl ExecSession {
    /// Reads everything, keeping at most `max_bytes` of each stream; `None` when it took longer than
    /// `timeout`: the command is then killed.
    pub async fn finish(
        self,
        max_bytes: usize,
        timeout: Duration,
    ) -> Option<Result<ExecOutput, DriverError>> {
        tokio::time::timeout(timeout, self.collect(max_bytes))
            .await
            .ok()
            .flatten()
    }

    async fn collect(mut self, max_bytes: usize) -> Option<Result<ExecOutput, DriverError>> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
        while let Some(chunk) = self.output.recv().await {
            let kept = match chunk.stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr | Stream::Notice => &mut stderr,
            };
            let room = max_bytes.saturating_sub(kept.len());
            truncated |= chunk.bytes.len() > room;
            kept.extend_from_slice(chunk.bytes.get(..room.min(chunk.bytes.len())).unwrap_or_default());
        }
        // The sender is dropped without a word only when the runtime shuts down.
        let exit = self.exit.await.ok()?;
        Some(exit.map(|exit| ExecOutput {
            stdout,
            stderr,
            truncated,
            exit,
        }))
    }
}
