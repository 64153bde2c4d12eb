//! A directory by its handle: files in it are replaced and read there, whatever stands at its path by now.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// What a file has to outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlives {
    /// The file and its name are on the disk when the call returns.
    PowerCut,
    /// The writer may be killed; a power cut may cost the file, and whoever asks for that says why it does not matter.
    Process,
}

/// A step of a replacement, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    SyncFile,
    Name,
    SyncDir,
}

/// Called before each step; a test lets it fail as the disk would.
type Before<'a> = &'a dyn Fn(Step) -> io::Result<()>;

fn go_on(_step: Step) -> io::Result<()> {
    Ok(())
}

/// Whether the name that a file is to get may be taken already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    MayBeTaken,
    MustBeFree,
}

/// An open directory: files are read, replaced and removed in it, even where its path has come to mean another one.
#[derive(Debug)]
pub struct Dir {
    handle: OwnedFd,
    /// Where it was when it was opened: for messages alone.
    path: PathBuf,
}

impl Dir {
    /// Opens a directory that exists.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            handle: fs::open(path, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// A handle that somebody else opened at this path.
    pub fn from_handle(handle: OwnedFd, path: &Path) -> Self {
        Self {
            handle,
            path: path.to_owned(),
        }
    }

    /// The directory of a file, and the file's name in it.
    pub(crate) fn of(path: &Path) -> io::Result<(Self, OsString)> {
        let name = path.file_name().ok_or_else(|| {
            let text = format!("{} names no file", path.display());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            Some(_) | None => Path::new("."),
        };
        Ok((Self::open(dir)?, name.to_owned()))
    }

    /// Opens a directory in this one, never through a link.
    fn open_dir(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(Self {
            handle: fs::openat(&self.handle, name, flags, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// Makes a directory in this one, for its owner alone, unless it is there, and opens it.
    pub fn make_dir(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        match fs::mkdirat(&self.handle, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory itself was removed: nothing can be made in it any more.
    pub fn is_removed(&self) -> bool {
        fs::fstat(&self.handle).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Replaces a file, readable for its owner alone. A reader sees the old or the new one, never half.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], outlives: Outlives) -> io::Result<()> {
        self.put(name.as_ref(), bytes, outlives, Destination::MayBeTaken, &go_on)
    }

    /// Makes a file that must not exist yet, whole and durable, readable for its owner alone.
    pub(crate) fn create(&self, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        self.put(name, bytes, Outlives::PowerCut, Destination::MustBeFree, &go_on)
    }

    fn put(
        &self,
        name: &OsStr,
        bytes: &[u8],
        outlives: Outlives,
        place: Destination,
        before: Before<'_>,
    ) -> io::Result<()> {
        let mut beside = name.to_owned();
        beside.push(".new");
        // What an earlier try left has nothing that anybody waits for.
        self.remove(&beside)?;
        let put = self
            .write(&beside, bytes, outlives, before)
            .and_then(|()| before(Step::Name))
            .and_then(|()| self.name(&beside, name, place));
        if let Err(error) = put {
            // The first error is the one to tell.
            let _ = self.remove(&beside);
            return Err(error);
        }
        match outlives {
            Outlives::PowerCut => before(Step::SyncDir).and_then(|()| self.sync()),
            Outlives::Process => Ok(()),
        }
    }

    /// Writes a file that is not to be there, and leaves nothing of it where that fails.
    pub(crate) fn write_new(&self, name: &OsStr, bytes: &[u8], outlives: Outlives) -> io::Result<()> {
        self.remove(name)?;
        let written = self.write(name, bytes, outlives, &go_on);
        if written.is_err() {
            // The first error is the one to tell.
            let _ = self.remove(name);
        }
        written
    }

    fn write(&self, name: &OsStr, bytes: &[u8], outlives: Outlives, before: Before<'_>) -> io::Result<()> {
        before(Step::Write)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = self.open_file(name, flags)?;
        file.write_all(bytes)?;
        match outlives {
            Outlives::PowerCut => before(Step::SyncFile).and_then(|()| file.sync_all()),
            Outlives::Process => Ok(()),
        }
    }

    fn name(&self, from: &OsStr, to: &OsStr, place: Destination) -> io::Result<()> {
        match place {
            Destination::MayBeTaken => Ok(fs::renameat(&self.handle, from, &self.handle, to)?),
            Destination::MustBeFree => self.name_if_free(from, to),
        }
    }

    fn name_if_free(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match fs::renameat_with(&self.handle, from, &self.handle, to, RenameFlags::NOREPLACE) {
            // A file system that cannot do it in one step can link, which never replaces anything either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::linkat(&self.handle, from, &self.handle, to, AtFlags::empty())?;
                self.remove(from)
            }
            done => Ok(done?),
        }
    }

    /// Gives a file in this directory another name, durably.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        fs::renameat(&self.handle, from.as_ref(), &self.handle, to.as_ref())?;
        self.sync()
    }

    /// Gives a file a name that nobody has, durably.
    pub(crate) fn rename_if_free(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.name_if_free(from, to)?;
        self.sync()
    }

    /// Opens a file in this directory, never through a link; one that is made is readable for its owner alone.
    pub fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(&self.handle, name.as_ref(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }

    /// All of a file; `None` where there is none.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
        let mut file = match self.open_file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Removes a file. One that is gone already is as good.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match fs::unlinkat(&self.handle, name.as_ref(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.handle)?)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests;
