//! Configs and secrets that replicas see as files: what each replica is to see, fetched from the control plane, written into
//! folders of its own and replaced there as a whole.
//!
//! Runners call it before a start and while a replica runs. Secrets are written only to a file system in memory. A folder
//! that is there already needs no control plane.

mod folder;
mod memory;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{ContentHash, ServiceSpec};
use dhow_driver::driver::{Cause, FileBind};
use dhow_driver::shim::replica_dirs::dir_name;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::limits::FILES_ASKED_MAX;
use crate::session::{Session, SessionError};

pub use memory::MemoryFolder;
use plan::{FolderPlan, Layout};

/// Variables that tell a host program where its files are.
const CONFIGS_VARIABLE: &str = "DHOW_CONFIGS_DIR";
const SECRETS_VARIABLE: &str = "DHOW_SECRETS_DIR";

/// What the control plane is asked for: one content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKey {
    Config(ContentHash),
    Secret { name: String, version: u64 },
}

/// Contents by what was asked for.
pub type FileContents = BTreeMap<FileKey, Vec<u8>>;

/// Why the files of a replica could not be made. The runner reports it as the reason why a start or a trial failed.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("its configs and secrets cannot be had")]
    Fetch(#[source] SessionError),
    #[error("there is no secret `{0}`: set it with `dhow secret set {0}`")]
    NoSecret(String),
    #[error("config `{0}` has no content: deploy its file again")]
    NoContent(String),
    #[error("the control plane did not give all that its files hold")]
    Missing,
    #[error("its files cannot be written to {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} cannot be given to user {uid} and group {gid}; only a daemon of root's can do that")]
    Owner {
        path: PathBuf,
        uid: u32,
        gid: u32,
        #[source]
        source: io::Error,
    },
    #[error("no file system in memory is there for its secrets, which must not reach a disk")]
    NoMemory(#[source] io::Error),
    #[error("whose files they are cannot be said")]
    User(#[source] Cause),
    #[error("a task of the daemon ended early")]
    Task(#[source] tokio::task::JoinError),
}

/// What a start is given of a replica's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// What a container has mounted.
    pub binds: Vec<FileBind>,
    /// What a host program is told.
    pub env: BTreeMap<String, String>,
    /// Signals that the running program has still to get, by name.
    pub signals: BTreeSet<String>,
}

/// Where the files of this node's replicas are.
#[derive(Clone, Debug)]
pub struct Files {
    /// On disk: the configs of containers.
    disk: PathBuf,
    memory: MemoryFolder,
    /// Held by whoever writes, until the last byte: a runner that turns to something else meanwhile does not end what it
    /// has begun, and the next one's files must not be written among these.
    writing: Arc<Mutex<()>>,
}

impl Files {
    /// The files of the daemon with this folder on its disk. The folder above it is there: however the path leads to it, the
    /// next daemon means the same one.
    pub fn new(disk: &Path) -> Self {
        let above = disk.parent().and_then(|above| above.canonicalize().ok());
        let disk = match (above, disk.file_name()) {
            (Some(above), Some(name)) => above.join(name),
            (None, _) | (_, None) => disk.to_owned(),
        };
        Self {
            memory: MemoryFolder::beside(&disk),
            disk,
            writing: Arc::default(),
        }
    }

    async fn begin_writing(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.writing).lock_owned().await
    }

    /// Has a replica's folders show what the spec says, and answers what they are. What runs sees all of a folder change at
    /// once. May be dropped and called again.
    pub async fn place(
        &self,
        name: &ReplicaName,
        spec: &ServiceSpec,
        session: &dyn Session,
    ) -> Result<Placed, FilesError> {
        if !spec.has_files() {
            return Ok(Placed::default());
        }
        let (files, named, asked) = (self.clone(), name.clone(), spec.clone());
        let layout = blocking(move || {
            let layout = files.layout(&named, &asked)?;
            let missing = layout.missing();
            Ok((layout, missing))
        });
        let (layout, missing) = layout.await?;
        let contents = fetch(session, missing).await?;
        let guard = self.begin_writing().await;
        blocking(move || {
            let _writing = guard;
            let mut placed = Placed::default();
            for plan in &layout.folders {
                folder::show(plan, &contents)?;
                note(plan, &mut placed)?;
            }
            Ok(placed)
        })
        .await
    }

    /// The program has begun anew, or has got its signals: there is nothing left to tell it.
    pub async fn told(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), FilesError> {
        if !spec.has_files() {
            return Ok(());
        }
        let (files, name, spec) = (self.clone(), name.clone(), spec.clone());
        let guard = self.begin_writing().await;
        blocking(move || {
            let _writing = guard;
            let layout = files.layout(&name, &spec)?;
            layout.folders.iter().try_for_each(folder::settle)
        })
        .await
    }

    /// Removes what a replica saw. What cannot be removed is told and left for the next start of the daemon.
    pub async fn remove(&self, name: &ReplicaName) {
        let (files, name) = (self.clone(), name.clone());
        let guard = self.begin_writing().await;
        let removed = tokio::task::spawn_blocking(move || {
            let _writing = guard;
            for root in files.roots() {
                remove_tree(&root.join(dir_name(&name)));
                // The folder of all goes with the last one.
                let _ = fs::remove_dir(&root);
            }
        });
        let _ = removed.await;
    }

    /// Removes what replicas saw that are not here any more. Blocks.
    pub fn sweep(&self, here: &[ReplicaName]) {
        let here: BTreeSet<String> = here.iter().map(dir_name).collect();
        for root in self.roots() {
            let entries = fs::read_dir(&root).into_iter().flatten().flatten();
            for entry in entries {
                let is_here = entry.file_name().to_str().is_some_and(|name| here.contains(name));
                if !is_here {
                    remove_tree(&entry.path());
                }
            }
        }
    }

    fn roots(&self) -> Vec<PathBuf> {
        let memory = self.memory.found().into_iter();
        std::iter::once(self.disk.clone()).chain(memory).collect()
    }

    fn layout(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<Layout, FilesError> {
        let own = dir_name(name);
        let owner = plan::owner(spec)?;
        let memory = || {
            self.memory
                .open()
                .map(|dir| dir.join(&own))
                .map_err(FilesError::NoMemory)
        };
        plan::layout(spec, owner, &self.disk.join(&own), &memory)
    }
}

async fn fetch(session: &dyn Session, mut missing: BTreeSet<FileKey>) -> Result<FileContents, FilesError> {
    let mut contents = FileContents::new();
    while !missing.is_empty() {
        let wanted: Vec<FileKey> = missing.iter().take(FILES_ASKED_MAX).cloned().collect();
        let found = session.files(&wanted).await.map_err(FilesError::Fetch)?;
        let before = missing.len();
        missing.retain(|key| !found.contains_key(key));
        if missing.len() == before {
            return Err(FilesError::Missing);
        }
        contents.extend(found);
    }
    Ok(contents)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, FilesError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(FilesError::Task)?
}

fn note(plan: &FolderPlan, placed: &mut Placed) -> Result<(), FilesError> {
    match &plan.target {
        Some(target) if plan.is_whole => placed.binds.push(FileBind {
            source: plan.dir.clone(),
            target: target.clone(),
        }),
        Some(_) => placed.binds.extend(plan.files.iter().map(|file| FileBind {
            source: plan.content_dir().join(&file.name),
            target: file.target.clone(),
        })),
        None => {
            let variable = match plan.has_secrets {
                true => SECRETS_VARIABLE,
                false => CONFIGS_VARIABLE,
            };
            placed
                .env
                .insert(variable.to_owned(), plan.dir.display().to_string());
        }
    }
    placed.signals.extend(folder::signals(plan)?);
    Ok(())
}

fn remove_tree(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "files of a replica could not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
