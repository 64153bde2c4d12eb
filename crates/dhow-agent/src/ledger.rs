//! The node's own account of what happened, written before it is told: a daemon that is killed goes on where it
//! was, and no event is lost or invented. Owned by the keeper; nothing else writes it.
//!
//! A file of lines, each `checksum json`. Lines are appended without a sync: they have to outlive the daemon, not
//! the machine. After a reboot nothing runs any more, and a power cut costs at most the end of the file. A new file
//! takes the place of an old one durably, so that it never costs all of it. Where the beginning is lost all the
//! same, the node begins a new life ([`Account::incarnation`]) and tells everything it has.

mod account;
mod file;
mod record;

use std::path::{Path, PathBuf};

pub use account::{Account, PendingEvent, Tracked};
pub use file::LedgerError;
pub use record::Record;

use crate::limits::LEDGER_COMPACT_BYTES;
use file::LedgerFile;

/// The open ledger of a node: its file. The keeper appends to it what its core has taken into its [`Account`].
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: LedgerFile,
}

impl Ledger {
    /// Opens the ledger of a directory, or begins one, and gives what it amounts to. `fresh_incarnation` is used where
    /// there was none. Blocks.
    pub fn open(dir: &Path, fresh_incarnation: u64) -> Result<(Self, Account), LedgerError> {
        let path = dir.join("ledger");
        let (file, records) = LedgerFile::open(&path)?;
        let mut account = Account::default();
        for record in &records {
            account.take(record);
        }
        let mut ledger = Self { path, file };
        if account.incarnation() == 0 {
            account = account.of_life(fresh_incarnation);
            ledger.replace(&account.records())?;
        }
        Ok((ledger, account))
    }

    /// Writes records. Blocks.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LedgerError> {
        self.file.append(records)
    }

    /// Whether so little of the file is alive that it should be written anew: a record is some hundred bytes.
    pub fn is_mostly_history(&self, account: &Account) -> bool {
        self.file.bytes() > LEDGER_COMPACT_BYTES && self.file.records() > account.live().saturating_mul(4)
    }

    /// Puts these records in place of the file. Where that fails, the file is as it was. Blocks.
    pub fn replace(&mut self, records: &[Record]) -> Result<(), LedgerError> {
        self.file = LedgerFile::replace(&self.path, records)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
