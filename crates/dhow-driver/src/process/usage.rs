//! What a replica uses, with or without a group to count it.

use dhow_core::ids::ReplicaName;
use nix::unistd::{SysconfVar, sysconf};

use crate::cgroup::{Group, Usage};
use crate::driver::{Cause, ReplicaStatus};
use crate::shim::ReplicaDirs;
use crate::shim::identity::{Stat, descendants};

/// Blocks.
pub(super) fn measure(dirs: &ReplicaDirs, name: &ReplicaName, group: Option<&Group>) -> Result<Usage, Cause> {
    match dirs.status(name)? {
        ReplicaStatus::Running(_) => {}
        ReplicaStatus::Starting | ReplicaStatus::Ended(_) => return Err(Cause::NotRunning),
    }
    if let Some(usage) = group.and_then(Group::usage) {
        return Ok(usage);
    }
    // The shim inherits every orphan: what is below it is the replica.
    let shim = dirs.state(name)?.ok_or(Cause::NotRunning)?.shim;
    Ok(sum(&descendants(shim.pid)))
}

fn sum(pids: &[u32]) -> Usage {
    let variable = |name, usual: u64| {
        let value = sysconf(name).ok().flatten();
        value
            .and_then(|value| u64::try_from(value).ok())
            .filter(|value| *value > 0)
            .unwrap_or(usual)
    };
    let tick_us = 1_000_000 / variable(SysconfVar::CLK_TCK, 100);
    let page_bytes = variable(SysconfVar::PAGE_SIZE, 4096);
    let mut usage = Usage::default();
    for stat in pids.iter().filter_map(|pid| Stat::read(*pid).ok()) {
        usage.cpu_us += stat.cpu_ticks * tick_us;
        usage.memory_bytes += stat.resident_pages * page_bytes;
        usage.processes += 1;
    }
    usage
}
