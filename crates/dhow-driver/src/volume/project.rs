//! Holds a folder to a size by the project quotas of its file system: all that is in it counts under one number, and the
//! kernel refuses what goes beyond its limit. ext4 and XFS have them where they are mounted with `prjquota`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use dhow_core::spec::VolumeSupport;
use nix::libc;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::VolumeError;

/// What a folder hands on to what is made in it.
const INHERIT: u32 = 0x200;
const GET_ATTRIBUTES: libc::c_ulong = 0x801c_581f;
const SET_ATTRIBUTES: libc::c_ulong = 0x401c_5820;
/// `quotactl_fd`, which takes a folder in place of a device.
const QUOTACTL_FD: libc::c_long = 443;
const PROJECT_QUOTA: u32 = 2;
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
/// `Q_XGETQSTAT`, which ext4 answers too, and what it says where limits of projects hold.
const GET_STATE: u32 = 0x5805;
const PROJECTS_ENFORCED: u16 = 1 << 5;
/// In what the kernel counts limits.
const BLOCK_BYTES: u64 = 1024;
/// The limits of a quota, and no others, are said.
const LIMITS_VALID: u32 = 1;
/// Numbers of ours begin here: small ones are what people use.
const FIRST_PROJECT: u32 = 0x4000_0000;
const PROJECTS: u32 = 0x3fff_ffff;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Quota {
    blocks_hard: u64,
    blocks_soft: u64,
    space_bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    blocks_time: u64,
    files_time: u64,
    valid: u32,
}

/// `struct fs_quota_stat`: what follows the flags is not looked at.
#[repr(C)]
#[derive(Clone, Copy)]
struct QuotaState {
    version: i8,
    flags: u16,
    rest: [u64; 16],
}

impl Default for QuotaState {
    fn default() -> Self {
        Self {
            version: 1,
            flags: 0,
            rest: [0; 16],
        }
    }
}

/// What the file system of a data directory can do for volumes. Blocks, for microseconds.
pub fn support(data_dir: &Path) -> VolumeSupport {
    // The daemon may not have made it yet.
    let there = data_dir.ancestors().find(|path| path.exists());
    let sized = there.is_some_and(|path| is_enforced(path).unwrap_or(false));
    match sized {
        true => VolumeSupport::Sized,
        false => VolumeSupport::Ephemeral,
    }
}

/// Whether the file system holds projects to their limits: some only count.
fn is_enforced(folder: &Path) -> io::Result<bool> {
    let mut state = QuotaState::default();
    quotactl(folder, GET_STATE, 0, std::ptr::from_mut(&mut state).cast())?;
    Ok(state.flags & PROJECTS_ENFORCED != 0)
}

/// A number for the folder that none of `taken` has.
pub(super) fn choose(folder: &Path, taken: &[u32]) -> u32 {
    let text = folder.as_os_str().as_encoded_bytes();
    let hash = text.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let mut number = hash % PROJECTS;
    while taken.contains(&(FIRST_PROJECT + number)) {
        number = (number + 1) % PROJECTS;
    }
    FIRST_PROJECT + number
}

/// Counts all that is in the folder under the number, and holds it to so many bytes.
pub(super) fn limit(folder: &Path, project: u32, bytes: u64) -> Result<(), VolumeError> {
    let no_sizes = |source| VolumeError::NoSizes {
        path: folder.to_owned(),
        source,
    };
    if !is_enforced(folder).map_err(no_sizes)? {
        return Err(no_sizes(io::Error::other(
            "it counts, and holds nobody to a limit",
        )));
    }
    set_quota(folder, project, bytes).map_err(no_sizes)?;
    mark_all(folder, project).map_err(no_sizes)
}

/// The same for a folder that nothing is in yet, with a number of its own.
pub(crate) fn limit_new(folder: &Path, bytes: u64) -> Result<(), VolumeError> {
    limit(folder, choose(folder, &[]), bytes)
}

/// Holds it to nothing any more.
pub(super) fn unlimit(folder: &Path, project: u32) {
    // What has no limit any more is only counted.
    let _ = set_quota(folder, project, 0);
}

/// What the file system counts under the number.
pub(super) fn used_bytes(folder: &Path, project: u32) -> io::Result<u64> {
    Ok(quota_of(folder, project)?.space_bytes)
}

/// Has what is made in the folder count under the number.
pub(super) fn mark(folder: &Path, project: u32) -> io::Result<()> {
    let handle = open_dir(folder)?;
    set_project(&handle, project, true)
}

fn mark_all(folder: &Path, project: u32) -> io::Result<()> {
    let handle = open_dir(folder)?;
    if attributes(&handle)?.project == project {
        return Ok(());
    }
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                mark(&entry.path(), project)?;
                waiting.push(entry.path());
            } else if kind.is_file() {
                set_project(&super::copy::open_regular(&entry.path())?, project, false)?;
            }
        }
    }
    // Last: a folder that is marked is taken to be done.
    set_project(&handle, project, true)
}

fn open_dir(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, folder, flags, Mode::empty())?))
}

fn attributes(file: &File) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    // SAFETY: the kernel writes a `struct fsxattr`, which this is, and keeps nothing.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut found) };
    match result {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_project(file: &File, project: u32, is_folder: bool) -> io::Result<()> {
    let mut wanted = attributes(file)?;
    wanted.project = project;
    if is_folder {
        wanted.flags |= INHERIT;
    }
    // SAFETY: the kernel reads a `struct fsxattr`, which this is, and keeps nothing.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), SET_ATTRIBUTES as _, &raw const wanted) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_quota(folder: &Path, project: u32, bytes: u64) -> io::Result<()> {
    let mut quota = Quota {
        blocks_hard: bytes.div_ceil(BLOCK_BYTES),
        valid: LIMITS_VALID,
        ..Quota::default()
    };
    quotactl(folder, SET_QUOTA, project, std::ptr::from_mut(&mut quota).cast())
}

fn quota_of(folder: &Path, project: u32) -> io::Result<Quota> {
    let mut quota = Quota::default();
    quotactl(folder, GET_QUOTA, project, std::ptr::from_mut(&mut quota).cast())?;
    Ok(quota)
}

/// `told` is what the call reads or writes.
fn quotactl(folder: &Path, call: u32, project: u32, told: *mut libc::c_void) -> io::Result<()> {
    let handle = open_dir(folder)?;
    let command = (call << 8) | PROJECT_QUOTA;
    // SAFETY: each caller passes the structure of its call, no smaller than the kernel's, and the kernel keeps nothing.
    let result = unsafe { libc::syscall(QUOTACTL_FD, handle.as_raw_fd(), command, project, told) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
