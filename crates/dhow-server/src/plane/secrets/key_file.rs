//! The key on disk: 32 random bytes, for its owner alone. Blocks.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

pub(super) const KEY_BYTES: usize = 32;
const NAME: &str = "secrets.key";

/// Why the key of the secrets could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot {action} the key of the secrets at {path}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "the key of the secrets at {path} has {found} bytes and not {KEY_BYTES}; put the right file back, without \
         it no secret can be read", path = path.display()
    )]
    Size { path: PathBuf, found: usize },
    #[error("others than its owner may read {path}; run `chmod 600` on it", path = path.display())]
    Open { path: PathBuf },
    #[error("this host gives no random numbers")]
    NoRandom,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |cause| KeyFileError::Io { action, path, cause }
}

/// Reads the key in a directory, or makes one.
pub(super) fn open(dir: &Path) -> Result<[u8; KEY_BYTES], KeyFileError> {
    let path = dir.join(NAME);
    match File::open(&path) {
        Ok(file) => read(&path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(dir, &path),
        Err(error) => Err(failed("open", &path)(error)),
    }
}

fn read(path: &Path, mut file: File) -> Result<[u8; KEY_BYTES], KeyFileError> {
    let mode = file
        .metadata()
        .map_err(failed("look at", path))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::with_capacity(KEY_BYTES);
    // One byte more than wanted tells a file that is too long.
    Read::take(&mut file, KEY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed("read", path))?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| KeyFileError::Size {
        path: path.to_owned(),
        found,
    })
}

/// There is never half a key, and never another one in the place of one that was made meanwhile.
fn make(dir: &Path, path: &Path) -> Result<[u8; KEY_BYTES], KeyFileError> {
    let mut key = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| KeyFileError::NoRandom)?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(failed("make a directory for", dir))?;
    dhow_disk::create(path, &key).map_err(failed("write", path))?;
    Ok(key)
}
