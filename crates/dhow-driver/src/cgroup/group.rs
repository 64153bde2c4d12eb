//! One replica's group: a folder in each hierarchy in use. Plain paths, so that it travels to the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::enable;
use super::error::CgroupError;
use super::host::Controller;
use crate::shim::identity;

/// How often killing and removing look again: 500 × 10 ms is 5 s, far beyond what a kill takes unless a
/// process hangs in the kernel.
const ROUNDS_MAX: u32 = 500;
const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// The control group of one replica, or of the zygote. The daemon makes it, and the shim joins and limits it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub(super) unified: Option<PathBuf>,
    pub(super) unified_controllers: Vec<Controller>,
    pub(super) v1: BTreeMap<Controller, PathBuf>,
    /// Groups that a container runtime makes beside these, in hierarchies that we do not use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) other: Vec<PathBuf>,
}

impl Group {
    pub(super) fn make(&self) -> Result<(), CgroupError> {
        for path in self.folders() {
            match enable::create(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => {
                    return Err(CgroupError::Create {
                        path: path.to_owned(),
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    /// The files that a process with one thread writes `0` to in order to join.
    ///
    /// In version 1 that is `tasks`: moving a whole process through `cgroup.procs` stops every fork and exit on
    /// the host for a moment, moving the calling thread alone does not.
    pub fn join_files(&self) -> Vec<PathBuf> {
        let v1 = self.v1_folders().into_iter().map(|folder| folder.join("tasks"));
        let unified = self.unified.iter().map(|folder| folder.join("cgroup.procs"));
        v1.chain(unified).collect()
    }

    /// The file by which version 2 is joined, where it limits nothing and a container runtime may pass it over.
    pub fn join_unified_only(&self) -> Vec<PathBuf> {
        let unified = self.unified.iter().filter(|_| !self.v1.is_empty());
        unified.map(|folder| folder.join("cgroup.procs")).collect()
    }

    fn v1_folders(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = self.v1.values().map(PathBuf::as_path).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Where a controller's files of this group are.
    pub(super) fn controller(&self, controller: Controller) -> Option<&Path> {
        let unified = self
            .unified_controllers
            .contains(&controller)
            .then_some(self.unified.as_ref())
            .flatten();
        self.v1.get(&controller).or(unified).map(PathBuf::as_path)
    }

    /// The group's path below the mount of each hierarchy is the caller's; these are whole paths.
    pub fn folders(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = self
            .v1
            .values()
            .chain(&self.unified)
            .map(PathBuf::as_path)
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    pub fn exists(&self) -> bool {
        self.folders().into_iter().any(Path::exists)
    }

    /// All processes in it.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = BTreeSet::new();
        for folder in self.folders() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        }
        pids.into_iter().collect()
    }

    /// How often the kernel killed in it for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let Some(folder) = self.controller(Controller::Memory) else {
            return 0;
        };
        let file = if self.v1.contains_key(&Controller::Memory) {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        super::usage::keyed(&text, "oom_kill").unwrap_or(0)
    }

    /// Sends SIGKILL to everything in it and does not wait. Where the kernel has no call for that, the group
    /// is frozen first, so that nothing in it can fork away.
    pub fn kill(&self) {
        let killed = self
            .unified
            .as_ref()
            .is_some_and(|folder| write_existing(&folder.join("cgroup.kill"), "1"));
        if killed {
            return;
        }
        let freezer = self
            .v1
            .get(&Controller::Freezer)
            .map(|folder| folder.join("freezer.state"));
        let freeze = self.unified.as_ref().map(|folder| folder.join("cgroup.freeze"));
        if let Some(file) = &freezer {
            write_existing(file, "FROZEN");
        } else if let Some(file) = &freeze {
            write_existing(file, "1");
        }
        for pid in self.pids() {
            // A number is only a number until it is held: by then it may be nobody's here.
            identity::kill_if(pid, || self.pids().contains(&pid));
        }
        if let Some(file) = &freezer {
            write_existing(file, "THAWED");
        } else if let Some(file) = &freeze {
            write_existing(file, "0");
        }
    }

    /// Kills until nothing is left in it. Blocks.
    pub fn kill_and_wait(&self) -> Result<(), CgroupError> {
        for _ in 0..ROUNDS_MAX {
            if self.pids().is_empty() {
                return Ok(());
            }
            self.kill();
            thread::sleep(ROUND_PAUSE);
        }
        let left = self.pids().len();
        let path = self
            .folders()
            .first()
            .map(|path| path.to_path_buf())
            .unwrap_or_default();
        if left == 0 {
            Ok(())
        } else {
            Err(CgroupError::Unkillable { path, left })
        }
    }

    /// Removes it, with groups that the workload made below it. It must be empty of processes; blocks for
    /// as long as the kernel takes to let go of those that just ended.
    pub fn remove(&self) -> Result<(), CgroupError> {
        let other = self.other.iter().map(PathBuf::as_path);
        self.folders()
            .into_iter()
            .chain(other)
            .try_for_each(remove_folder)
    }
}

pub(super) fn remove_folder(path: &Path) -> Result<(), CgroupError> {
    for _ in 0..ROUNDS_MAX {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                for below in fs::read_dir(path).into_iter().flatten().flatten() {
                    if below.file_type().is_ok_and(|kind| kind.is_dir()) {
                        remove_folder(&below.path())?;
                    }
                }
                thread::sleep(ROUND_PAUSE);
            }
            Err(source) => {
                return Err(CgroupError::Remove {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
    Err(CgroupError::Remove {
        path: path.to_owned(),
        source: io::ErrorKind::ResourceBusy.into(),
    })
}

/// Writes to a file that the kernel provides; `false` where it does not or refuses.
fn write_existing(path: &Path, text: &str) -> bool {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.is_ok_and(|mut file| io::Write::write_all(&mut file, text.as_bytes()).is_ok())
}
