//! `dhow port-forward DEPLOYMENT/NAME [LOCAL:]REMOTE`: a port of a replica as one of this machine.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;
use dhow_cli::target::{self, NamedTarget};
use dhow_wire::api::{ExecClientFrame, ExecExit, ExecServerFrame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::client::{Client, ClientError, ExecInput, ExecOutput, ExecSession, ExecWish};
use crate::exit::Exit;
use crate::output;

/// Connections at a time; further callers wait. Each has a connection to the daemon, of which one caller may have 1,024.
const CONNECTIONS_MAX: usize = 64;
/// What is read from a caller at a time.
const READ_BYTES: usize = 16 * 1024;

/// Reach a port of a replica at a port of this machine
///
/// Listens on 127.0.0.1 alone until it is interrupted. Each connection goes through the daemon to the node of the replica.
/// With a service in place of a replica each goes to a healthy one. Of a host program the ports of its endpoints are
/// reached, by their target ports; of a container every port.
#[derive(clap::Args)]
pub struct Args {
    /// The replica as `dhow ps` shows it, or a service
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    target: NamedTarget,

    /// The port of the replica, and the one here where that is another; 0 is any free one
    #[arg(value_name = "[LOCAL:]REMOTE", value_parser = ports)]
    ports: Ports,
}

/// A port here and one there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

fn ports(text: &str) -> Result<Ports, String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok();
    match (number(local), number(remote).filter(|port| *port > 0)) {
        (Some(local), Some(remote)) => Ok(Ports { local, remote }),
        _ => Err(format!(
            "`{text}` is no port: write `5432`, or `8080:80` for port 80 at port 8080 here"
        )),
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    // Whoever names something that is not there hears of it now.
    match connect(client, args).await {
        Ok(session) => drop(session),
        Err(ClientError::Problem(problem)) if problem.status == 400 => {
            let host = client.host();
            output::failure(&format!(
                "the daemon at {host} runs an older version, which connects nobody to a port: upgrade it"
            ));
            return Ok(Exit::Refused);
        }
        Err(error) => return Err(error.into()),
    }
    let address = (Ipv4Addr::LOCALHOST, args.ports.local);
    let listener = TcpListener::bind(address).await;
    let listener =
        listener.with_context(|| format!("127.0.0.1:{} cannot be listened on", args.ports.local))?;
    let NamedTarget { deployment, name } = &args.target;
    output::data(&format!(
        "{} is port {} of {deployment}/{name}\n",
        listener.local_addr()?,
        args.ports.remote
    ))?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = listener.accept().await.context("no connection can be accepted")?;
        let session = match connect(client, args).await {
            Ok(session) => session,
            Err(error) => {
                output::failure(&error.to_string());
                continue;
            }
        };
        tokio::spawn(async move {
            let _place = place;
            carry(stream, session).await;
        });
    }
}

async fn connect(client: &Client, args: &Args) -> Result<ExecSession, ClientError> {
    let wish = ExecWish {
        command: &[],
        with_stdin: true,
        terminal: None,
        port: Some(args.ports.remote),
        copy: None,
    };
    let NamedTarget { deployment, name } = &args.target;
    client.exec(deployment.as_str(), name, &wish).await
}

/// Until the replica has closed its end, or either side has gone.
async fn carry(stream: TcpStream, session: ExecSession) {
    let (reader, writer) = stream.into_split();
    let ExecSession { input, output, .. } = session;
    tokio::select! {
        () = pass_on(reader, input) => {}
        error = hand_over(output, writer) => {
            if let Some(error) = error {
                output::failure(&error);
            }
        }
    }
}

/// What the caller sends; returns where nobody takes it any more.
async fn pass_on(mut reader: OwnedReadHalf, mut input: ExecInput) {
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let frame = match reader.read(&mut chunk).await {
            Ok(count @ 1..) => ExecClientFrame::Stdin(chunk.get(..count).unwrap_or_default().to_vec()),
            Ok(0) => ExecClientFrame::StdinEnd,
            Err(_) => return,
        };
        if input.send(&frame).await.is_err() {
            return;
        }
        if frame == ExecClientFrame::StdinEnd {
            // The answer to what was sent may still come.
            return std::future::pending().await;
        }
    }
}

/// What the replica sends; what went wrong, where something did.
async fn hand_over(mut output: ExecOutput, mut writer: OwnedWriteHalf) -> Option<String> {
    loop {
        match output.next().await {
            Ok(Some(ExecServerFrame::Stdout(bytes) | ExecServerFrame::Stderr(bytes))) => {
                // A caller that has gone has nothing to be told.
                writer.write_all(&bytes).await.ok()?;
            }
            Ok(Some(ExecServerFrame::Exit(ExecExit::Code(_)))) => {
                let _ = writer.shutdown().await;
                return None;
            }
            Ok(Some(ExecServerFrame::Exit(ExecExit::Error(why)))) => return Some(why),
            Ok(None) => return Some("the daemon closed a connection".into()),
            Err(error) => return Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        let both = |local, remote| Ok(Ports { local, remote });
        assert_eq!(ports("5432"), both(5432, 5432));
        assert_eq!(ports("8080:80"), both(8080, 80));
        assert_eq!(ports("0:80"), both(0, 80));
        for wrong in ["", "0", "80:0", "70000", "a:b", "1:2:3", "-1"] {
            assert!(ports(wrong).unwrap_err().contains("8080:80"), "{wrong}");
        }
    }
}
