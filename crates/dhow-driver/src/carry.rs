//! Files into a replica and out of it, as a tar stream: packed and unpacked by a helper that sees them as the workload does,
//! and by the command line on its side.
//!
//! Neither side trusts the other: what is unpacked stays below the folder that was named, whatever names and links the
//! stream holds or finds there. The helper of a container enters its mounts and its root before it looks at any path, so
//! that no link leads out of it, and needs no program of the image.

mod enter;
mod long_names;
mod pack;
mod unpack;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use pack::pack;
pub use unpack::{Unpacked, unpack};

/// The verb of the helper.
pub const VERB: &str = "carry-files";

/// What comes before the tar stream has any use for more at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// Which way files are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Out of the replica: the stream is what the helper writes.
    Out,
    /// Into it.
    In,
}

/// What is carried, in place of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carry {
    pub direction: Direction,
    /// As the workload would name it; below its working directory where it does not begin with `/`.
    pub path: String,
}

/// Why something was not carried.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("`{path}`: {source}")]
    Path { path: String, source: io::Error },
    #[error("`{0}` is in the stream, and would lie outside of the folder")]
    Outside(String),
    #[error("`{0}` is no file, no folder and no link: it cannot be carried")]
    Kind(String),
    #[error("what is copied is a folder, and `{0}` is a file")]
    FolderOverFile(String),
    #[error("`{0}` is no folder, and its name ends with `/`")]
    NoFolder(String),
    #[error("there is nothing in the stream")]
    Empty,
    #[error("the stream has more than {0} entries")]
    TooMany(usize),
    #[error("`{0}` lies deeper than {1} folders")]
    TooDeep(String, usize),
    #[error("the stream is no tar archive, or is cut off: {0}")]
    Stream(io::Error),
    #[error("the root of the replica cannot be entered: {0}")]
    Enter(io::Error),
}

impl CarryError {
    fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Path {
            path: path.clone(),
            source,
        }
    }
}

/// The helper: `out|in PATH`, for a container with `PID START_TICKS UID GID[,GID…] CWD` behind it, whose root is entered.
/// The stream is stdin or stdout; what is wrong goes to stderr.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let words: Option<Vec<String>> = args.map(|word| word.into_string().ok()).collect();
    let Some(words) = words else { return 2 };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (way, path, place) = match words.as_slice() {
        [way, path] => (*way, *path, None),
        [way, path, place @ ..] => (*way, *path, Some(place)),
        _ => return 2,
    };
    let carried = match place {
        Some(place) => enter::enter(place),
        None => Ok(()),
    }
    .and_then(|()| carry(way, path));
    match carried {
        Ok(()) => 0,
        Err(error) => {
            // Nobody reads it any more, or somebody does.
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

fn carry(way: &str, path: &str) -> Result<(), CarryError> {
    let folder = std::env::current_dir().map_err(CarryError::Enter)?;
    // Joined as text: a `/` or `/.` at the end says something.
    let path = match path.starts_with('/') {
        true => PathBuf::from(path),
        false => PathBuf::from(format!(
            "{}/{path}",
            folder.display().to_string().trim_end_matches('/')
        )),
    };
    if way == "out" {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        let mut left_out = |what: &str| {
            let _ = writeln!(
                io::stderr(),
                "`{what}` is no file, no folder and no link: it is left out"
            );
        };
        pack(&path, &mut out, &mut left_out)?;
        return out.flush().map_err(CarryError::Stream);
    }
    let mut stream = io::stdin().lock();
    unpack(&path, &mut stream)?;
    // What stands behind the archive's end is read, so that nobody who sends it is stopped in the middle.
    io::copy(&mut stream, &mut io::sink()).map_err(CarryError::Stream)?;
    Ok(())
}

impl Carry {
    /// The words of the helper.
    pub(crate) fn words(&self) -> Vec<String> {
        let way = match self.direction {
            Direction::Out => "out",
            Direction::In => "in",
        };
        vec![
            "/proc/self/exe".into(),
            VERB.into(),
            way.into(),
            self.path.clone(),
        ]
    }
}

#[cfg(test)]
mod tests;
