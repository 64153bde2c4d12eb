//! The files of an OCI layout, wherever they lie.

use std::io::{self, Read};
use std::path::PathBuf;

use super::archive_files::ArchiveFiles;
use crate::image::digest::Digest;
use crate::image::unpack::LayerInput;
use crate::regular_file;

/// A directory, or an archive with the same files inside.
pub(super) enum LayoutFiles {
    Dir(PathBuf),
    Archive(ArchiveFiles),
}

impl LayoutFiles {
    /// Opens a file by its path inside the layout, with its size.
    pub fn open(&self, name: &str) -> io::Result<(LayerInput, u64)> {
        match self {
            Self::Dir(dir) => {
                let file = regular_file::open(&dir.join(name))?;
                let size_bytes = file.metadata()?.len();
                Ok((Box::new(file), size_bytes))
            }
            Self::Archive(files) => files.open(name),
        }
    }

    /// Reads a small file whole.
    pub fn read(&self, name: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
        let (reader, size_bytes) = self.open(name)?;
        if size_bytes > max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{name} is too large"),
            ));
        }
        let mut bytes = Vec::new();
        reader.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Where messages say that a file lies.
    pub fn place(&self, name: &str) -> PathBuf {
        match self {
            Self::Dir(dir) => dir.join(name),
            Self::Archive(files) => files.path().join(name),
        }
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
