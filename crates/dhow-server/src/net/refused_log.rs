//! Callers that were refused for what they showed: a local file, one line for each address and minute, and never large.
//! Nothing that they showed stands in it.
//!
//! All ports of a server share one: the API, the servers' channel, the workers' port.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::Clock;
use crate::net::lobby::Account;

/// Its name in the data directory; the one before it has this with `.1`.
const FILE: &str = "refused.log";

/// A file of this size is put aside for a new one, so that both together have twice as much: some 10,000 lines.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Addresses of one minute that are told of.
const ADDRESSES_MAX: usize = 256;

const MINUTE_SECS: i64 = 60;

/// What is said once of a minute in which there were more.
const MORE: &str = "more addresses were refused in this minute than are told of";

/// The file of refused callers, which all ports of a server share; clones write to the same file.
#[derive(Clone)]
pub struct RefusedLog(Arc<RefusedLogState>);

impl fmt::Debug for RefusedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusedLog({:?})", self.0.path)
    }
}

/// The file, and what this minute has brought.
struct RefusedLogState {
    clock: Arc<dyn Clock>,
    path: Option<PathBuf>,
    told: Mutex<RefusedThisMinute>,
    /// One line is written at a time.
    writing: Mutex<()>,
}

/// The addresses that have a line in this minute.
#[derive(Debug, Default)]
struct RefusedThisMinute {
    minute: i64,
    addresses: BTreeSet<Account>,
    has_more: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    unix_secs: i64,
    address: IpAddr,
    reason: &'a str,
}

impl RefusedLog {
    /// In this directory; without one nothing is kept.
    pub fn new(data_dir: Option<&Path>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(RefusedLogState {
            clock,
            path: data_dir.map(|dir| dir.join(FILE)),
            told: Mutex::default(),
            writing: Mutex::default(),
        }))
    }

    /// Notes a refused caller. It waits for nothing: another thread writes the line.
    pub fn tell(&self, address: IpAddr, reason: &str) {
        let unix_secs = self.0.clock.wall_unix_ms().div_euclid(1_000);
        let reason = match self.news(address, unix_secs) {
            News::None => return,
            News::Address => reason,
            News::More => MORE,
        };
        let line = Line {
            unix_secs,
            address,
            reason,
        };
        // Texts and numbers can always be written.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || inner.append(&line));
    }

    /// How many addresses were told of in this minute.
    #[cfg(test)]
    pub(crate) fn told(&self) -> usize {
        self.0.told.lock().unwrap().addresses.len()
    }

    fn news(&self, address: IpAddr, now_unix_secs: i64) -> News {
        let minute = now_unix_secs.div_euclid(MINUTE_SECS);
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.minute != minute {
            *told = RefusedThisMinute {
                minute,
                ..RefusedThisMinute::default()
            };
        }
        let account = Account::of(address);
        if told.addresses.contains(&account) {
            return News::None;
        }
        if told.addresses.len() >= ADDRESSES_MAX {
            return match std::mem::replace(&mut told.has_more, true) {
                true => News::None,
                false => News::More,
            };
        }
        told.addresses.insert(account);
        News::Address
    }
}

/// What of a refusal is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    None,
    Address,
    /// There were too many in this minute.
    More,
}

impl RefusedLogState {
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
    use crate::clock::SystemClock;

    #[test]
    fn an_address_is_told_of_once_a_minute() {
        let log = RefusedLog::new(None, Arc::new(SystemClock::new()));
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(log.news(address(1), 120), News::Address);
        assert_eq!(log.news(address(1), 179), News::None);
        assert_eq!(log.news(address(2), 130), News::Address);
        assert_eq!(log.news(address(1), 180), News::Address, "another minute");
        let one_network = ["2001:db8::1", "2001:db8::2"].map(|text| log.news(text.parse().unwrap(), 180));
        assert_eq!(one_network, [News::Address, News::None]);
        let more = (0..100_000_u32).map(|number| log.news(IpAddr::from(number.to_be_bytes()), 181));
        let more: Vec<News> = more.collect();
        let count = |wanted| more.iter().filter(|news| **news == wanted).count();
        assert_eq!((count(News::Address), count(News::More)), (ADDRESSES_MAX - 2, 1));
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
