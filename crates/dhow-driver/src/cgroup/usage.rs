//! What a group uses now.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::host::Controller;

/// Figures of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since the start.
    pub cpu_us: u64,
    /// Memory without what the kernel can drop at once (unused file cache).
    pub memory_bytes: u64,
    pub processes: u32,
}

impl Group {
    /// `None` where the host counts nothing for it.
    pub fn usage(&self) -> Option<Usage> {
        let memory_bytes = self.memory_bytes();
        let cpu_us = self.cpu_us();
        if memory_bytes.is_none() && cpu_us.is_none() {
            return None;
        }
        Some(Usage {
            cpu_us: cpu_us.unwrap_or(0),
            memory_bytes: memory_bytes.unwrap_or(0),
            processes: u32::try_from(self.pids().len()).unwrap_or(u32::MAX),
        })
    }

    fn memory_bytes(&self) -> Option<u64> {
        let folder = self.controller(Controller::Memory)?;
        let is_v1 = self.v1.contains_key(&Controller::Memory);
        let (total, cache) = if is_v1 {
            ("memory.usage_in_bytes", "total_inactive_file")
        } else {
            ("memory.current", "inactive_file")
        };
        let used = number(&folder.join(total))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        Some(used.saturating_sub(keyed(&stat, cache).unwrap_or(0)))
    }

    fn cpu_us(&self) -> Option<u64> {
        if let Some(folder) = self.v1.get(&Controller::CpuAccount) {
            return number(&folder.join("cpuacct.usage")).map(|ns| ns / 1000);
        }
        // Version 2 counts CPU time in every group, with or without the controller.
        let text = fs::read_to_string(self.unified.as_ref()?.join("cpu.stat")).ok()?;
        keyed(&text, "usage_usec")
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a key in a file of `key number` lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == key)?.1.trim().parse().ok()
}
