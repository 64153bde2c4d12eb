//! The volumes of a node: makes, lists and removes them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::record::{Content, Record, VolumeFolder, now_unix_secs, remove_folder};
use super::{OWN, VolumeError, project};

/// Of a new volume: whatever mask the daemon has, a replica that is not root's may look into it.
const VOLUME_MODE: u32 = 0o755;
/// Of what is above it.
const CLOSED_MODE: u32 = 0o700;
/// Files of one volume that are counted for its size: at a microsecond each a second. With more of them the size is what
/// was counted until then.
const COUNTED_MAX: u64 = 1_000_000;

/// The folder of a node's volumes.
#[derive(Clone, Debug)]
pub struct Volumes {
    dir: PathBuf,
}

/// A volume as it is found on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOnDisk {
    pub deployment: String,
    pub name: String,
    /// What its files take of the disk.
    pub used_bytes: u64,
    /// It has more files than are counted.
    pub is_larger: bool,
    pub limit_bytes: Option<u64>,
    pub created_unix_secs: Option<i64>,
    /// When a replica last began with it, or ended.
    pub used_unix_secs: Option<i64>,
}

impl Volumes {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where a volume is, or would be.
    pub fn path(&self, deployment: &str, name: &str) -> Result<PathBuf, VolumeError> {
        for part in [deployment, name] {
            if part.is_empty() || part.starts_with(OWN) || part.contains(['/', '\0']) {
                return Err(VolumeError::BadName(part.to_owned()));
            }
        }
        Ok(self.dir.join(deployment).join(name))
    }

    /// Makes it, where it is not there yet, and holds it to its size.
    pub fn make(&self, deployment: &str, name: &str, size: Option<u64>) -> Result<PathBuf, VolumeError> {
        let folder = self.path(deployment, name)?;
        let place = VolumeFolder::of(&folder)?;
        let failed = || VolumeError::file("making", &folder);
        let mut closed = fs::DirBuilder::new();
        closed.recursive(true).mode(CLOSED_MODE);
        closed.create(place.parent()).map_err(failed())?;
        let _lock = place.lock()?;
        let mut record = place.record()?;
        let is_new = match fs::create_dir(&folder) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed()(error)),
        };
        let mode = fs::metadata(&folder).map_err(failed())?.permissions().mode() & 0o7777;
        // Also what a start has made that was interrupted just then: whoever uses a volume puts something into it.
        let is_bare = mode == CLOSED_MODE && fs::read_dir(&folder).map_err(failed())?.next().is_none();
        if is_new || is_bare {
            fs::set_permissions(&folder, fs::Permissions::from_mode(VOLUME_MODE)).map_err(failed())?;
        }
        let now = now_unix_secs();
        if is_new {
            record = Record {
                created_unix_secs: Some(now),
                ..Record::default()
            };
        }
        if size.is_some() || record.limit_bytes.is_some() {
            self.hold(&folder, &mut record, size)?;
        }
        record.used_unix_secs = Some(now);
        place.keep(&record)?;
        Ok(folder)
    }

    /// The size may be another one than before, or none any more.
    fn hold(&self, folder: &Path, record: &mut Record, size: Option<u64>) -> Result<(), VolumeError> {
        let project = match (record.project, size) {
            (Some(project), _) => project,
            (None, None) => return Ok(()),
            (None, Some(_)) => project::choose(folder, &self.projects()?),
        };
        match size {
            Some(bytes) => project::limit(folder, project, bytes)?,
            None => project::unlimit(folder, project),
        }
        record.project = Some(project);
        record.limit_bytes = size;
        Ok(())
    }

    fn projects(&self) -> Result<Vec<u32>, VolumeError> {
        let mut projects = Vec::new();
        for (_, _, place) in self.places()? {
            projects.extend(place.record()?.project);
        }
        Ok(projects)
    }

    /// Notes that replicas which used them have ended.
    pub fn used_until_now(&self, deployment: &str, names: &[&str]) -> Result<(), VolumeError> {
        for name in names {
            let place = VolumeFolder::of(&self.path(deployment, name)?)?;
            if !place.folder.is_dir() {
                continue;
            }
            let _lock = place.lock()?;
            let mut record = place.record()?;
            record.used_unix_secs = Some(now_unix_secs());
            place.keep(&record)?;
        }
        Ok(())
    }

    /// All that are there, with their sizes. This looks at each of their files.
    pub fn list(&self) -> Result<Vec<VolumeOnDisk>, VolumeError> {
        let mut found = Vec::new();
        for (deployment, name, place) in self.places()? {
            let record = place.record()?;
            let counted = record
                .project
                .and_then(|project| project::used_bytes(&place.folder, project).ok());
            let (used_bytes, is_larger) = match counted {
                Some(bytes) => (bytes, false),
                None => size_of(&place.folder),
            };
            found.push(VolumeOnDisk {
                deployment,
                name,
                used_bytes,
                is_larger,
                limit_bytes: record.limit_bytes,
                created_unix_secs: record.created_unix_secs,
                used_unix_secs: record.used_unix_secs,
            });
        }
        found.sort_by(|a, b| (&a.deployment, &a.name).cmp(&(&b.deployment, &b.name)));
        Ok(found)
    }

    fn places(&self) -> Result<Vec<(String, String, VolumeFolder)>, VolumeError> {
        let mut found = Vec::new();
        for deployment in names_in(&self.dir)? {
            for name in names_in(&self.dir.join(&deployment))? {
                let place = VolumeFolder::of(&self.dir.join(&deployment).join(&name))?;
                found.push((deployment.clone(), name, place));
            }
        }
        Ok(found)
    }

    /// Removes a volume with all in it. Killed in the middle, nothing of it is seen any more, and the rest goes with the
    /// next removal or start.
    pub fn remove(
        &self,
        deployment: &str,
        name: &str,
        users: impl FnOnce() -> Vec<String>,
    ) -> Result<(), VolumeError> {
        let folder = self.path(deployment, name)?;
        let place = VolumeFolder::of(&folder)?;
        if !place.parent().is_dir() {
            return Err(VolumeError::NotHere(format!("{deployment}/{name}")));
        }
        let _lock = place.lock()?;
        unused(users())?;
        let record = place.record()?;
        remove_folder(&place.going())?;
        if let Err(error) = fs::rename(&folder, place.going()) {
            return match error.kind() {
                io::ErrorKind::NotFound => {
                    place.forget()?;
                    Err(VolumeError::NotHere(format!("{deployment}/{name}")))
                }
                _ => Err(VolumeError::file("removing", &folder)(error)),
            };
        }
        if let Some(project) = record.project {
            project::unlimit(&place.going(), project);
        }
        for folder in [place.going(), place.filling(), place.restoring()] {
            remove_folder(&folder)?;
        }
        place.forget()
    }

    /// Whether it is there.
    pub fn has(&self, deployment: &str, name: &str) -> Result<bool, VolumeError> {
        Ok(self.path(deployment, name)?.is_dir())
    }

    /// The volume's place, with its content its own from now on: nothing of an image comes into it any more.
    pub(super) fn own_content(place: &VolumeFolder, record: &mut Record) -> Result<(), VolumeError> {
        record.content = Content::Own;
        record.created_unix_secs.get_or_insert_with(now_unix_secs);
        place.keep(record)
    }
}

pub(super) fn unused(users: Vec<String>) -> Result<(), VolumeError> {
    match users.is_empty() {
        true => Ok(()),
        false => Err(VolumeError::InUse { users }),
    }
}

/// Folders in a folder, without the node's own; none where there is no such folder.
fn names_in(folder: &Path) -> Result<Vec<String>, VolumeError> {
    let failed = || VolumeError::file("looking into", folder);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed())?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !name.starts_with(OWN) && entry.file_type().map_err(failed())?.is_dir() {
            names.push(name);
        }
    }
    Ok(names)
}

/// What the files in a folder take of the disk, and whether there are more than were counted. What goes meanwhile, or
/// cannot be looked into, counts nothing.
fn size_of(folder: &Path) -> (u64, bool) {
    const UNIT_BYTES: u64 = 512;
    let (mut bytes, mut counted) = (0_u64, 0);
    let mut linked = std::collections::BTreeSet::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            counted += 1;
            if counted > COUNTED_MAX {
                return (bytes, true);
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                waiting.push(entry.path());
            } else if found.nlink() > 1 && !linked.insert((found.dev(), found.ino())) {
                continue;
            }
            bytes = bytes.saturating_add(found.blocks().saturating_mul(UNIT_BYTES));
        }
    }
    (bytes, false)
}
