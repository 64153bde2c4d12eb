//! Limits as the kernel's files want them.

use std::path::PathBuf;

use dhow_core::spec::Resources;

use super::error::CgroupError;
use super::group::Group;
use super::host::Controller;

/// The kernel shares CPU out in periods of this length; 100 ms is its own default.
const CPU_PERIOD_US: u64 = 100_000;
/// The kernel refuses a smaller share of a period.
const CPU_QUOTA_MIN_US: u64 = 1_000;

/// What a group may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    pub cpu_milli: Option<u64>,
    pub pids: Option<u32>,
}

impl From<&Resources> for Limits {
    fn from(resources: &Resources) -> Self {
        Self {
            memory_bytes: resources.memory.map(|memory| memory.0),
            cpu_milli: resources.cpu.map(|cpu| cpu.0),
            pids: resources.pids,
        }
    }
}

/// A file to write, and whether the limit stands without it.
struct Setting {
    controller: Controller,
    v1: &'static [(&'static str, Need)],
    v2: &'static [(&'static str, Need)],
    value_v1: String,
    value_v2: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    /// Absent where the kernel counts no swap.
    IfThere,
}

impl Limits {
    /// Writes every limit whose controller the group has; the others are the host's to be missing.
    pub(super) fn apply(&self, group: &Group) -> Result<(), CgroupError> {
        for setting in self.settings() {
            let (folder, files, value) = match (group.v1.get(&setting.controller), &group.unified) {
                (Some(folder), _) => (folder, setting.v1, &setting.value_v1),
                (None, Some(folder)) if group.unified_controllers.contains(&setting.controller) => {
                    (folder, setting.v2, &setting.value_v2)
                }
                (None, Some(_) | None) => continue,
            };
            for (file, need) in files {
                // A limit of 0 on swap beside a limit on memory: what is written is what it may have.
                let value = if file.contains("swap") { "0" } else { value };
                write(folder.join(file), value, *need)?;
            }
        }
        Ok(())
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        if let Some(bytes) = self.memory_bytes {
            settings.push(Setting {
                controller: Controller::Memory,
                v1: &[
                    ("memory.limit_in_bytes", Need::Must),
                    ("memory.memsw.limit_in_bytes", Need::IfThere),
                ],
                v2: &[("memory.max", Need::Must), ("memory.swap.max", Need::IfThere)],
                value_v1: bytes.to_string(),
                value_v2: bytes.to_string(),
            });
        }
        if let Some(milli) = self.cpu_milli {
            let quota_us = milli.saturating_mul(CPU_PERIOD_US / 1000).max(CPU_QUOTA_MIN_US);
            settings.push(Setting {
                controller: Controller::Cpu,
                // Version 1 has 100 ms as its period from the start.
                v1: &[("cpu.cfs_quota_us", Need::Must)],
                v2: &[("cpu.max", Need::Must)],
                value_v1: quota_us.to_string(),
                value_v2: format!("{quota_us} {CPU_PERIOD_US}"),
            });
        }
        if let Some(pids) = self.pids {
            settings.push(Setting {
                controller: Controller::Pids,
                v1: &[("pids.max", Need::Must)],
                v2: &[("pids.max", Need::Must)],
                value_v1: pids.to_string(),
                value_v2: pids.to_string(),
            });
        }
        settings
    }
}

fn write(path: PathBuf, value: &str, need: Need) -> Result<(), CgroupError> {
    match std::fs::OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && need == Need::IfThere => return Ok(()),
        Err(source) => Err(source),
        Ok(mut file) => std::io::Write::write_all(&mut file, value.as_bytes()),
    }
    .map_err(|source| CgroupError::Limit {
        path,
        value: value.into(),
        source,
    })
}
