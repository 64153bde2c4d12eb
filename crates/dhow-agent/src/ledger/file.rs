//! The ledger's file: appended to, read from its beginning, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dhow_disk::Outlives;
use nix::fcntl::{FallocateFlags, fallocate};

use super::record::{Record, VERSION};
use crate::limits::{LEDGER_RECORD_MAX_BYTES, LEDGER_RESERVE_BYTES};

/// Why the ledger, or the file of the highest order, could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("{doing} the node's ledger {path} failed")]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("a record of the node's ledger cannot be written")]
    Record(#[source] serde_json::Error),
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    move |source| LedgerError::File { doing, path, source }
}

/// The open file of a ledger, to which records are appended.
#[derive(Debug)]
pub struct LedgerFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    records: usize,
    /// Up to where the disk has set room aside.
    reserved_bytes: u64,
}

impl LedgerFile {
    /// Opens a file and gives what can be read of it. A line that was never finished is cut off; a file that is
    /// damaged otherwise is put aside first.
    pub fn open(path: &Path) -> Result<(Self, Vec<Record>), LedgerError> {
        if let Some(dir) = path.parent() {
            let mut folder = fs::DirBuilder::new();
            let made = folder.recursive(true).mode(0o700).create(dir);
            made.map_err(failed("making the folder of", path))?;
        }
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("reading", path)(error)),
        };
        let (records, good) = read(&text);
        let (whole, rest) = text.split_at(good);
        if is_damaged(whole, rest) {
            put_aside(path, whole)?;
        }
        let good_bytes = good as u64;
        let file = open_options().open(path).map_err(failed("opening", path))?;
        file.set_len(good_bytes).map_err(failed("cutting", path))?;
        let mut opened = Self {
            path: path.to_owned(),
            file,
            bytes: good_bytes,
            records: records.len(),
            reserved_bytes: 0,
        };
        opened.reserve();
        Ok((opened, records))
    }

    /// Puts these records in place of the file, durably: whatever cuts it off, one of the two is whole.
    pub fn replace(path: &Path, records: &[Record]) -> Result<Self, LedgerError> {
        let text = lines(records)?;
        dhow_disk::replace(path, &text, Outlives::PowerCut).map_err(failed("replacing", path))?;
        let file = open_options().open(path).map_err(failed("opening", path))?;
        let mut replaced = Self {
            path: path.to_owned(),
            file,
            bytes: text.len() as u64,
            records: records.len(),
            reserved_bytes: 0,
        };
        replaced.reserve();
        Ok(replaced)
    }

    pub fn append(&mut self, records: &[Record]) -> Result<(), LedgerError> {
        let text = lines(records)?;
        let written = self.file.write_all(&text);
        if let Err(error) = written {
            // Half a record would hide all that follow it.
            let _ = self.file.set_len(self.bytes);
            return Err(failed("writing", &self.path)(error));
        }
        self.bytes += text.len() as u64;
        self.records += records.len();
        self.reserve();
        Ok(())
    }

    /// Keeps room for what there is to tell of a disk that is full. One that cannot is written to as it is.
    fn reserve(&mut self) {
        if self.reserved_bytes > self.bytes + LEDGER_RESERVE_BYTES / 2 {
            return;
        }
        let wanted = self.bytes + LEDGER_RESERVE_BYTES;
        let (Ok(from), Ok(size)) = (i64::try_from(self.bytes), i64::try_from(LEDGER_RESERVE_BYTES)) else {
            return;
        };
        if fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, size).is_ok() {
            self.reserved_bytes = wanted;
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn records(&self) -> usize {
        self.records
    }
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options
}

fn lines(records: &[Record]) -> Result<Vec<u8>, LedgerError> {
    let mut text = Vec::new();
    for record in records {
        let json = serde_json::to_vec(record).map_err(LedgerError::Record)?;
        // Writing to memory cannot fail.
        let _ = write!(text, "{:08x} ", crc32fast::hash(&json));
        text.extend_from_slice(&json);
        text.push(b'\n');
    }
    Ok(text)
}

/// Whether more is wrong with a file than a last line that a killed writer or a power cut left unfinished.
fn is_damaged(whole: &[u8], rest: &[u8]) -> bool {
    !rest.is_empty() && (whole.is_empty() || rest.contains(&b'\n'))
}

/// Keeps a damaged file for whoever wants to look at it, and goes on with what is whole of it.
fn put_aside(path: &Path, whole: &[u8]) -> Result<(), LedgerError> {
    let aside = dhow_disk::set_aside(path).map_err(failed("putting aside", path))?;
    tracing::error!(
        path = %aside.display(),
        "the node's ledger was damaged and is put aside; the node goes on with what is whole of it"
    );
    dhow_disk::replace(path, whole, Outlives::PowerCut).map_err(failed("replacing", path))
}

/// The records up to the first that is damaged, and how many bytes they are.
pub(super) fn read(text: &[u8]) -> (Vec<Record>, usize) {
    let mut records = Vec::new();
    let mut good = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(record) = read_line(line) else { break };
        let is_first = records.is_empty();
        if is_first != matches!(record, Record::Begin { version: VERSION, .. }) {
            break;
        }
        records.push(record);
        good += line.len();
    }
    (records, good)
}

fn read_line(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n")?;
    if line.len() > LEDGER_RECORD_MAX_BYTES {
        return None;
    }
    let (sum, json) = (line.get(..8)?, line.get(9..)?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    serde_json::from_slice(json).ok()
}
