//! What a process has used, as the kernel counts it.

use std::time::Duration;

use anyhow::Context;

/// Linux counts processor time in hundredths of a second, whatever the machine.
const TICKS_PER_SECOND: u64 = 100;

/// The processor time and the memory of one process, read from `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcUsage {
    /// In user space and in the kernel on its account.
    pub cpu: Duration,
    pub resident_bytes: u64,
}

impl ProcUsage {
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))
        };
        let cpu = cpu_of(&read("stat")?).context("/proc/PID/stat has another form")?;
        let resident_bytes = resident_of(&read("status")?).context("/proc/PID/status has another form")?;
        Ok(Self { cpu, resident_bytes })
    }
}

fn cpu_of(stat: &str) -> Option<Duration> {
    // The name of the program stands in brackets and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_words() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        assert!(ProcUsage::of(std::process::id()).unwrap().resident_bytes > 0);
    }
}
