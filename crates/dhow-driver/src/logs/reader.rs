//! Reads stored records back in pages. Blocking file access with bounded memory: a page holds at most
//! [`PAGE_MAX_BYTES`] of the file plus one record.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::frame::{self, HEADER_BYTES, LINE_MAX_BYTES, LogLine, Stream};
use super::runs::{self, RunSpan};

/// What one page reads at most: 16 of the longest records, a few thousand usual ones.
pub const PAGE_MAX_BYTES: usize = 256 * 1024;
/// A record is never longer than this; what is, is damage and is skipped.
const RECORD_MAX_BYTES: usize = LINE_MAX_BYTES + HEADER_BYTES + 1;
const SUFFIX: &str = ".log";

pub(super) fn file_name(number: u64) -> String {
    format!("{number:08}{SUFFIX}")
}

/// The numbers of a folder's files, ascending.
pub(super) fn file_numbers(names: impl IntoIterator<Item = OsString>) -> Vec<u64> {
    let numbers = names
        .into_iter()
        .filter_map(|name| name.to_str()?.strip_suffix(SUFFIX)?.parse::<u64>().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// A place in a replica's output. The default is the oldest that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogPosition {
    pub file: u64,
    pub offset_bytes: u64,
}

/// Which lines are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Inclusive.
    pub since_us: Option<u64>,
    /// Exclusive.
    pub until_us: Option<u64>,
    pub stream: Option<Stream>,
}

impl LogFilter {
    pub fn wants(&self, line: &LogLine) -> bool {
        self.since_us.is_none_or(|since| line.at_us >= since)
            && self.until_us.is_none_or(|until| line.at_us < until)
            && self.stream.is_none_or(|stream| line.stream == stream)
    }
}

/// Some lines, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    pub lines: Vec<LogLine>,
    pub next: LogPosition,
    /// There was nothing more behind this page when it was read. A page may be empty and not the end: the
    /// filter wanted none of its lines.
    pub at_end: bool,
    /// Files between the position asked for and the first one still kept: that much had been dropped.
    pub files_missed: u64,
}

/// A log folder.
#[derive(Clone, Debug)]
pub struct LogDir {
    path: PathBuf,
}

impl LogDir {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the last `lines` records begin.
    pub fn locate_tail(&self, lines: usize) -> io::Result<LogPosition> {
        let mut wanted = lines;
        let mut start = LogPosition::default();
        for (nth, number) in self.numbers()?.into_iter().rev().enumerate() {
            let Some(mut file) = self.open(number)? else { break };
            if nth == 0 {
                start = LogPosition {
                    file: number,
                    offset_bytes: complete_bytes(&mut file)?,
                };
            }
            if wanted == 0 {
                break;
            }
            let (offset_bytes, found) = nth_line_from_end(&mut file, wanted)?;
            start = LogPosition {
                file: number,
                offset_bytes,
            };
            wanted -= found;
        }
        Ok(start)
    }

    /// The end of what is stored: where a reader starts that wants only what comes.
    pub fn end(&self) -> io::Result<LogPosition> {
        self.locate_tail(0)
    }

    /// The run before the newest one; none where there was one alone, or nobody knows.
    pub fn previous_run(&self) -> io::Result<Option<RunSpan>> {
        match std::fs::read(self.path.join(runs::FILE)) {
            Ok(bytes) => Ok(RunSpan::previous_of(&runs::read(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads on from a position.
    pub fn page(&self, from: LogPosition, filter: &LogFilter) -> io::Result<LogPage> {
        // The listing comes first: a file with a successor in it is complete, whatever is written since.
        let numbers = self.numbers()?;
        let mut page = LogPage {
            next: from,
            ..LogPage::default()
        };
        let Some(number) = numbers.iter().copied().find(|number| *number >= from.file) else {
            page.at_end = true;
            return Ok(page);
        };
        if number > from.file {
            page.files_missed = if from.file == 0 { 0 } else { number - from.file };
            page.next = LogPosition {
                file: number,
                offset_bytes: 0,
            };
        }
        let successor = numbers.iter().copied().find(|other| *other > number);
        let Some(mut file) = self.open(number)? else {
            // Dropped since the listing: the next call starts at what is left.
            page.next = LogPosition {
                file: number + 1,
                offset_bytes: 0,
            };
            return Ok(page);
        };
        if file.metadata()?.len() < page.next.offset_bytes {
            // The folder was made anew since the position was taken.
            page.next.offset_bytes = 0;
        }
        file.seek(SeekFrom::Start(page.next.offset_bytes))?;
        let mut bytes = Vec::new();
        let read_max = (PAGE_MAX_BYTES + RECORD_MAX_BYTES) as u64;
        let whole_file_read = (file.take(read_max).read_to_end(&mut bytes)? as u64) < read_max;
        let (used, no_more_records) = collect_lines(&bytes, filter, &mut page.lines);
        page.next.offset_bytes += used as u64;
        let file_is_done = whole_file_read && no_more_records;
        match successor {
            Some(successor) if file_is_done => {
                page.next = LogPosition {
                    file: successor,
                    offset_bytes: 0,
                };
            }
            Some(_) => {}
            None => page.at_end = file_is_done,
        }
        Ok(page)
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let names = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries.map(|entry| Ok(entry?.file_name())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(file_numbers(names.collect::<io::Result<Vec<_>>>()?))
    }

    fn open(&self, number: u64) -> io::Result<Option<File>> {
        match File::open(self.path.join(file_name(number))) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Takes whole records until the page is full; gives the number of bytes that they were, and whether no
/// whole record is left.
fn collect_lines(bytes: &[u8], filter: &LogFilter, lines: &mut Vec<LogLine>) -> (usize, bool) {
    let mut used = 0;
    while used < PAGE_MAX_BYTES {
        let rest = bytes.get(used..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            // No newline within the longest possible record: damage. Leave it behind.
            if rest.len() >= RECORD_MAX_BYTES {
                used += rest.len();
            }
            return (used, true);
        };
        let line = rest.get(..length).and_then(frame::decode);
        lines.extend(line.filter(|line| filter.wants(line)));
        used += length + 1;
    }
    (used, false)
}

const BLOCK_BYTES: u64 = 64 * 1024;

/// The length of the file up to and with its last newline: behind it somebody is just writing.
fn complete_bytes(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES);
        let block = read_block(file, start, end)?;
        if let Some(last) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The offset at which the last `wanted` lines begin, or 0 and how many there are.
fn nth_line_from_end(file: &mut File, wanted: usize) -> io::Result<(u64, usize)> {
    let mut end = complete_bytes(file)?;
    let mut newlines = 0;
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES);
        let block = read_block(file, start, end)?;
        for (index, byte) in block.iter().enumerate().rev() {
            if *byte != b'\n' {
                continue;
            }
            if newlines == wanted {
                return Ok((start + index as u64 + 1, wanted));
            }
            newlines += 1;
        }
        end = start;
    }
    Ok((0, newlines))
}

fn read_block(file: &mut File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut block = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(end - start).read_to_end(&mut block)?;
    Ok(block)
}
