//! Writes records and rotates files. Called by the shim, from one thread; a disk that is full or broken
//! costs lines, which are counted and told of later, and never holds the workload up.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use dhow_disk::Dir;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::frame::{self, LINE_MAX_BYTES, Stream};
use super::reader::{file_name, file_numbers};
use super::runs;

/// How much of a replica's output is kept: at most `file_max_bytes × files_max`, plus one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    pub file_max_bytes: u64,
    pub files_max: u32,
}

impl Default for LogLimits {
    /// 3 × 10 MiB: a hundred replicas keep at most 3 GiB.
    fn default() -> Self {
        Self {
            file_max_bytes: 10 << 20,
            files_max: 3,
        }
    }
}

impl LogLimits {
    /// A file holds at least a few of the longest records, and there is always one old file to read from.
    fn sane(self) -> Self {
        const FILE_MIN_BYTES: u64 = 4 * 1024;
        Self {
            file_max_bytes: self.file_max_bytes.max(FILE_MIN_BYTES),
            files_max: self.files_max.max(2),
        }
    }
}

/// What could not be stored since the last notice.
#[derive(Default)]
struct Dropped {
    records: u64,
    bytes: u64,
    why: String,
}

/// The log of one replica, open for writing. Its shim has one.
pub struct LogWriter {
    dir: Dir,
    limits: LogLimits,
    number: u64,
    file: Option<File>,
    file_bytes: u64,
    /// Unfinished lines of stdout and stderr.
    partial: [Vec<u8>; 2],
    /// Records that the present call stores with one write: at most a read of the pump plus headers.
    batch: Vec<u8>,
    batch_records: u64,
    dropped: Dropped,
}

impl LogWriter {
    /// Goes on after what the folder holds. Lines are never synced: a power cut may cost the last ones.
    pub fn open(dir: Dir, limits: LogLimits) -> io::Result<Self> {
        let mut writer = Self {
            number: file_numbers(dir.names()?).last().copied().unwrap_or(1),
            dir,
            limits: limits.sane(),
            file: None,
            file_bytes: 0,
            partial: [Vec::new(), Vec::new()],
            batch: Vec::new(),
            batch_records: 0,
            dropped: Dropped::default(),
        };
        writer.open_file()?;
        Ok(writer)
    }

    /// Notes that a run begins: what comes is its output.
    pub fn begin_run(&self, now_us: u64) -> io::Result<()> {
        runs::begin(&self.dir, now_us)
    }

    /// Takes output of a stream as it comes; stores every line that is now complete.
    pub fn append(&mut self, stream: Stream, mut bytes: &[u8], now_us: u64) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(stream, bytes.get(..end).unwrap_or_default(), now_us);
            self.end_line(stream, now_us);
            bytes = bytes.get(end + 1..).unwrap_or_default();
        }
        self.take(stream, bytes, now_us);
        self.store(now_us);
    }

    /// Stores unfinished lines as pieces, so that a prompt without a newline can be read.
    pub fn flush_partial(&mut self, now_us: u64) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.end_piece(stream, now_us);
        }
        self.store(now_us);
    }

    pub fn has_partial(&self) -> bool {
        self.partial.iter().any(|line| !line.is_empty())
    }

    /// The stream has ended: its unfinished line is all there will be.
    pub fn close(&mut self, stream: Stream, now_us: u64) {
        if self.slot(stream).is_some_and(|line| !line.is_empty()) {
            self.end_line(stream, now_us);
        }
        self.store(now_us);
    }

    /// Stores a line of the supervisor's own.
    pub fn notice(&mut self, text: &str, now_us: u64) {
        self.record(Stream::Notice, false, text.replace('\n', " ").as_bytes(), now_us);
        self.store(now_us);
    }

    fn slot(&mut self, stream: Stream) -> Option<&mut Vec<u8>> {
        let [stdout, stderr] = &mut self.partial;
        match stream {
            Stream::Stdout => Some(stdout),
            Stream::Stderr => Some(stderr),
            Stream::Notice => None,
        }
    }

    fn take(&mut self, stream: Stream, mut bytes: &[u8], now_us: u64) {
        while !bytes.is_empty() {
            let Some(line) = self.slot(stream) else { return };
            let room = LINE_MAX_BYTES.saturating_sub(line.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            line.extend_from_slice(now);
            bytes = later;
            if !bytes.is_empty() {
                self.end_piece(stream, now_us);
            }
        }
    }

    fn end_piece(&mut self, stream: Stream, now_us: u64) {
        if self.slot(stream).is_some_and(|line| !line.is_empty()) {
            self.end(stream, true, now_us);
        }
    }

    fn end_line(&mut self, stream: Stream, now_us: u64) {
        self.end(stream, false, now_us);
    }

    fn end(&mut self, stream: Stream, partial: bool, now_us: u64) {
        let Some(slot) = self.slot(stream) else { return };
        let line = std::mem::take(slot);
        self.record(stream, partial, &line, now_us);
        // Keeps the allocation of a stream that is busy, without keeping a large one for ever.
        const KEEP_BYTES: usize = 1024;
        if line.capacity() <= KEEP_BYTES
            && let Some(slot) = self.slot(stream)
        {
            *slot = line;
            slot.clear();
        }
    }

    fn record(&mut self, stream: Stream, partial: bool, text: &[u8], now_us: u64) {
        frame::encode(&mut self.batch, now_us, stream, partial, text);
        self.batch_records += 1;
        // A read full of empty lines grows twentyfold by headers: store in between.
        if self.batch.len() >= 2 * LINE_MAX_BYTES {
            self.store(now_us);
        }
    }

    /// Writes the batch, or counts it as lost.
    fn store(&mut self, now_us: u64) {
        if self.batch.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let records = std::mem::take(&mut self.batch_records);
        match self.try_store(&batch, now_us) {
            Ok(()) => {}
            Err(error) => {
                self.dropped.records += records;
                self.dropped.bytes += batch.len() as u64;
                self.dropped.why = error.to_string();
            }
        }
        batch.clear();
        const KEEP_BYTES: usize = 4 * 1024;
        if batch.capacity() <= KEEP_BYTES {
            self.batch = batch;
        }
    }

    fn try_store(&mut self, batch: &[u8], now_us: u64) -> io::Result<()> {
        if self.file_bytes > 0 && self.file_bytes + batch.len() as u64 > self.limits.file_max_bytes {
            self.rotate()?;
        }
        if self.dropped.records > 0 {
            let mut notice = Vec::new();
            let text = format!(
                "{} records ({} bytes) of output were lost: {}",
                self.dropped.records, self.dropped.bytes, self.dropped.why
            );
            frame::encode(&mut notice, now_us, Stream::Notice, false, text.as_bytes());
            self.write_whole(&notice)?;
            self.dropped = Dropped::default();
        }
        self.write_whole(batch)
    }

    /// All of it or nothing: what a full disk took half of is cut off again.
    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.open_file()?;
        }
        let Some(file) = self.file.as_mut() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match file.write_all(bytes) {
            Ok(()) => {
                self.file_bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Opening the file again repairs its end where even cutting fails.
                if file.set_len(self.file_bytes).is_err() {
                    self.file = None;
                }
                Err(error)
            }
        }
    }

    /// Goes on in the next file. The oldest goes first: on a full disk that is what makes room.
    fn rotate(&mut self) -> io::Result<()> {
        let keep = usize::try_from(self.limits.files_max).unwrap_or(usize::MAX) - 1;
        let numbers = file_numbers(self.dir.names()?);
        for number in numbers.iter().rev().skip(keep) {
            self.dir.remove(file_name(*number))?;
        }
        self.number += 1;
        self.file = None;
        self.open_file()
    }

    fn open_file(&mut self) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let mut file = self.dir.open_file(file_name(self.number), flags)?;
        let mut file_bytes = file.metadata()?.len();
        if file_bytes > 0 {
            // A predecessor that was killed while writing left half a record: close it off.
            let mut last = [0u8];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                file_bytes += 1;
            }
        }
        self.file_bytes = file_bytes;
        self.file = Some(file);
        Ok(())
    }
}
