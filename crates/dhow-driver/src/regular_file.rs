//! Opens files that a stranger named or made, if they are regular ones. Opening anything else may do something by
//! itself: a pipe blocks, a tape rewinds, a watchdog resets the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_at};

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let found = open_at(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    read(&found)
}

/// Opens for reading what a descriptor names that was opened without touching it (`O_PATH`).
pub(crate) fn read(found: &OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(found)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {}, not a regular file", name_of(kind)),
        ));
    }
    // The very same file, whatever has become of its name.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(open_at(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_regular_files_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(io::read_to_string(open(&file).unwrap()).unwrap(), "text");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for other in [&pipe, &link, &dir.path().to_owned()] {
            let error = open(other).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{other:?}: {error}");
        }
        let missing = open(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
