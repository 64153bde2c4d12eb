//! `dhow volume backup|restore`: archives between a node and a file here.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use dhow_cli::target::NamedTarget;
use dhow_wire::api::VolumeHome;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::json;

use super::Which;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// An archive ends with two blocks of zeros.
const END_BYTES: usize = 1024;

pub(super) async fn backup(client: &Client, which: &Which, file: &str) -> anyhow::Result<Exit> {
    let NamedTarget { deployment, name } = &which.volume;
    let path = ["volumes", deployment.as_str(), name, "content"];
    let request = Request::get(&path).query_if("node", which.node);
    let mut end = End::default();
    if file == "-" {
        if io::stdout().is_terminal() {
            output::failure("an archive is nothing for a terminal: name a file, or pipe it on");
            return Ok(Exit::BadInput);
        }
        let mut stdout = io::stdout();
        let received = client
            .download(request, |bytes| {
                end.see(bytes);
                stdout.write_all(bytes)
            })
            .await?;
        received.context("stdout cannot be written")?;
        stdout.flush().context("stdout cannot be written")?;
        return Ok(end.exit());
    }
    let (mut part, passing) = match new_file(Path::new(file)) {
        Ok(opened) => opened,
        Err(error) => {
            output::error(&error);
            return Ok(Exit::BadInput);
        }
    };
    let received = client
        .download(request, |bytes| {
            end.see(bytes);
            part.write_all(bytes)
        })
        .await;
    let written = match received {
        Ok(written) => written.and_then(|()| part.sync_all()),
        Err(error) => {
            drop(fs::remove_file(&passing));
            return Err(error.into());
        }
    };
    let exit = end.exit();
    let kept = match exit {
        Exit::Done => written.and_then(|()| fs::rename(&passing, file)),
        _ => written,
    };
    if exit != Exit::Done || kept.is_err() {
        drop(fs::remove_file(&passing));
    }
    kept.with_context(|| format!("{file} cannot be written"))?;
    if exit == Exit::Done {
        output::note(&format!("{file}: {}", output::bytes(end.bytes)));
    }
    Ok(exit)
}

/// What comes is written beside the file, which is there once it is whole.
fn new_file(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    if path.symlink_metadata().is_ok() {
        anyhow::bail!("{} is there already: name another file", path.display());
    }
    let mut passing = path.as_os_str().to_owned();
    passing.push(".part");
    let passing = PathBuf::from(passing);
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create(true).truncate(true).open(&passing);
    let file = file.with_context(|| format!("{} cannot be written", passing.display()))?;
    Ok((file, passing))
}

/// What came last: a stream that was cut off lacks the end.
#[derive(Default)]
struct End {
    last: Vec<u8>,
    bytes: u64,
}

impl End {
    fn see(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        self.last.extend_from_slice(bytes);
        let before = self.last.len().saturating_sub(END_BYTES);
        self.last.drain(..before);
    }

    fn exit(&self) -> Exit {
        if self.last.len() == END_BYTES && self.last.iter().all(|byte| *byte == 0) {
            return Exit::Done;
        }
        output::failure("the archive broke off: what has come is not whole");
        Exit::Failed
    }
}

pub(super) async fn restore(client: &Client, which: &Which, file: &str) -> anyhow::Result<Exit> {
    let body = match body_of(file).await {
        Ok(body) => body,
        Err(error) => {
            output::error(&error);
            return Ok(Exit::BadInput);
        }
    };
    let NamedTarget { deployment, name } = &which.volume;
    let path = ["volumes", deployment.as_str(), name, "home"];
    let asked = match which.node {
        Some(node) => json!({ "node_id": node }),
        None => json!({}),
    };
    let home: VolumeHome = client.fetch_as(Request::post(&path).json(asked)).await?;
    let path = ["volumes", deployment.as_str(), name, "content"];
    let request = Request::put(&path)
        .query("node", home.node_id)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    let restored: VolumeHome = client.upload(request, body).await?;
    output::note(&format!(
        "{deployment}/{name} is restored on node {}",
        restored.node_id
    ));
    Ok(Exit::Done)
}

async fn body_of(file: &str) -> anyhow::Result<reqwest::Body> {
    if file == "-" {
        if io::stdin().is_terminal() {
            anyhow::bail!("an archive does not come from a terminal: name a file, or pipe it in");
        }
        let stream = tokio_util::io::ReaderStream::new(tokio::io::stdin());
        return Ok(reqwest::Body::wrap_stream(stream));
    }
    let opened = tokio::fs::File::open(file).await;
    let opened = opened.with_context(|| format!("{file} cannot be read"))?;
    Ok(reqwest::Body::wrap_stream(tokio_util::io::ReaderStream::new(
        opened,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_whole_with_its_end_mark() {
        let mut end = End::default();
        end.see(&[1; 3_000]);
        assert_eq!(end.exit(), Exit::Failed);
        end.see(&[0; 600]);
        assert_eq!(end.exit(), Exit::Failed);
        end.see(&[0; 424]);
        assert_eq!((end.exit(), end.bytes), (Exit::Done, 4_024));
    }
}
