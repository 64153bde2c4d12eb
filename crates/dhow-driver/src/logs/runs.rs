//! When each run of a replica began: its output stands behind that of the run before, in the same files.
//!
//! The file `runs` in the log folder has a line for each start, the newest last, in microseconds since 1970. The shim writes
//! it before the workload begins; a reader tells by it which lines are whose.

use std::io;

use dhow_disk::{Dir, Outlives};

/// The name of the file. It ends with no `.log`, so that no reader takes it for output.
pub(super) const FILE: &str = "runs";
/// Starts that are remembered: more than anybody looks back at.
const RUNS_MAX: usize = 64;

/// Notes that a run begins.
pub(super) fn begin(dir: &Dir, now_us: u64) -> io::Result<()> {
    let known = dir.read(FILE)?.unwrap_or_default();
    let mut runs = read(&known);
    runs.push(now_us);
    let skip = runs.len().saturating_sub(RUNS_MAX);
    let lines: String = runs.iter().skip(skip).map(|at_us| format!("{at_us}\n")).collect();
    dir.replace(FILE, lines.as_bytes(), Outlives::Process)
}

/// The starts that a file tells; what is no number is left out.
pub(super) fn read(bytes: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The time of one run: from its start until that of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSpan {
    pub since_us: u64,
    pub until_us: u64,
}

impl RunSpan {
    /// The run before the newest one; none where there was one alone.
    pub(super) fn previous_of(runs: &[u64]) -> Option<Self> {
        match runs {
            [.., since_us, until_us] => Some(Self {
                since_us: *since_us,
                until_us: *until_us,
            }),
            // What was written before starts were noted.
            [until_us] => Some(Self {
                since_us: 0,
                until_us: *until_us,
            }),
            [] => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_starts_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        assert_eq!(RunSpan::previous_of(&read(b"")), None);
        for at_us in 1..=100 {
            begin(&dir, at_us).unwrap();
        }
        let runs = read(&std::fs::read(folder.path().join(FILE)).unwrap());
        assert_eq!((runs.len(), runs[0]), (RUNS_MAX, 37));
        let previous = RunSpan::previous_of(&runs).unwrap();
        assert_eq!((previous.since_us, previous.until_us), (99, 100));
        assert_eq!(read(b"5\nx\n\n7"), [5, 7]);
    }
}
