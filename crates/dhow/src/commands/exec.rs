//! `dhow exec DEPLOYMENT/NAME -- CMD`: a command inside a replica, its streams and its exit code as if it ran here.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use dhow_cli::target::{self, NamedTarget};
use dhow_wire::ReplicaStatus;
use dhow_wire::api::{
    EXEC_SIGN_EVERY_SECS, EXEC_UPGRADE, ExecClientFrame, ExecExit, ExecServerFrame, TerminalSize,
};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, watch};

use crate::client::{Client, ClientError, ExecInput, ExecOutput, ExecSession, ExecWish, Request};
use crate::exit::Exit;
use crate::output::{self, Reader};
use crate::terminal::{self, Heard, RawTerminal, Signals};

/// How much of stdin goes into one frame.
const CHUNK_BYTES: usize = 16 * 1024;
/// Frames that wait to be sent; whoever types or writes waits behind them.
const FRAMES_MAX: usize = 4;
/// As many ids as a message shows where a replica is not found.
const SHOWN_MAX: usize = 10;
/// At a terminal nobody can end a connection that is dead by Ctrl-C: without a sign for so long it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(6 * EXEC_SIGN_EVERY_SECS);

/// Run a command inside a replica
///
/// Ends with the exit code of the command, 128 and its number for a signal; with 1, 3 or 4 where it could not be
/// run. Stdin is passed on where it is no terminal, or with `-i`. With a service in place of a replica a healthy one is
/// chosen, and named on stderr. The command ends with the connection: it hears SIGHUP, and is killed two seconds later.
#[derive(clap::Args)]
pub struct Args {
    /// The replica as `dhow ps` shows it, or a service
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    target: NamedTarget,

    /// Pass stdin on even from a terminal
    #[arg(long, short)]
    interactive: bool,

    /// Run it at a terminal that is as large as this one; stdin is passed on, and keys such as Ctrl-C go to the command
    #[arg(long, short)]
    tty: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// How it ended, and what is to be said of that once the terminal is as it was.
enum Ended {
    By(Exit),
    Error(String),
    Broke(ClientError),
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let NamedTarget { deployment, name } = &args.target;
    if args.tty && !io::stdin().is_terminal() {
        output::failure(
            "`-t` is for a terminal, and stdin is none here: leave `-t` out, and stdin is passed on as it is",
        );
        return Ok(Exit::BadInput);
    }
    let wish = ExecWish {
        command: &args.command,
        with_stdin: args.tty || args.interactive || !io::stdin().is_terminal(),
        terminal: args.tty.then(terminal::of_stdin),
        port: None,
        copy: None,
    };
    let session = match client.exec(deployment.as_str(), name, &wish).await {
        Ok(session) => session,
        Err(error) if error.is_not_found() => return Err(with_names(client, &args.target, error).await),
        Err(error) if args.tty && knows_no_terminals(&error) => {
            let host = client.host();
            output::failure(&format!(
                "the daemon at {host} runs an older version, which opens no terminals: upgrade it, or leave `-t` out"
            ));
            return Ok(Exit::Refused);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(replica) = session.replica.as_ref().filter(|replica| *replica != name) {
        output::note(&format!("in {deployment}/{replica}"));
    }
    let local = args.tty.then(Local::begin).transpose()?;
    // The terminal is as it was before anything is said.
    let ended = attend(session, wish.with_stdin, local, client).await?;
    match ended {
        Ended::By(exit) => Ok(exit),
        Ended::Error(text) => {
            output::failure(&text);
            Ok(Exit::Failed)
        }
        Ended::Broke(error) => Err(error.into()),
    }
}

/// Whether this is what a daemon answers that knows commands without a terminal alone.
fn knows_no_terminals(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.status == 400 && problem.detail.contains(EXEC_UPGRADE))
}

/// This side's terminal while the command has it.
struct Local {
    raw: RawTerminal,
    signals: Signals,
}

impl Local {
    fn begin() -> anyhow::Result<Self> {
        // In this order: whoever is told to end in between puts the terminal back.
        let signals = Signals::listen().context("signals cannot be listened for")?;
        let raw = RawTerminal::enter().context("the terminal cannot be made raw")?;
        Ok(Self { raw, signals })
    }
}

/// Carries both ways until the command has ended, or this process has to.
async fn attend(
    session: ExecSession,
    with_stdin: bool,
    mut local: Option<Local>,
    client: &Client,
) -> anyhow::Result<Ended> {
    let ExecSession {
        input, mut output, ..
    } = session;
    let (frames, waiting) = mpsc::channel(FRAMES_MAX);
    let (sizes, changed) = watch::channel(TerminalSize::default());
    let sender = tokio::spawn(send(input, waiting, changed));
    let typist = with_stdin.then(|| tokio::spawn(pass_stdin_on(frames.clone())));
    let has_terminal = local.is_some();
    if has_terminal {
        // It may have changed since it was asked for.
        sizes.send_replace(terminal::size());
    }
    let ended = loop {
        tokio::select! {
            ended = next(&mut output, has_terminal, client) => {
                if let Some(ended) = ended? {
                    break ended;
                }
            }
            (heard, raw) = heard(&mut local) => match heard {
                Heard::Resized => {
                    sizes.send_replace(terminal::size());
                }
                Heard::Stop => raw.stop(),
                Heard::GoOn => {
                    raw.go_on();
                    sizes.send_replace(terminal::size());
                }
                Heard::End(signal) => break Ended::By(exit_of(signal.saturating_add(128))),
            },
        }
    };
    sender.abort();
    if let Some(typist) = typist {
        typist.abort();
    }
    Ok(ended)
}

/// What this process is told while its terminal is raw.
async fn heard(local: &mut Option<Local>) -> (Heard, &RawTerminal) {
    match local {
        Some(local) => (local.signals.next().await, &local.raw),
        None => std::future::pending().await,
    }
}

/// Passes the next piece of output on, or says how it ended. May be dropped while it waits.
async fn next(output: &mut ExecOutput, has_terminal: bool, client: &Client) -> anyhow::Result<Option<Ended>> {
    let broke = |why: &str| {
        Some(Ended::Broke(ClientError::Broke {
            host: client.host().clone(),
            why: format!("{why}; what became of the command is not known"),
        }))
    };
    let frame = if has_terminal {
        match tokio::time::timeout(SILENCE_MAX, output.next()).await {
            Ok(frame) => frame,
            Err(_) => return Ok(broke("it is silent")),
        }
    } else {
        output.next().await
    };
    Ok(match frame {
        Ok(Some(ExecServerFrame::Stdout(bytes))) => {
            (output::raw_stdout(&bytes)? == Reader::Gone).then_some(Ended::By(Exit::Done))
        }
        Ok(Some(ExecServerFrame::Stderr(bytes))) => {
            output::raw_stderr(&bytes);
            None
        }
        Ok(Some(ExecServerFrame::Exit(ExecExit::Code(code)))) => Some(Ended::By(exit_of(code))),
        Ok(Some(ExecServerFrame::Exit(ExecExit::Error(text)))) => Some(Ended::Error(text)),
        Ok(None) => broke("it ended before the command did"),
        // A reset, where the kernel had more to send than was read.
        Err(ClientError::Broke { why, .. }) => broke(&why),
        Err(error) => Some(Ended::Broke(error)),
    })
}

/// Sends what was typed and how large the terminal is, until nobody takes it any more; the other side says how it ended.
async fn send(
    mut input: ExecInput,
    mut frames: mpsc::Receiver<ExecClientFrame>,
    mut sizes: watch::Receiver<TerminalSize>,
) {
    loop {
        let frame = tokio::select! {
            Some(frame) = frames.recv() => frame,
            Ok(()) = sizes.changed() => ExecClientFrame::Resize(*sizes.borrow_and_update()),
            else => break,
        };
        if input.send(&frame).await.is_err() {
            break;
        }
    }
    // Held open: a closed connection would end the command.
    std::future::pending::<()>().await;
}

/// Until stdin ends or nobody takes it any more.
async fn pass_stdin_on(frames: mpsc::Sender<ExecClientFrame>) {
    let mut stdin = tokio::io::stdin();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // A stdin that cannot be read is one without anything in it.
        let count = stdin.read(&mut chunk).await.unwrap_or(0);
        let frame = match chunk.get(..count) {
            Some(bytes) if count > 0 => ExecClientFrame::Stdin(bytes.to_vec()),
            Some(_) | None => ExecClientFrame::StdinEnd,
        };
        let is_last = frame == ExecClientFrame::StdinEnd;
        if frames.send(frame).await.is_err() || is_last {
            return;
        }
    }
}

/// Codes above 255 do not exist for a shell; a negative one is a signal.
pub(super) fn exit_of(code: i32) -> Exit {
    let code = if code < 0 {
        code.saturating_neg().saturating_add(128)
    } else {
        code
    };
    match u8::try_from(code) {
        Ok(0) => Exit::Done,
        Ok(code) => Exit::Of(code),
        Err(_) => Exit::Failed,
    }
}

/// What is there, for somebody who named something else.
pub(super) async fn with_names(client: &Client, target: &NamedTarget, error: ClientError) -> anyhow::Error {
    let request = Request::get(&["replicas"]).query("deployment", &target.deployment);
    let replicas: Vec<ReplicaStatus> = client.fetch_as(request).await.unwrap_or_default();
    if replicas.is_empty() {
        return error.into();
    }
    let ids: Vec<String> = replicas
        .iter()
        .take(SHOWN_MAX)
        .map(|replica| format!("{}/{}", replica.deployment, replica.id))
        .collect();
    output::note(&format!(
        "replicas of `{}`: {}",
        target.deployment,
        ids.join(", ")
    ));
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        let cases = [
            (0, Exit::Done),
            (1, Exit::Of(1)),
            (143, Exit::Of(143)),
            (255, Exit::Of(255)),
            (-9, Exit::Of(137)),
            (256, Exit::Failed),
            (i32::MIN, Exit::Failed),
        ];
        for (code, exit) in cases {
            assert_eq!(exit_of(code), exit, "{code}");
        }
    }
}
