//! Files that a command is given. `-` is the standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use dhow_cli::deploy::STDIN;
use dhow_wire::Findings;
use dhow_wire::document::{INPUT_MAX_BYTES, text_of};

/// A file's text with the name that findings use.
#[derive(Debug)]
pub struct Input {
    pub name: String,
    pub text: String,
}

/// Reads a file. Whatever keeps it from being read is a finding like any other.
pub fn read(path: &Path) -> Result<Input, Findings> {
    let name = if path == Path::new("-") {
        STDIN.into()
    } else {
        path.display().to_string()
    };
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => return Err(Findings::outside(&name, reason(&error), advice(&error))),
    };
    let text = text_of(&bytes, &name)?.to_owned();
    Ok(Input { name, text })
}

/// At most one byte more than may be read: enough to know that it is too much, even of an endless device.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let limit = INPUT_MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    if bytes.len() > INPUT_MAX_BYTES {
        // The last character may be cut in half; the file is refused for its size all the same.
        while !bytes.is_empty() && std::str::from_utf8(&bytes).is_err_and(|error| error.error_len().is_none())
        {
            bytes.pop();
        }
        bytes.resize(INPUT_MAX_BYTES + 1, b' ');
    }
    Ok(bytes)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "this file may not be read".into(),
        io::ErrorKind::IsADirectory => "this is a directory".into(),
        _ => format!("this file cannot be read: {error}"),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the name and the directory you are in",
        io::ErrorKind::PermissionDenied => "check its owner and mode",
        io::ErrorKind::IsADirectory => "name a file in it",
        _ => "check that it is a readable file",
    }
}
