//! Commands and connections of fake replicas.
//!
//! A command `fake [stdout=TEXT] [stderr=TEXT] [env=KEY] [size] [exit=CODE]` does what it says; any other ends
//! with 0 while the replica is healthy and with 1 when it is not, as a health check wants it.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::{Cause, ExecChunk, ExecRequest, ExecSession, Exit, OUTPUT_CHUNKS_MAX};
use crate::logs::Stream;

pub(super) fn run(
    request: &ExecRequest,
    env: &BTreeMap<String, String>,
    healthy: bool,
) -> Result<ExecSession, Cause> {
    let (program, words) = request.command.split_first().ok_or(Cause::NoCommand)?;
    let (output_to, output) = mpsc::channel(OUTPUT_CHUNKS_MAX);
    let (exit_to, exit) = oneshot::channel();
    let mut code = i32::from(!healthy);
    if program == "fake" {
        code = 0;
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let chunk = match key {
                "stdout" => Some((Stream::Stdout, format!("{value}\n"))),
                "stderr" => Some((Stream::Stderr, format!("{value}\n"))),
                "size" => {
                    let size = request.terminal.as_ref().map(|terminal| terminal.size);
                    let size = size.ok_or_else(|| Cause::Scripted("there is no terminal".into()))?;
                    Some((Stream::Stdout, format!("{}x{}\n", size.rows, size.cols)))
                }
                "env" => Some((
                    Stream::Stdout,
                    format!("{}\n", env.get(value).map_or("", String::as_str)),
                )),
                "exit" => {
                    code = value
                        .parse()
                        .map_err(|_| Cause::Scripted(format!("`{value}` is no exit code")))?;
                    None
                }
                _ => {
                    return Err(Cause::ProgramNotFound {
                        program: word.clone(),
                        searched: "the fake".into(),
                    });
                }
            };
            if let Some((stream, text)) = chunk {
                let chunk = ExecChunk {
                    stream,
                    bytes: text.into_bytes(),
                };
                output_to
                    .try_send(chunk)
                    .map_err(|_| Cause::Scripted("that is too much to say".into()))?;
            }
        }
    }
    // The receiver is right below: it cannot be gone.
    let _ = exit_to.send(Ok(Exit::code(code)));
    let stdin = request.stdin.then(|| mpsc::channel(1).0);
    let resize = request
        .terminal
        .as_ref()
        .map(|terminal| watch::channel(terminal.size).0);
    Ok(ExecSession {
        output,
        stdin,
        resize,
        exit,
    })
}

/// The far end of a connection that answers a request with 200.
pub(super) fn http_ok() -> DuplexStream {
    /// A health check's request is a few lines.
    const BUFFER_BYTES: usize = 4096;
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    tokio::spawn(answer(theirs));
    ours
}

async fn answer(mut stream: DuplexStream) {
    let mut byte = [0u8; 1024];
    // Whoever only connects and closes gets no answer and needs none.
    if matches!(stream.read(&mut byte).await, Ok(1..)) {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfine\n")
            .await;
    }
}
