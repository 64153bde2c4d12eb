//! Looks into a root file system the way a process inside would see it: links never lead out of it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};

use crate::regular_file;

/// What of a file is read at most: the largest `passwd` of the largest companies is smaller.
const FILE_MAX_BYTES: u64 = 8 << 20;

/// An open root file system, in which the driver looks users up and reads files as the workload would.
pub(crate) struct RootView {
    root: OwnedFd,
}

impl RootView {
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: open(root, flags, Mode::empty())?,
        })
    }

    /// Finds what the path leads to, and opens nothing of it.
    fn look_up(&self, path: &str) -> io::Result<OwnedFd> {
        let inside = path.trim_start_matches('/');
        let inside = if inside.is_empty() { "." } else { inside };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(&self.root, inside, flags, Mode::empty(), resolve)?)
    }

    /// A folder, held open so that its path may be looked into.
    pub fn folder(&self, path: &str) -> io::Result<OwnedFd> {
        let found = self.look_up(path)?;
        let file = File::from(found);
        match file.metadata()?.is_dir() {
            true => Ok(file.into()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub fn metadata(&self, path: &str) -> io::Result<Metadata> {
        File::from(self.look_up(path)?).metadata()
    }

    /// The text of a regular file; empty where there is none.
    pub fn text(&self, path: &str) -> io::Result<String> {
        let found = match self.look_up(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        regular_file::read(&found)?
            .take(FILE_MAX_BYTES)
            .read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether a program can be run from here, as a shell would look for it.
    pub fn has_program(&self, name: &str, path: &str, cwd: &str) -> bool {
        let is_program = |file: &str| {
            use std::os::unix::fs::PermissionsExt;
            let found = self.metadata(file);
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        if name.starts_with('/') {
            return is_program(name);
        }
        if name.contains('/') {
            return is_program(&format!("{cwd}/{name}"));
        }
        path.split(':')
            .any(|folder| is_program(&format!("{folder}/{name}")))
    }
}

/// The root of a process, with all that is mounted in it.
pub(crate) fn of_process(pid: u32) -> io::Result<RootView> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
    Ok(RootView { root })
}
