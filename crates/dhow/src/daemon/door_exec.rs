//! A command inside a replica of this node, as frames.

use dhow_agent::AgentHandle;
use dhow_driver::driver::{self, WindowSize, error_chain};
use dhow_driver::logs::Stream;
use dhow_server::net::node_door::{DoorError, EXEC_FRAMES_MAX, ExecRequest, ExecSession};
use dhow_wire::api::{EXEC_PAYLOAD_BYTES_MAX, ExecClientFrame, ExecExit, ExecServerFrame, TerminalSize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use super::door::door_error;

/// What is read from a connection at a time.
const PORT_READ_BYTES: usize = 16 * 1024;

pub async fn begin(agent: &AgentHandle, request: ExecRequest) -> Result<ExecSession, DoorError> {
    if let Some(port) = request.port {
        let connection = agent.connect(&request.replica, port).await;
        let connection = connection.map_err(|error| door_error(&error))?;
        let (input, frames_in) = mpsc::channel(EXEC_FRAMES_MAX);
        let (frames_out, output) = mpsc::channel(EXEC_FRAMES_MAX);
        tokio::spawn(carry_connection(connection, frames_in, frames_out));
        return Ok(ExecSession { input, output });
    }
    let session = agent.exec(request).await.map_err(|error| door_error(&error))?;
    let (input, frames_in) = mpsc::channel(EXEC_FRAMES_MAX);
    let (frames_out, output) = mpsc::channel(EXEC_FRAMES_MAX);
    tokio::spawn(carry(session, frames_in, frames_out));
    Ok(ExecSession { input, output })
}

/// Carries bytes until the replica has closed the connection, or the one who asked has gone.
async fn carry_connection(
    connection: driver::Connection,
    mut frames_in: mpsc::Receiver<ExecClientFrame>,
    frames_out: mpsc::Sender<ExecServerFrame>,
) {
    let (mut reader, mut writer) = tokio::io::split(connection);
    let reading = async {
        let mut buffer = vec![0; PORT_READ_BYTES];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) => return ExecExit::Code(0),
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    // Whoever has gone is noticed below.
                    let _ = frames_out.send(ExecServerFrame::Stdout(bytes)).await;
                }
                Err(error) => return ExecExit::Error(error.to_string()),
            }
        }
    };
    let writing = async {
        while let Some(frame) = frames_in.recv().await {
            let written = match frame {
                ExecClientFrame::Stdin(bytes) => writer.write_all(&bytes).await,
                ExecClientFrame::StdinEnd => writer.shutdown().await,
                ExecClientFrame::Resize(_) => Ok(()),
            };
            if written.is_err() {
                break;
            }
        }
        // What the replica still has to say is waited for.
        std::future::pending::<()>().await;
    };
    let exit = tokio::select! {
        exit = reading => exit,
        () = writing => return,
        () = frames_out.closed() => return,
    };
    // Nobody may be listening any more.
    let _ = frames_out.send(ExecServerFrame::Exit(exit)).await;
}

/// Carries bytes until the command has ended, or the one who asked has gone: then the command ends too.
async fn carry(
    mut session: driver::ExecSession,
    frames_in: mpsc::Receiver<ExecClientFrame>,
    frames_out: mpsc::Sender<ExecServerFrame>,
) {
    let feeding = tokio::spawn(feed(frames_in, session.stdin.take(), session.resize.take()));
    loop {
        // A command that says nothing ends with its caller too.
        let chunk = tokio::select! {
            chunk = session.output.recv() => chunk,
            () = frames_out.closed() => {
                feeding.abort();
                return;
            }
        };
        let Some(chunk) = chunk else { break };
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

async fn feed(
    mut frames: mpsc::Receiver<ExecClientFrame>,
    mut stdin: Option<mpsc::Sender<Vec<u8>>>,
    resize: Option<watch::Sender<WindowSize>>,
) {
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
            ExecClientFrame::Resize(TerminalSize { rows, cols }) => {
                if let Some(resize) = &resize {
                    // The command may have ended.
                    let _ = resize.send(WindowSize { rows, cols });
                }
            }
        }
    }
}
