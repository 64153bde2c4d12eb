//! What stands in a replica's folder, so that any later daemon knows what runs there:
//!
//! ```text
//! <run dir>/<deployment>.<service>.<role>.<index>.g<generation>/
//!     lock         held by the daemon during a start, then by the shim for its life
//!     spec.json    StartRecord: what was asked for, without secrets
//!     state.json   StateRecord: who runs it
//!     exit.json    ExitRecord: how it ended
//!     log/         see `logs`
//! ```
//!
//! Files are replaced whole and durably: a job that has completed has done so after a power cut too. One that
//! cannot be read counts as absent, and is put aside by the next start. The shim writes by a handle on the folder:
//! whatever stands at its path by then, it is not the shim's.

use std::fs;
use std::io;
use std::path::Path;

use dhow_disk::Outlives;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::ProcessId;

pub const LOCK_FILE: &str = "lock";
pub const SPEC_FILE: &str = "spec.json";
pub const STATE_FILE: &str = "state.json";
pub const EXIT_FILE: &str = "exit.json";
pub const LOG_DIR: &str = "log";

/// The form of these files. A higher one is refused rather than misread.
pub const RECORD_VERSION: u32 = 1;

/// Who runs a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    pub version: u32,
    /// The start of the host under which the numbers below mean anything.
    pub boot_id: String,
    pub shim: ProcessId,
    pub workload: ProcessId,
    pub started_unix_ms: u64,
}

/// How a replica ended: a code or a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub version: u32,
    pub status: ExitStatus,
    /// The kernel killed something in it for want of memory.
    pub oom: bool,
    pub ended_unix_ms: u64,
}

/// How a process ended, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

impl ExitStatus {
    /// Whether this is an end for want of memory, where the kernel has killed so often in the group. One that ended
    /// well, or by a signal of somebody else's, may have lost a child to that long before.
    pub fn is_out_of_memory(self, kills: u64) -> bool {
        const SIGKILL: i32 = 9;
        let is_such = match self {
            Self::Code(code) => code != 0,
            Self::Signal(signal) => signal == SIGKILL,
        };
        kills > 0 && is_such
    }
}

/// Every record names its version first.
pub trait Record: Serialize + DeserializeOwned {
    fn version(&self) -> u32;
}

impl Record for StateRecord {
    fn version(&self) -> u32 {
        self.version
    }
}

impl Record for ExitRecord {
    fn version(&self) -> u32 {
        self.version
    }
}

/// Replaces a file in one step, durably: a reader sees the old or the new one, never half.
pub fn write_record(path: &Path, record: &impl Record) -> io::Result<()> {
    dhow_disk::replace(path, &serde_json::to_vec(record)?, Outlives::PowerCut)
}

/// Removes a file; one that nobody can read is put aside.
pub(super) fn clear_record(path: &Path) -> io::Result<()> {
    let kept = dhow_disk::read_or_set_aside(path, |bytes| serde_json::from_slice::<AnyVersion>(bytes))?;
    let kept = kept.or_tell(|path, why| {
        tracing::warn!(path = %path.display(), why, "a record of a replica was damaged and is put aside");
    });
    match kept {
        Some(_) => fs::remove_file(path),
        None => Ok(()),
    }
}

/// Reads a file back; `None` where there is none, or only what a power cut left of one.
pub fn read_record<T: Record>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(record) = serde_json::from_slice::<T>(&bytes) else {
        return match serde_json::from_slice::<AnyVersion>(&bytes) {
            Ok(any) if any.version > RECORD_VERSION => Err(newer(path, any.version)),
            Ok(_) | Err(_) => Ok(None),
        };
    };
    if record.version() > RECORD_VERSION {
        return Err(newer(path, record.version()));
    }
    Ok(Some(record))
}

#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

fn newer(path: &Path, version: u32) -> io::Error {
    io::Error::other(format!(
        "{} has form {version}, this dhow knows {RECORD_VERSION}: a newer dhow wrote it, run that one",
        path.display()
    ))
}

/// Wall clock in microseconds since 1970, for people.
pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

pub fn unix_ms() -> u64 {
    unix_us() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_was_killed_for_memory_does_not_explain_every_end() {
        assert!(ExitStatus::Signal(9).is_out_of_memory(1));
        assert!(ExitStatus::Code(137).is_out_of_memory(2));
        assert!(!ExitStatus::Signal(9).is_out_of_memory(0));
        assert!(
            !ExitStatus::Code(0).is_out_of_memory(1),
            "it has gone on and ended well"
        );
        assert!(
            !ExitStatus::Signal(15).is_out_of_memory(1),
            "somebody asked it to end"
        );
    }

    #[test]
    fn the_forms_on_disk_stay_as_they_are() {
        let state = StateRecord {
            version: 1,
            boot_id: "b".into(),
            shim: ProcessId {
                pid: 7,
                start_ticks: 70,
            },
            workload: ProcessId {
                pid: 8,
                start_ticks: 80,
            },
            started_unix_ms: 9,
        };
        let golden = r#"{"version":1,"boot_id":"b","shim":{"pid":7,"start_ticks":70},"workload":{"pid":8,"start_ticks":80},"started_unix_ms":9}"#;
        assert_eq!(serde_json::to_string(&state).unwrap(), golden);
        assert_eq!(serde_json::from_str::<StateRecord>(golden).unwrap(), state);
        for (status, golden) in [
            (
                ExitStatus::Code(3),
                r#"{"version":1,"status":{"code":3},"oom":false,"ended_unix_ms":9}"#,
            ),
            (
                ExitStatus::Signal(9),
                r#"{"version":1,"status":{"signal":9},"oom":true,"ended_unix_ms":9}"#,
            ),
        ] {
            let oom = matches!(status, ExitStatus::Signal(_));
            let exit = ExitRecord {
                version: 1,
                status,
                oom,
                ended_unix_ms: 9,
            };
            assert_eq!(serde_json::to_string(&exit).unwrap(), golden);
            assert_eq!(serde_json::from_str::<ExitRecord>(golden).unwrap(), exit);
        }
    }

    #[test]
    fn what_a_power_cut_left_counts_as_absent_and_a_newer_form_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EXIT_FILE);
        assert!(read_record::<ExitRecord>(&path).unwrap().is_none());
        for broken in ["", "{\"version\":1,\"sta", "\0\0\0"] {
            fs::write(&path, broken).unwrap();
            assert!(read_record::<ExitRecord>(&path).unwrap().is_none(), "{broken:?}");
        }
        for newer in [
            r#"{"version":2,"how":"other"}"#,
            r#"{"version":2,"status":{"code":3},"oom":false,"ended_unix_ms":9}"#,
        ] {
            fs::write(&path, newer).unwrap();
            let error = read_record::<ExitRecord>(&path).unwrap_err().to_string();
            assert!(error.contains("newer dhow"), "{error}");
        }
    }
}
