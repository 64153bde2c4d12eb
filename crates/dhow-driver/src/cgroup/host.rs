//! What this host offers, found once at start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::enable;
use super::error::CgroupError;
use super::group::Group;
use super::limits::Limits;
use super::mounts::Mounts;

/// A part of the kernel that counts or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    Memory,
    Cpu,
    /// Version 1 counts CPU time apart from limiting it; in version 2 `Cpu` does both.
    CpuAccount,
    Pids,
    /// Version 1 alone: stops all of a group at once, so that killing it cannot be outrun by forks.
    Freezer,
}

impl Controller {
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Cpu,
        Self::CpuAccount,
        Self::Pids,
        Self::Freezer,
    ];

    pub fn v1_name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAccount => "cpuacct",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
        }
    }

    pub fn from_v1_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|controller| controller.v1_name() == name)
    }

    /// Its name in `cgroup.controllers`, where version 2 has such a controller to switch on.
    pub fn v2_name(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Cpu => Some("cpu"),
            Self::Pids => Some("pids"),
            Self::CpuAccount | Self::Freezer => None,
        }
    }
}

/// Which versions are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    None,
    V1,
    V2,
    Hybrid,
}

/// The parent folder of our groups in each hierarchy that we may use.
#[derive(Clone, Debug)]
pub struct CgroupHost {
    layout: Layout,
    unified: Option<PathBuf>,
    unified_controllers: Vec<Controller>,
    v1: BTreeMap<Controller, PathBuf>,
    /// Where a container runtime makes groups beside ours; made by it, removed by us.
    other: Vec<PathBuf>,
    /// The mount of version 2, and of any hierarchy: for paths below the mounts.
    mounts: Vec<PathBuf>,
    unified_mount: Option<PathBuf>,
    missing: Vec<String>,
}

impl CgroupHost {
    /// Looks at the host and makes the parent group `parent` in every hierarchy where that is allowed. Never
    /// fails: what it may not use is said by [`Self::missing`].
    pub fn detect(parent: &str) -> Self {
        match Mounts::read() {
            Ok(mounts) => Self::from_mounts(&mounts, parent),
            Err(error) => Self {
                missing: vec![format!("the mounts of this host cannot be read ({error})")],
                ..Self::none()
            },
        }
    }

    /// A parent's name that belongs to one data directory alone, and is the same after every restart.
    pub fn parent_name(data_dir: &Path) -> String {
        // FNV-1a: fixed for ever, unlike the standard library's hash.
        let bytes = data_dir.as_os_str().as_encoded_bytes().iter();
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("dhow-{hash:016x}")
    }

    /// A host on which no limits are to be used.
    pub fn none() -> Self {
        Self {
            layout: Layout::None,
            unified: None,
            unified_controllers: Vec::new(),
            v1: BTreeMap::new(),
            other: Vec::new(),
            mounts: Vec::new(),
            unified_mount: None,
            missing: Vec::new(),
        }
    }

    pub fn from_mounts(mounts: &Mounts, parent: &str) -> Self {
        let layout = match (mounts.unified.is_some(), mounts.v1.is_empty()) {
            (false, true) => Layout::None,
            (false, false) => Layout::V1,
            (true, true) => Layout::V2,
            (true, false) => Layout::Hybrid,
        };
        let named = mounts.other.iter().map(|hierarchy| hierarchy.mount.join(parent));
        let all = mounts.v1.values().chain(&mounts.unified);
        let mut host = Self {
            layout,
            other: named.collect(),
            mounts: all.map(|hierarchy| hierarchy.mount.clone()).collect(),
            unified_mount: mounts.unified.as_ref().map(|hierarchy| hierarchy.mount.clone()),
            ..Self::none()
        };
        if layout == Layout::None {
            host.missing.push("no control groups are mounted".into());
        }
        if let Some(hierarchy) = &mounts.unified {
            match enable::make_parent(hierarchy, parent) {
                Ok(path) => host.use_unified(path, &mounts.v1.keys().copied().collect::<Vec<_>>()),
                Err(reason) => host.missing.push(format!("version 2: {reason}")),
            }
        }
        // Where version 2 can kill a group in one step, freezing it first is not needed.
        let can_kill = host
            .unified
            .as_ref()
            .is_some_and(|path| path.join("cgroup.kill").exists());
        for (controller, hierarchy) in &mounts.v1 {
            if *controller == Controller::Freezer && can_kill {
                host.other.push(hierarchy.mount.join(parent));
                continue;
            }
            match enable::make_parent(hierarchy, parent) {
                Ok(path) => {
                    host.v1.insert(*controller, path);
                }
                Err(reason) => host.missing.push(format!("{}: {reason}", controller.v1_name())),
            }
        }
        for controller in [Controller::Memory, Controller::Cpu, Controller::Pids] {
            let is_v1 = mounts.v1.contains_key(&controller);
            if !is_v1 && layout != Layout::None && !host.limits(controller) && host.unified.is_some() {
                let name = controller.v1_name();
                host.missing.push(format!(
                    "{name}: the controller is not delegated to this process's group"
                ));
            }
        }
        host
    }

    fn use_unified(&mut self, path: PathBuf, on_v1: &[Controller]) {
        let wanted = Controller::ALL
            .into_iter()
            .filter(|controller| !on_v1.contains(controller));
        self.unified_controllers = enable::switch_on(&path, wanted);
        self.unified = Some(path);
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether groups can be made at all, if only to find and kill all of a replica's processes.
    pub fn is_usable(&self) -> bool {
        self.unified.is_some() || !self.v1.is_empty()
    }

    /// Whether this controller's limits are enforced.
    pub fn limits(&self, controller: Controller) -> bool {
        self.v1.contains_key(&controller) || self.unified_controllers.contains(&controller)
    }

    /// What cannot be used here and why, in words for the operator.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The group of this name, whether it exists or not.
    pub fn group(&self, leaf: &str) -> Group {
        Group {
            unified: self.unified.as_ref().map(|parent| parent.join(leaf)),
            unified_controllers: self.unified_controllers.clone(),
            v1: self
                .v1
                .iter()
                .map(|(controller, parent)| (*controller, parent.join(leaf)))
                .collect(),
            other: Vec::new(),
        }
    }

    /// The same for a workload that a container runtime puts into its group: that makes a group in every
    /// hierarchy of the host.
    pub fn runtime_group(&self, leaf: &str) -> Group {
        Group {
            other: self.other.iter().map(|parent| parent.join(leaf)).collect(),
            ..self.group(leaf)
        }
    }

    /// Where version 2 is mounted.
    pub fn unified_mount(&self) -> Option<&Path> {
        self.unified_mount.as_deref()
    }

    /// A group's path below the mounts, as container runtimes want it; `None` where it has no one path, or
    /// there are no groups.
    pub fn path_below_mounts(&self, group: &Group) -> Option<PathBuf> {
        let mut paths = group.folders().into_iter().map(|folder| {
            let below = self
                .mounts
                .iter()
                .filter_map(|mount| folder.strip_prefix(mount).ok());
            below.min_by_key(|path| path.components().count())
        });
        let first = paths.next()??;
        paths
            .all(|path| path == Some(first))
            .then(|| Path::new("/").join(first))
    }

    /// Makes the group and writes its limits. On failure nothing of it is left.
    pub fn create(&self, leaf: &str, limits: &Limits) -> Result<Group, CgroupError> {
        Self::make(self.group(leaf), limits)
    }

    /// The same for a workload that a container runtime puts into it.
    pub fn create_for_runtime(&self, leaf: &str, limits: &Limits) -> Result<Group, CgroupError> {
        Self::make(self.runtime_group(leaf), limits)
    }

    fn make(group: Group, limits: &Limits) -> Result<Group, CgroupError> {
        let made = group.make().and_then(|()| limits.apply(&group));
        match made {
            Ok(()) => Ok(group),
            Err(error) => {
                // The first failure is the one to tell; a removal that fails too has the same cause.
                let _ = group.remove();
                Err(error)
            }
        }
    }

    /// The names of the groups that exist below the parent.
    pub fn leaves(&self) -> Vec<String> {
        let mut names: Vec<String> = self.parents().into_iter().flat_map(subfolders).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Removes the parent groups. They must be empty: this is for the end of all use, not of a daemon.
    pub fn remove_parents(&self) -> Result<(), CgroupError> {
        self.parents()
            .into_iter()
            .try_for_each(super::group::remove_folder)
    }

    fn parents(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = self
            .v1
            .values()
            .chain(&self.unified)
            .chain(&self.other)
            .map(PathBuf::as_path)
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

fn subfolders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
