//! What the whole machine uses, from `/proc`.

use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

/// The figures of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFigures {
    /// CPU time that was spent since the machine was started, on all cores.
    busy_us: u64,
    pub memory_used_bytes: u64,
    at: Instant,
}

impl HostFigures {
    /// Blocks for a moment. None where the machine has no such files.
    pub fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        let ticks = ticks
            .and_then(|ticks| u64::try_from(ticks).ok())
            .filter(|ticks| *ticks > 0);
        Some(Self {
            busy_us: busy_ticks(&stat)?.saturating_mul(1_000_000 / ticks.unwrap_or(100)),
            memory_used_bytes: memory_used_bytes(&memory)?,
            at: Instant::now(),
        })
    }

    /// Thousandths of a core that were busy since then.
    pub fn cpu_milli_since(&self, before: &Self) -> u64 {
        let elapsed_us = self.at.duration_since(before.at).as_micros().max(1);
        let busy_us = u128::from(self.busy_us.saturating_sub(before.busy_us));
        u64::try_from(busy_us * 1_000 / elapsed_us).unwrap_or(u64::MAX)
    }
}

/// User, nice, system, interrupts and what a hypervisor took; idle and waiting for a disk are not busy.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, rest @ ..] = numbers.as_slice() else {
        return None;
    };
    let steal = rest.first().copied().unwrap_or(0);
    Some(user + nice + system + irq + softirq + steal)
}

fn memory_used_bytes(meminfo: &str) -> Option<u64> {
    let kib = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let used_kib = kib("MemTotal:")?.saturating_sub(kib("MemAvailable:")?);
    Some(used_kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read() {
        let stat = "cpu  100 5 20 1000 30 2 3 7 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(137));
        assert_eq!(busy_ticks("cpu  1 2"), None);
        assert_eq!(busy_ticks(""), None);
        let memory = "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    400 kB\n";
        assert_eq!(memory_used_bytes(memory), Some(600 * 1024));
        assert_eq!(memory_used_bytes("MemTotal: 5 kB"), None);
    }

    #[test]
    fn this_machine_has_figures() {
        let (first, second) = (HostFigures::read().unwrap(), HostFigures::read().unwrap());
        assert!(first.memory_used_bytes > 0);
        assert!(second.busy_us >= first.busy_us);
    }
}
