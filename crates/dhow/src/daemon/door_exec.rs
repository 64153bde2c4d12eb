//! A command inside a replica of this node, as frames.

use dhow_agent::AgentHandle;
use dhow_driver::driver::{self, error_chain};
use dhow_driver::logs::Stream;
use dhow_server::net::node_door::{DoorError, EXEC_FRAMES_MAX, ExecRequest, ExecSession};
use dhow_wire::api::{EXEC_PAYLOAD_BYTES_MAX, ExecClientFrame, ExecExit, ExecServerFrame};
use tokio::sync::mpsc;

use super::door::door_error;

pub async fn begin(agent: &AgentHandle, request: ExecRequest) -> Result<ExecSession, DoorError> {
    let session = agent.exec(request).await.map_err(|error| door_error(&error))?;
    let (input, frames_in) = mpsc::channel(EXEC_FRAMES_MAX);
    let (frames_out, output) = mpsc::channel(EXEC_FRAMES_MAX);
    tokio::spawn(carry(session, frames_in, frames_out));
    Ok(ExecSession { input, output })
}

/// Carries bytes until the command has ended, or the one who asked has gone: then the command ends too.
async fn carry(
    mut session: driver::ExecSession,
    frames_in: mpsc::Receiver<ExecClientFrame>,
    frames_out: mpsc::Sender<ExecServerFrame>,
) {
    let stdin = session.stdin.take();
    let feeding = tokio::spawn(feed(frames_in, stdin));
    while let Some(chunk) = session.output.recv().await {
        for piece in chunk.bytes.chunks(EXEC_PAYLOAD_BYTES_MAX) {
            let frame = match chunk.stream {
                Stream::Stdout => ExecServerFrame::Stdout(piece.to_vec()),
                Stream::Stderr | Stream::Notice => ExecServerFrame::Stderr(piece.to_vec()),
            };
            if frames_out.send(frame).await.is_err() {
                feeding.abort();
                return;
            }
        }
    }
    let exit = tokio::select! {
        exit = session.exit => match exit {
            Ok(Ok(exit)) => match exit.shell_code() {
                Some(code) => ExecExit::Code(code),
                None => ExecExit::Error(exit.to_string()),
            },
            Ok(Err(error)) => ExecExit::Error(error_chain(&error)),
            Err(_) => ExecExit::Error("the daemon is shutting down".into()),
        },
        () = frames_out.closed() => {
            feeding.abort();
            return;
        }
    };
    feeding.abort();
    // Nobody may be listening any more.
    let _ = frames_out.send(ExecServerFrame::Exit(exit)).await;
}

async fn feed(mut frames: mpsc::Receiver<ExecClientFrame>, mut stdin: Option<mpsc::Sender<Vec<u8>>>) {
    while let Some(frame) = frames.recv().await {
        match frame {
            ExecClientFrame::Stdin(bytes) => {
                if let Some(open) = &stdin
                    && open.send(bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            ExecClientFrame::StdinEnd => stdin = None,
        }
    }
}
