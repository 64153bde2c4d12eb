//! Which folders a replica sees, and what is in them. Pure but for who a user is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dhow_core::spec::{ContentHash, FileKind, FileMode, OnChange, PlacedFile, Runtime, ServiceSpec};

use super::{FileKey, FilesError};

/// All folders of a replica.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub folders: Vec<FolderPlan>,
}

/// A folder whose files change together.
#[derive(Clone, Debug)]
pub(super) struct FolderPlan {
    /// Where it is on the host.
    pub dir: PathBuf,
    /// Where a container has it; none for a host program.
    pub target: Option<String>,
    /// It is mounted as a whole; otherwise each file by itself.
    pub is_whole: bool,
    pub has_secrets: bool,
    /// It lies on a file system in memory, which a power cut leaves nothing of.
    pub is_in_memory: bool,
    /// The group that may look into it, where a host program runs as another user than the daemon. The folder itself is the
    /// daemon's: whoever could rename what is in it could lead the daemon's writes elsewhere.
    pub group: Option<u32>,
    pub files: Vec<FilePlan>,
    /// Equal for folders that show the same.
    pub digest: String,
}

/// One file of a folder.
#[derive(Clone, Debug)]
pub(super) struct FilePlan {
    pub name: String,
    /// Where a container has it.
    pub target: String,
    pub key: FileKey,
    pub mode: FileMode,
    pub owner: Option<(u32, u32)>,
    /// What the program gets when the file changes under it.
    pub signal: Option<String>,
}

impl FolderPlan {
    /// Where this content of the folder is.
    pub fn content_dir(&self) -> PathBuf {
        self.dir.join(format!("..{}", self.digest))
    }
}

impl Layout {
    /// The contents of folders that are not there yet. Blocks.
    pub fn missing(&self) -> BTreeSet<FileKey> {
        let missing = self.folders.iter().filter(|plan| !plan.content_dir().is_dir());
        let keys = missing.flat_map(|plan| plan.files.iter().map(|file| file.key.clone()));
        keys.collect()
    }
}

/// Whose the files of a replica are, where that is not the daemon's user. Asks the host's user database: blocks.
pub(super) fn owner(spec: &ServiceSpec) -> Result<Option<(u32, u32)>, FilesError> {
    match spec.runtime() {
        Runtime::Container => Ok(None),
        Runtime::Process => dhow_driver::process::owner_of(spec.user.as_deref()).map_err(FilesError::User),
    }
}

pub(super) fn layout(
    spec: &ServiceSpec,
    owner: Option<(u32, u32)>,
    disk: &Path,
    memory: &dyn Fn() -> Result<PathBuf, FilesError>,
) -> Result<Layout, FilesError> {
    let mut groups: BTreeMap<(Option<String>, Option<FileKind>), Vec<PlacedFile<'_>>> = BTreeMap::new();
    for file in spec.placed_files() {
        // A host program has one folder for each kind.
        let kind = file.folder.is_none().then_some(file.kind);
        groups.entry((file.folder.clone(), kind)).or_default().push(file);
    }
    let mut folders = Vec::new();
    for (position, ((target, kind), placed)) in groups.into_iter().enumerate() {
        let has_secrets = placed.iter().any(|file| file.kind == FileKind::Secret);
        let files = placed
            .iter()
            .map(|file| file_plan(file, owner))
            .collect::<Result<Vec<_>, _>>()?;
        // Host programs of other users than the daemon's do not get below the data directory.
        let is_in_memory = has_secrets || target.is_none();
        let root = match is_in_memory {
            true => memory()?,
            false => disk.to_owned(),
        };
        let name = match kind {
            Some(FileKind::Config) => "configs".to_owned(),
            Some(FileKind::Secret) => "secrets".to_owned(),
            None => position.to_string(),
        };
        folders.push(FolderPlan {
            dir: root.join(name),
            is_whole: target
                .as_deref()
                .is_none_or(|target| spec.is_folder_mounted(target)),
            target,
            has_secrets,
            is_in_memory,
            group: owner.map(|(_, group)| group),
            digest: digest(&files),
            files,
        });
    }
    Ok(Layout { folders })
}

fn file_plan(file: &PlacedFile<'_>, owner: Option<(u32, u32)>) -> Result<FilePlan, FilesError> {
    let mount = file.mount;
    let key = match file.kind {
        FileKind::Config => {
            let none = || FilesError::NoContent(mount.source.clone());
            FileKey::Config(mount.content.ok_or_else(none)?)
        }
        FileKind::Secret => {
            let none = || FilesError::NoSecret(mount.source.clone());
            FileKey::Secret {
                name: mount.source.clone(),
                version: mount.version.ok_or_else(none)?,
            }
        }
    };
    let own = owner.unwrap_or_else(|| (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()));
    let said = mount.uid.is_some() || mount.gid.is_some();
    let ids = (mount.uid.unwrap_or(own.0), mount.gid.unwrap_or(own.1));
    Ok(FilePlan {
        name: file.name.clone(),
        target: file.target().unwrap_or_default(),
        key,
        mode: mount.mode.unwrap_or(match file.folder {
            Some(_) => FileMode::READ_ONLY,
            // Others may be of its user's group, which may open the folder.
            None => FileMode::OWN,
        }),
        owner: (said || owner.is_some()).then_some(ids),
        signal: match mount.on_change {
            OnChange::Signal => mount.signal.clone(),
            OnChange::Restart | OnChange::None => None,
        },
    })
}

fn digest(files: &[FilePlan]) -> String {
    let mut text = String::new();
    for file in files {
        text.push_str(&format!(
            "{:?} {:?} {} {:?}\n",
            file.name, file.key, file.mode, file.owner
        ));
    }
    format!("{:.16}", ContentHash::of(text.as_bytes()).to_string())
}
