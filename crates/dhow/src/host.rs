//! What this machine is and has.

use dhow_core::amount::Amount;

/// As the contract names operating systems: never `macos`.
pub const OS: &str = if cfg!(target_os = "macos") {
    "darwin"
} else {
    std::env::consts::OS
};
pub const ARCH: &str = std::env::consts::ARCH;

/// Its cores and its memory.
pub fn capacity() -> Amount {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    Amount {
        cpu_milli: cores.saturating_mul(1000),
        memory_bytes: memory_bytes().unwrap_or(0),
    }
}

/// The first line of the kernel's account: `MemTotal:  24551234 kB`.
fn memory_bytes() -> Option<u64> {
    let account = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = account.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}
