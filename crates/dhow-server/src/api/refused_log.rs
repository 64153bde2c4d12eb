//! Callers that were refused for what they showed: a local file, one line for each address and minute, and never large.
//! Nothing that they showed stands in it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// Its name in the data directory; the one before it has this with `.1`.
const FILE: &str = "refused.log";

/// A file of this size is put aside for a new one, so that both together have twice as much: some 10,000 lines.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Addresses of one minute that are told of.
const ADDRESSES_MAX: usize = 256;

const MINUTE_SECS: i64 = 60;

/// See the module; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct RefusedLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    told: Mutex<Told>,
    /// One line is written at a time.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Told {
    minute: i64,
    /// How often each address was refused in this minute.
    addresses: BTreeMap<IpAddr, u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    unix_secs: i64,
    address: IpAddr,
    reason: &'a str,
}

impl RefusedLog {
    /// In this directory; without one nothing is kept.
    pub fn new(data_dir: Option<&Path>) -> Self {
        Self(Arc::new(Inner {
            path: data_dir.map(|dir| dir.join(FILE)),
            told: Mutex::default(),
            writing: Mutex::default(),
        }))
    }

    /// Somebody was refused. It waits for nothing: the line is written beside.
    pub fn tell(&self, address: IpAddr, reason: &str, now_unix_secs: i64) {
        if !self.is_news(address, now_unix_secs) {
            return;
        }
        let line = Line {
            unix_secs: now_unix_secs,
            address,
            reason,
        };
        // Texts and numbers can always be written.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || inner.append(&line));
    }

    fn is_news(&self, address: IpAddr, now_unix_secs: i64) -> bool {
        if self.0.path.is_none() {
            return false;
        }
        let minute = now_unix_secs.div_euclid(MINUTE_SECS);
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.minute != minute {
            *told = Told {
                minute,
                addresses: BTreeMap::new(),
            };
        }
        let is_known = told.addresses.contains_key(&address);
        if !is_known && told.addresses.len() >= ADDRESSES_MAX {
            return false;
        }
        *told.addresses.entry(address).or_default() += 1;
        !is_known
    }
}

impl Inner {
    fn append(&self, line: &[u8]) {
        let Some(path) = &self.path else { return };
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = append(path, line) {
            tracing::warn!(path = %path.display(), %error, "who was refused cannot be written down");
        }
    }
}

fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let size = std::fs::metadata(path).map_or(0, |found| found.len());
    if size.saturating_add(line.len() as u64) > FILE_BYTES_MAX {
        let mut before = path.as_os_str().to_owned();
        before.push(".1");
        std::fs::rename(path, before)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).mode(0o600).open(path)?;
    // It need not outlive a power cut.
    file.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_of_once_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let log = RefusedLog::new(Some(dir.path()));
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(log.is_news(address(1), 120));
        assert!(!log.is_news(address(1), 179));
        assert!(log.is_news(address(2), 130));
        assert!(log.is_news(address(1), 180), "another minute");
        for last in 0..ADDRESSES_MAX as u32 * 2 {
            log.is_news(IpAddr::from(last.to_be_bytes()), 180);
        }
        let told = log.0.told.lock().unwrap();
        assert_eq!(told.addresses.len(), ADDRESSES_MAX);
        assert!(!RefusedLog::new(None).is_news(address(1), 1));
    }

    #[test]
    fn the_file_never_grows_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let line = vec![b'x'; 64 * 1024];
        for _ in 0..100 {
            append(&path, &line).unwrap();
        }
        let all = std::fs::read_dir(dir.path()).unwrap();
        let sizes: Vec<u64> = all.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().all(|size| *size <= FILE_BYTES_MAX), "{sizes:?}");
    }
}
