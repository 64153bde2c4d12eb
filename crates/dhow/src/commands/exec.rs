//! `dhow exec DEPLOYMENT/ID -- CMD`: a command inside a replica, its streams and its exit code as if it ran here.

use std::io::{self, IsTerminal};

use dhow_cli::target::{self, NamedTarget};
use dhow_wire::ReplicaStatus;
use dhow_wire::api::{ExecClientFrame, ExecExit, ExecServerFrame};
use tokio::io::AsyncReadExt;

use crate::client::{Client, ClientError, ExecInput, Request};
use crate::exit::Exit;
use crate::output::{self, Reader};

/// How much of stdin goes into one frame.
const CHUNK_BYTES: usize = 16 * 1024;
/// As many ids as a message shows where a replica is not found.
const SHOWN_MAX: usize = 10;

/// Run a command inside a replica
///
/// Ends with the exit code of the command, 128 and its number for a signal; with 1, 3 or 4 where it could not be
/// run. Stdin is passed on where it is no terminal, or with `-i`.
#[derive(clap::Args)]
pub struct Args {
    /// The replica: DEPLOYMENT/ID as `dhow ps` shows it
    #[arg(value_name = "DEPLOYMENT/ID", value_parser = target::named_target)]
    target: NamedTarget,

    /// Pass stdin on even from a terminal
    #[arg(long, short)]
    interactive: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let NamedTarget { deployment, name } = &args.target;
    let with_stdin = args.interactive || !io::stdin().is_terminal();
    let session = match client
        .exec(deployment.as_str(), name, &args.command, with_stdin)
        .await
    {
        Ok(session) => session,
        Err(error) if error.is_not_found() => return Err(with_names(client, &args.target, error).await),
        Err(error) => return Err(error.into()),
    };
    let mut output_side = session.output;
    let input = with_stdin.then(|| tokio::spawn(pass_stdin_on(session.input)));
    let result = loop {
        match output_side.next().await {
            Ok(Some(ExecServerFrame::Stdout(bytes))) => {
                if output::raw_stdout(&bytes)? == Reader::Gone {
                    break Ok(Exit::Done);
                }
            }
            Ok(Some(ExecServerFrame::Stderr(bytes))) => output::raw_stderr(&bytes),
            Ok(Some(ExecServerFrame::Exit(ExecExit::Code(code)))) => break Ok(exit_of(code)),
            Ok(Some(ExecServerFrame::Exit(ExecExit::Error(text)))) => {
                output::failure(&text);
                break Ok(Exit::Failed);
            }
            Ok(None) => {
                break Err(ClientError::Broke {
                    host: client.host().clone(),
                    why: "it ended before the command did; what became of the command is not known".into(),
                });
            }
            Err(error) => break Err(error),
        }
    };
    if let Some(input) = input {
        input.abort();
    }
    Ok(result?)
}

/// Until stdin ends or nobody takes it any more; the other side says how it ended.
async fn pass_stdin_on(mut input: ExecInput) {
    let mut stdin = tokio::io::stdin();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // A stdin that cannot be read is one without anything in it.
        let count = stdin.read(&mut chunk).await.unwrap_or(0);
        let frame = match chunk.get(..count) {
            Some(bytes) if count > 0 => ExecClientFrame::Stdin(bytes.to_vec()),
            Some(_) | None => ExecClientFrame::StdinEnd,
        };
        if input.send(&frame).await.is_err() || frame == ExecClientFrame::StdinEnd {
            // Held open: a closed connection would end the command.
            std::future::pending::<()>().await;
        }
    }
}

/// Codes above 255 do not exist for a shell; a negative one is a signal.
fn exit_of(code: i32) -> Exit {
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
async fn with_names(client: &Client, target: &NamedTarget, error: ClientError) -> anyhow::Error {
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
