//! What an image has where a new volume is mounted is copied into it, once. Killed in the middle it begins again: the copy
//! is made beside the volume and moved in when it is whole, and the record says so before the first part is moved.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};

use super::VolumeError;
use super::copy::{copy_attributes, copy_tree};
use super::project;
use super::record::{Content, VolumeFolder, is_empty, remove_folder};

/// The image's folder that a volume is mounted over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered<'a> {
    pub path: &'a Path,
    /// Whether what is in it is copied; else the volume only gets its owner and mode.
    pub copies: bool,
}

/// Makes a volume ready for a container. Others that start with it meanwhile wait.
pub(crate) fn fill(volume: &Path, covered: Option<Covered<'_>>) -> Result<(), VolumeError> {
    let place = VolumeFolder::of(volume)?;
    let _lock = place.lock()?;
    let mut record = place.record()?;
    match record.content {
        Content::Own => return Ok(()),
        Content::Moving => {}
        Content::None => {
            remove_folder(&place.filling())?;
            if !is_empty(volume)? {
                record.content = Content::Own;
                return place.keep(&record);
            }
            let Some(covered) = covered else { return Ok(()) };
            if !covered.copies || is_empty(covered.path)? {
                // An empty volume belongs to whom the folder that it covers belongs to: a program that does not run
                // as root can then write to it.
                return take_owner(covered.path, volume);
            }
            copy_beside(&place, covered.path, record.project)?;
            record.content = Content::Moving;
            place.keep(&record)?;
        }
    }
    move_in(&place)?;
    record.content = Content::Own;
    place.keep(&record)
}

fn take_owner(covered: &Path, volume: &Path) -> Result<(), VolumeError> {
    let failed = || VolumeError::file("giving its owner to", volume);
    let found = fs::metadata(covered).map_err(failed())?;
    chown(volume, Some(found.uid()), Some(found.gid())).map_err(failed())?;
    fs::set_permissions(volume, fs::Permissions::from_mode(found.mode() & 0o7777)).map_err(failed())
}

fn copy_beside(place: &VolumeFolder, covered: &Path, project: Option<u32>) -> Result<(), VolumeError> {
    let filling = place.filling();
    let copied = fs::create_dir(&filling).and_then(|()| {
        // What is moved later has to belong to the volume already.
        project.map_or(Ok(()), |project| project::mark(&filling, project))?;
        copy_tree(covered, &filling)?;
        let handle = openat(
            CWD,
            &filling,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(syncfs(&handle)?)
    });
    copied.map_err(|error| {
        // A disk that is full is not left so.
        let _ = fs::remove_dir_all(&filling);
        VolumeError::file("copying what the image has into the volume", &place.folder)(error)
    })
}

fn move_in(place: &VolumeFolder) -> Result<(), VolumeError> {
    let filling = place.filling();
    let failed = || VolumeError::file("moving what the image has into the volume", &place.folder);
    let Ok(found) = fs::symlink_metadata(&filling) else {
        // All was moved, and only the record was missing.
        return Ok(());
    };
    for entry in fs::read_dir(&filling).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        fs::rename(entry.path(), place.folder.join(entry.file_name())).map_err(failed())?;
    }
    copy_attributes(&filling, &place.folder, &found).map_err(failed())?;
    fs::remove_dir(&filling).map_err(failed())
}
