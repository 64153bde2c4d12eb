//! Puts an archive in a volume's place: unpacked beside it, then exchanged in one step. What ends in the middle leaves the
//! volume as it was.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::atomic::AtomicBool;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, syncfs};

use super::record::{VolumeFolder, remove_folder};
use super::store::unused;
use super::{VolumeError, Volumes, project};
use crate::image::{Privilege, unpack_folder};

const VOLUME_MODE: u32 = 0o755;

impl Volumes {
    /// Gives the volume the content of a tar stream; makes it where it is not there. Who uses it is asked once no other
    /// can begin with it any more: a replica that starts meanwhile waits.
    pub fn restore(
        &self,
        deployment: &str,
        name: &str,
        input: impl Read,
        cancelled: &AtomicBool,
        users: impl FnOnce() -> Vec<String>,
    ) -> Result<(), VolumeError> {
        let folder = self.path(deployment, name)?;
        let place = VolumeFolder::of(&folder)?;
        let failed = || VolumeError::file("putting back", &folder);
        let mut closed = fs::DirBuilder::new();
        closed.recursive(true).mode(0o700);
        closed.create(place.parent()).map_err(failed())?;
        let _lock = place.lock()?;
        unused(users())?;
        let mut record = place.record()?;
        let restoring = place.restoring();
        remove_folder(&restoring)?;
        fs::create_dir(&restoring).map_err(failed())?;
        let unpacked = unpack(&place, record.project, input, cancelled);
        if let Err(error) = unpacked {
            // What cannot be removed now goes with the next attempt.
            let _ = fs::remove_dir_all(&restoring);
            return Err(error);
        }
        let flags = match folder.is_dir() {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        renameat_with(CWD, &restoring, CWD, &folder, flags).map_err(|error| failed()(error.into()))?;
        Self::own_content(&place, &mut record)?;
        sync(place.parent()).map_err(failed())?;
        // What the volume had until now.
        remove_folder(&restoring)?;
        remove_folder(&place.filling())
    }
}

fn unpack(
    place: &VolumeFolder,
    project: Option<u32>,
    input: impl Read,
    cancelled: &AtomicBool,
) -> Result<(), VolumeError> {
    let restoring = place.restoring();
    let failed = || VolumeError::file("putting back", &place.folder);
    fs::set_permissions(&restoring, fs::Permissions::from_mode(VOLUME_MODE)).map_err(failed())?;
    if let Some(project) = project {
        project::mark(&restoring, project).map_err(failed())?;
    }
    let privilege = match rustix::process::geteuid().is_root() {
        true => Privilege::Root,
        false => Privilege::BestEffort,
    };
    if !unpack_folder(input, &restoring, privilege, cancelled)? {
        return Err(VolumeError::CutOff);
    }
    sync(&restoring).map_err(failed())
}

fn sync(folder: &std::path::Path) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(syncfs(openat(CWD, folder, flags, Mode::empty())?)?)
}
