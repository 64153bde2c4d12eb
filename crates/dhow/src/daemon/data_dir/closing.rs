//! Closes what lies below the data directory to everybody but its owner, and refuses what somebody else could change.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// What anybody but the owner could do to a file.
const OF_OTHERS: u32 = 0o077;

/// Folders whose contents have owners and modes of their own: those of images, containers, volumes and configs, and the
/// balancer's user. They themselves, or what is above them, are closed like the rest.
const OWN_RULES: [&str; 7] = [
    "files",
    "volumes",
    "container",
    "images/layers",
    "images/partial",
    "images/sessions",
    "proxy/table",
];

/// Closes all of it but `socket`, and gives the paths of what was open, from `dir` on.
pub(super) fn close(dir: &Path, socket: Option<&Path>, owner: u32) -> anyhow::Result<Vec<PathBuf>> {
    let closing = Closing {
        dir,
        root: dir
            .canonicalize()
            .with_context(|| format!("{} cannot be looked at", dir.display()))?,
        socket,
        owner,
    };
    let mut closed = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = dir.join(&folder);
        let failed = || format!("what lies in {} cannot be closed to others", path.display());
        for entry in fs::read_dir(&path).with_context(failed)? {
            let name = folder.join(entry.with_context(failed)?.file_name());
            let Some(found) = closing.look(&name)? else {
                continue;
            };
            if found.is_open && closing.shut(&name, found.mode)? {
                closed.push(name.clone());
            }
            if found.is_folder && !OWN_RULES.iter().any(|own| name == Path::new(own)) {
                folders.push(name);
            }
        }
    }
    closed.sort();
    Ok(closed)
}

struct Found {
    is_folder: bool,
    is_open: bool,
    mode: u32,
}

struct Closing<'a> {
    dir: &'a Path,
    /// The same without links in it.
    root: PathBuf,
    socket: Option<&'a Path>,
    owner: u32,
}

impl Closing<'_> {
    /// None where it has gone meanwhile, or is a link that leads nowhere else.
    fn look(&self, name: &Path) -> anyhow::Result<Option<Found>> {
        let path = self.dir.join(name);
        let shown = path.display();
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{shown} cannot be looked at")),
        };
        let is_table = OWN_RULES.last().is_some_and(|table| name == Path::new(table));
        let owner = self.owner;
        anyhow::ensure!(
            found.uid() == owner || is_table,
            "{shown} belongs to user {}, and this daemon runs as user {owner}: whoever owns it could change what the \
             daemon keeps; give it to this user with `chown -hR {owner} {shown}`, or move it away",
            found.uid()
        );
        if found.file_type().is_symlink() {
            let target = path.canonicalize().ok();
            anyhow::ensure!(
                target.is_some_and(|target| target.starts_with(&self.root)),
                "the link {shown} leads out of the data directory, to where others may have a hand in: put what it leads \
                 to in its place, or mount it there"
            );
            return Ok(None);
        }
        Ok(Some(Found {
            is_folder: found.is_dir(),
            is_open: found.mode() & OF_OTHERS != 0 && self.socket != Some(path.as_path()) && !is_table,
            mode: found.mode() & 0o7777,
        }))
    }

    /// Whether it was there to be closed.
    fn shut(&self, name: &Path, mode: u32) -> anyhow::Result<bool> {
        let path = self.dir.join(name);
        match fs::set_permissions(&path, Permissions::from_mode(mode & !OF_OTHERS)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("{} cannot be closed to others", path.display()))
            }
        }
    }
}
