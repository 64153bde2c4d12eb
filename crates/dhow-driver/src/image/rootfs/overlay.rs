//! The mount itself, by system calls that depend on nothing that threads share.
//!
//! The newer calls take layer by layer and tell what is wrong. Kernels before 6.7 do not know them for overlayfs;
//! there all layers go into one page of options, named by short links to open directories.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, move_mount,
};

use super::super::store::{Failing, StoreError};
use super::error::RootfsError;

const KIND: &str = "overlay";
const SOURCE: &str = "dhow";
/// The longest value that `fsconfig` takes.
const MAX_VALUE_BYTES: usize = 255;
/// Options of the older call fill at most one page, its end included.
const MAX_OPTIONS_BYTES: usize = 4_095;

/// What is stacked.
pub(super) struct Overlay {
    /// Top first.
    pub lower: Vec<PathBuf>,
    pub writable: Option<Writable>,
}

/// Where changes go; both on one file system.
pub(super) struct Writable {
    pub upper: PathBuf,
    pub work: PathBuf,
}

/// How an attempt by the newer calls ended.
enum Attempt {
    Mounted,
    /// The kernel does not know them, or not for overlayfs.
    Unknown,
}

impl Overlay {
    pub fn mount(&self, target: &Path) -> Result<(), RootfsError> {
        match self.mount_by_layer(target)? {
            Attempt::Mounted => Ok(()),
            Attempt::Unknown => self.mount_by_options(target),
        }
    }

    fn mount_by_layer(&self, target: &Path) -> Result<Attempt, RootfsError> {
        let mut handles = Handles::default();
        let Ok(fs) = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC) else {
            return Ok(Attempt::Unknown);
        };
        for layer in &self.lower {
            if fsconfig_set_string(&fs, "lowerdir+", handles.value(layer)?).is_err() {
                return Ok(Attempt::Unknown);
            }
        }
        let failed = |error: rustix::io::Errno| mount_failed(target, messages(&fs), error.into());
        fsconfig_set_string(&fs, "source", SOURCE).map_err(failed)?;
        let attributes = match &self.writable {
            Some(Writable { upper, work }) => {
                fsconfig_set_string(&fs, "upperdir", handles.value(upper)?).map_err(failed)?;
                fsconfig_set_string(&fs, "workdir", handles.value(work)?).map_err(failed)?;
                // Without it a stack that was mounted with other layers before could refuse to come back.
                fsconfig_set_string(&fs, "index", "off").map_err(failed)?;
                MountAttrFlags::empty()
            }
            None => {
                fsconfig_set_flag(&fs, "ro").map_err(failed)?;
                MountAttrFlags::MOUNT_ATTR_RDONLY
            }
        };
        fsconfig_create(&fs).map_err(failed)?;
        let mounted = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed)?;
        move_mount(&mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed)?;
        Ok(Attempt::Mounted)
    }

    pub(super) fn mount_by_options(&self, target: &Path) -> Result<(), RootfsError> {
        let mut handles = Handles::default();
        let mut options = b"lowerdir=".to_vec();
        for (number, layer) in self.lower.iter().enumerate() {
            if number > 0 {
                options.push(b':');
            }
            options.extend_from_slice(handles.link(layer)?.as_os_str().as_bytes());
        }
        let mut flags = MountFlags::empty();
        match &self.writable {
            Some(Writable { upper, work }) => {
                for (name, dir) in [("upperdir", upper), ("workdir", work)] {
                    let link = handles.link(dir)?;
                    options.extend_from_slice(format!(",{name}={}", link.display()).as_bytes());
                }
                options.extend_from_slice(b",index=off");
            }
            None => flags |= MountFlags::RDONLY,
        }
        if options.len() > MAX_OPTIONS_BYTES {
            return Err(RootfsError::TooManyLayers {
                layers: self.lower.len(),
            });
        }
        let failed = |error: io::Error| mount_failed(target, String::new(), error);
        let options = CString::new(options).map_err(|error| failed(error.into()))?;
        mount(SOURCE, target, KIND, flags, Some(options.as_c_str())).map_err(|error| failed(error.into()))
    }
}

/// Directories kept open while the kernel looks them up by their links.
#[derive(Default)]
struct Handles(Vec<OwnedFd>);

impl Handles {
    /// The path itself where it can be an option's value as it is, else a short link to it.
    fn value(&mut self, dir: &Path) -> Result<PathBuf, StoreError> {
        let bytes = dir.as_os_str().as_bytes();
        let is_plain = !bytes.iter().any(|byte| matches!(byte, b'\\' | b':' | b','));
        if bytes.len() <= MAX_VALUE_BYTES && is_plain {
            return Ok(dir.to_owned());
        }
        self.link(dir)
    }

    fn link(&mut self, dir: &Path) -> Result<PathBuf, StoreError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open(dir, flags, Mode::empty())
            .map_err(io::Error::from)
            .failing("open", dir)?;
        let link = Path::new("/proc/self/fd").join(handle.as_raw_fd().to_string());
        self.0.push(handle);
        Ok(link)
    }
}

fn mount_failed(target: &Path, kernel: String, source: io::Error) -> RootfsError {
    RootfsError::Mount {
        path: target.to_owned(),
        kernel,
        source,
    }
}

/// What the kernel wrote about the attempt; each read gives one message.
fn messages(fs: &OwnedFd) -> String {
    const MAX_MESSAGES: usize = 8;
    const MAX_MESSAGE_BYTES: usize = 1_024;
    let Ok(copy) = fs.try_clone() else {
        return String::new();
    };
    let mut file = File::from(copy);
    let mut said = Vec::new();
    for _ in 0..MAX_MESSAGES {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let Ok(count @ 1..) = file.read(&mut buffer) else {
            break;
        };
        let text = OsStr::from_bytes(&buffer[..count]).to_string_lossy().into_owned();
        // The first letter is the kind of message.
        let text = text
            .trim_end()
            .split_once(' ')
            .map_or(text.clone(), |(_, text)| text.to_owned());
        said.push(text);
    }
    said.join("; ")
}
