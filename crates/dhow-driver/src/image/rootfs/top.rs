//! The replica's own layer, with the directories whose attributes the layers below do not show.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::super::store::{DirFix, Failing, StoreError, remove_tree};

/// Of a root that no layer speaks of.
const ROOT_MODE: u32 = 0o755;

/// Makes the directory if it is not there yet; it enters its place complete.
pub(super) fn prepare(dir: &Path, fixes: &[DirFix]) -> Result<PathBuf, StoreError> {
    if fs::symlink_metadata(dir).is_ok() {
        return Ok(dir.to_owned());
    }
    let making = dir.with_extension("new");
    remove_tree(&making)?;
    make(&making, ROOT_MODE)?;
    // Sorted by path, so that parents come first; modes are set once nothing more goes inside.
    for fix in fixes.iter().filter(|fix| !fix.path.is_empty()) {
        make(&making.join(&fix.path), ROOT_MODE)?;
    }
    for fix in fixes.iter().rev() {
        let path = making.join(&fix.path);
        let attributes = fix.attributes;
        chown(&path, Some(attributes.uid), Some(attributes.gid)).failing("set the owner of", &path)?;
        let mode = fs::Permissions::from_mode(attributes.mode);
        fs::set_permissions(&path, mode).failing("set the mode of", &path)?;
    }
    fs::rename(&making, dir).failing("place", dir)?;
    Ok(dir.to_owned())
}

fn make(dir: &Path, mode: u32) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .mode(mode)
        .create(dir)
        .failing("create", dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).failing("set the mode of", dir)
}
