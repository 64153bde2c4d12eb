//! `dhow cp SOURCE TARGET`: files out of a replica and into it, as a tar stream over the connection of `dhow exec`.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use dhow_cli::human::bytes;
use dhow_cli::target::{self, NamedTarget};
use dhow_driver::carry::{Unpacked, pack, unpack};
use dhow_wire::api::{CopyRequest, CopyWay, ExecClientFrame, ExecExit, ExecServerFrame};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::exec::with_names;
use crate::client::{Client, ClientError, ExecSession, ExecWish};
use crate::exit::Exit;
use crate::output::{self, Reader};

/// How much goes into one frame.
const CHUNK_BYTES: usize = 32 * 1024;
/// Chunks that wait for the disk or for the daemon: 512 KiB.
const CHUNKS_MAX: usize = 16;
/// What is kept of the other side's words.
const WORDS_MAX_BYTES: usize = 8 * 1024;

/// Copy files out of a replica, or into it
///
/// Files, folders and links are copied with their modes, a folder with all that is in it; with `/.` behind it its content
/// alone. Where the target is a folder, the copy is put into it. `-` is a tar archive on stdin or stdout. The image needs no
/// program for it. What is read and written is the replica's user's; a path without `/` before it lies below its working
/// directory. A path of this machine that looks like a replica's is written with `./` before it.
#[derive(clap::Args)]
pub struct Args {
    /// `DEPLOYMENT/NAME:PATH` or a path of this machine
    #[arg(value_name = "DEPLOYMENT/NAME:PATH|PATH", value_parser = place)]
    source: FilePlace,

    /// Likewise; one of the two is a replica's
    #[arg(value_name = "DEPLOYMENT/NAME:PATH|PATH", value_parser = place)]
    target: FilePlace,
}

/// Where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FilePlace {
    /// In a replica, or in a healthy one of a service.
    Replica(NamedTarget, String),
    Here(String),
}

/// `DEPLOYMENT/NAME:PATH`, `-` or a path.
fn place(text: &str) -> Result<FilePlace, String> {
    let is_path = text.is_empty() || text.starts_with(['/', '.', '-']);
    let divided = text
        .split_once(':')
        .filter(|(before, _)| !is_path && before.contains('/'));
    match divided {
        None if text.is_empty() => Err("an empty path is none".into()),
        None => Ok(FilePlace::Here(text.to_owned())),
        Some((_, "")) => Err(format!(
            "which path of it: write `{text}/`, or a path behind the `:`"
        )),
        Some((name, path)) => Ok(FilePlace::Replica(target::named_target(name)?, path.to_owned())),
    }
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match (&args.source, &args.target) {
        (FilePlace::Replica(named, path), FilePlace::Here(here)) => {
            let session = begin(client, named, CopyWay::Out, path).await?;
            download(session, client, here).await
        }
        (FilePlace::Here(here), FilePlace::Replica(named, path)) => {
            if here != "-" && std::fs::symlink_metadata(here).is_err() {
                output::failure(&format!("there is no `{here}` here"));
                return Ok(Exit::BadInput);
            }
            let session = begin(client, named, CopyWay::In, path).await?;
            upload(session, client, here).await
        }
        (FilePlace::Here(_), FilePlace::Here(_)) => {
            output::failure("neither is a replica's: write DEPLOYMENT/NAME:PATH for one of them");
            Ok(Exit::BadInput)
        }
        (FilePlace::Replica(from, _), FilePlace::Replica(to, _)) => {
            output::failure(&format!(
                "both are replicas': `dhow cp {}/{}:PATH - | dhow cp - {}/{}:PATH` does it",
                from.deployment, from.name, to.deployment, to.name
            ));
            Ok(Exit::BadInput)
        }
    }
}

async fn begin(
    client: &Client,
    named: &NamedTarget,
    way: CopyWay,
    path: &str,
) -> anyhow::Result<ExecSession> {
    let wish = ExecWish {
        command: &[],
        with_stdin: way == CopyWay::In,
        terminal: None,
        port: None,
        copy: Some(CopyRequest {
            way,
            path: path.to_owned(),
        }),
    };
    let NamedTarget { deployment, name } = named;
    let session = match client.exec(deployment.as_str(), name, &wish).await {
        Ok(session) => session,
        Err(error) if error.is_not_found() => return Err(with_names(client, named, error).await),
        Err(error) => return Err(error.into()),
    };
    if let Some(replica) = session.replica.as_ref().filter(|replica| *replica != name) {
        output::note(&format!("in {deployment}/{replica}"));
    }
    Ok(session)
}

/// What the other side says beside the files.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn add(&mut self, bytes: &[u8]) {
        let room = WORDS_MAX_BYTES.saturating_sub(self.0.len());
        self.0
            .extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        // It may come from a hostile replica: no escape sequence reaches a terminal.
        let shown = |c: char| {
            if c.is_control() && c != '\n' {
                '\u{fffd}'
            } else {
                c
            }
        };
        text.trim_end().chars().map(shown).collect()
    }

    /// How the other side has ended.
    fn conclude(&self, exit: &ExecExit) -> Exit {
        let text = self.text();
        match exit {
            ExecExit::Code(0) => {
                text.lines().for_each(output::note);
                return Exit::Done;
            }
            ExecExit::Code(code) if text.is_empty() => {
                output::failure(&format!("the copying ended with {code} inside the replica"));
            }
            ExecExit::Code(_) => output::failure(&text),
            ExecExit::Error(why) => output::failure(why),
        }
        Exit::Failed
    }
}

fn cut_off(client: &Client) -> ClientError {
    ClientError::Broke {
        host: client.host().clone(),
        why: "it ended before all was copied".into(),
    }
}

async fn download(session: ExecSession, client: &Client, here: &str) -> anyhow::Result<Exit> {
    let ExecSession {
        input, mut output, ..
    } = session;
    let to_stdout = here == "-";
    let (chunks, waiting) = mpsc::channel::<Vec<u8>>(CHUNKS_MAX);
    let here = here.to_owned();
    let writing = tokio::task::spawn_blocking(move || {
        let mut stream = Incoming {
            chunks: waiting,
            rest: io::Cursor::default(),
        };
        let unpacked = match here.as_str() {
            "-" => Ok(Unpacked::default()),
            here => unpack(Path::new(here), &mut stream),
        };
        (unpacked, here)
    });
    let mut words = Words::default();
    let exit = loop {
        match output.next().await? {
            Some(ExecServerFrame::Stdout(bytes)) if to_stdout => {
                if output::raw_stdout(&bytes)? == Reader::Gone {
                    return Ok(Exit::Done);
                }
            }
            Some(ExecServerFrame::Stdout(bytes)) => {
                if !bytes.is_empty() && chunks.send(bytes).await.is_err() {
                    // What is wrong here is said below.
                    break ExecExit::Code(0);
                }
            }
            Some(ExecServerFrame::Stderr(bytes)) => words.add(&bytes),
            Some(ExecServerFrame::Exit(exit)) => break exit,
            None => return Err(cut_off(client).into()),
        }
    };
    drop((chunks, input));
    let (unpacked, here) = writing.await?;
    let exit = words.conclude(&exit);
    if exit != Exit::Done || to_stdout {
        return Ok(exit);
    }
    match unpacked {
        Ok(Unpacked { files, bytes: size }) => {
            let s = if files == 1 { "" } else { "s" };
            output::note(&format!("{files} file{s}, {}, copied to {here}", bytes(size)));
            Ok(Exit::Done)
        }
        Err(error) => {
            output::failure(&error.to_string());
            Ok(Exit::Failed)
        }
    }
}

async fn upload(session: ExecSession, client: &Client, here: &str) -> anyhow::Result<Exit> {
    let ExecSession {
        mut input,
        mut output,
        ..
    } = session;
    let (chunks, mut waiting) = mpsc::channel::<Vec<u8>>(CHUNKS_MAX);
    let packing = match here {
        "-" => tokio::spawn(pass_stdin_on(chunks)),
        here => {
            let here = here.to_owned();
            tokio::task::spawn_blocking(move || pack_to(&here, chunks))
        }
    };
    let sending = async {
        while let Some(chunk) = waiting.recv().await {
            input.send(&ExecClientFrame::Stdin(chunk)).await?;
        }
        Ok::<(), ClientError>(())
    };
    let mut words = Words::default();
    let early = tokio::select! {
        sent = sending => {
            // A connection that breaks has more to say on its other side.
            drop(sent);
            None
        }
        ended = until_exit(&mut output, &mut words) => Some(ended),
    };
    let exit = match early {
        Some(exit) => exit?,
        None => {
            drop(waiting);
            if let Err(error) = packing.await? {
                // Closing the connection ends the other side.
                output::failure(&error);
                return Ok(Exit::Failed);
            }
            let _ = input.send(&ExecClientFrame::StdinEnd).await;
            until_exit(&mut output, &mut words).await?
        }
    };
    let exit = exit.ok_or_else(|| cut_off(client))?;
    Ok(words.conclude(&exit))
}

/// How the other side ends; none where the connection does before.
async fn until_exit(
    output: &mut crate::client::ExecOutput,
    words: &mut Words,
) -> Result<Option<ExecExit>, ClientError> {
    loop {
        match output.next().await? {
            Some(ExecServerFrame::Exit(exit)) => return Ok(Some(exit)),
            Some(ExecServerFrame::Stderr(bytes)) => words.add(&bytes),
            Some(ExecServerFrame::Stdout(_)) => {}
            None => return Ok(None),
        }
    }
}

/// Blocks.
fn pack_to(here: &str, chunks: mpsc::Sender<Vec<u8>>) -> Result<(), String> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, Outgoing(chunks));
    let mut left_out = |what: &str| {
        output::note(&format!(
            "`{what}` is no file, no folder and no link: it is left out"
        ));
    };
    pack(Path::new(here), &mut out, &mut left_out).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| error.to_string())
}

async fn pass_stdin_on(chunks: mpsc::Sender<Vec<u8>>) -> Result<(), String> {
    let mut stdin = tokio::io::stdin();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = stdin.read(&mut chunk).await.map_err(|error| error.to_string())?;
        match chunk.get(..count) {
            Some(bytes) if count > 0 => {
                if chunks.send(bytes.to_vec()).await.is_err() {
                    return Ok(());
                }
            }
            Some(_) | None => return Ok(()),
        }
    }
}

/// Chunks as they come, for a thread that reads.
struct Incoming {
    chunks: mpsc::Receiver<Vec<u8>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = Read::read(&mut self.rest, buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = io::Cursor::new(chunk),
                None => return Ok(0),
            }
        }
    }
}

/// The same for a thread that writes.
struct Outgoing(mpsc::Sender<Vec<u8>>);

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = bytes.get(..CHUNK_BYTES.min(bytes.len())).unwrap_or_default();
        let sent = self.0.blocking_send(chunk.to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicas_path_is_told_from_one_of_this_machine() {
        let of = |text: &str| match place(text) {
            Ok(FilePlace::Replica(named, path)) => format!("{}/{} {path}", named.deployment, named.name),
            Ok(FilePlace::Here(path)) => path,
            Err(error) => error,
        };
        assert_eq!(
            of("shop/web-default-0:/etc/hosts"),
            "shop/web-default-0 /etc/hosts"
        );
        assert_eq!(of("shop/web:logs/a:b"), "shop/web logs/a:b");
        for here in ["-", "./a/b:c", "/a/b:c", "file", "a:b", "../x"] {
            assert_eq!(of(here), here);
        }
        assert!(of("shop/web:").contains("which path of it"));
        assert!(of("Shop/web:/x").contains("found 'S'"));
    }
}
