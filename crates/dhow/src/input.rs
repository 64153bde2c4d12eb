//! Files that a command is given. `-` is the standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use dhow_cli::deploy::STDIN;
use dhow_core::spec::check::limits::CONFIG_BYTES_MAX;
use dhow_wire::document::{INPUT_MAX_BYTES, text_of};
use dhow_wire::{FileProblem, Findings};

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

/// Reads files that a deployment file names, in its own folder or below it.
pub struct Beside {
    folder: PathBuf,
}

impl Beside {
    /// Beside this file; the standard input stands in the folder of the moment.
    pub fn of(file: &Path) -> Self {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
        }
    }

    /// The bytes of a regular file that does not lead out of the folder.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FileProblem> {
        const INSIDE: &str = "copy it beside the deployment file: only what is there goes with it";
        let wrong = |message: String, hint: &str| FileProblem {
            message,
            hint: hint.to_owned(),
        };
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.is_empty() || !Path::new(path).components().all(is_plain) {
            return Err(wrong(
                format!("`{path}` leads out of the folder of the deployment file"),
                INSIDE,
            ));
        }
        let whole = self.folder.join(path);
        let failed =
            |error: io::Error| wrong(format!("{}: {}", whole.display(), reason(&error)), advice(&error));
        let leads_to = whole.canonicalize().map_err(failed)?;
        if !leads_to.starts_with(self.folder.canonicalize().map_err(failed)?) {
            let message = format!(
                "`{path}` is a link that leads to {}, out of the folder",
                leads_to.display()
            );
            return Err(wrong(message, INSIDE));
        }
        let found = std::fs::metadata(&leads_to).map_err(failed)?;
        if !found.is_file() {
            let what = if found.is_dir() {
                "a directory"
            } else {
                "a device, a pipe or a socket"
            };
            let message = format!("{} is {what}", whole.display());
            return Err(wrong(
                message,
                "name a file; each file of a directory is a config of its own",
            ));
        }
        let mut bytes = Vec::new();
        let opened = File::open(&leads_to).map_err(failed)?;
        opened
            .take(CONFIG_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > CONFIG_BYTES_MAX {
            let message = format!("{} has more than {} KiB", whole.display(), CONFIG_BYTES_MAX >> 10);
            return Err(wrong(message, "keep what is larger in the image or in a volume"));
        }
        Ok(bytes)
    }
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
