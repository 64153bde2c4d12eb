//! A replica's output on disk: how a line is stored, how files rotate, how they are read back.
//!
//! A log folder holds `00000001.log`, `00000002.log`, …: the highest number is being written, and nothing is
//! ever renamed, so a position (file number, byte offset) stays true until its file is dropped as the
//! oldest. A stored line is
//!
//! ```text
//! 1731700000123456 o. the text\n
//! ^ microseconds   ^^
//! since 1970       |+- `.` ends the line, `+` means that it goes on in the stream's next record
//!                  +-- `o` stdout, `e` stderr, `!` a notice of the supervisor's own
//! ```
//!
//! The shim writes through [`LogWriter`]; the agent reads through [`LogSource`]. Neither ever holds more
//! than its named limits in memory, and neither ever stops on a malformed byte.

mod follow;
mod frame;
mod reader;
mod runs;
mod source;
mod writer;

pub use follow::LogFollow;
pub use frame::{LINE_MAX_BYTES, LogLine, Stream};
pub use reader::{LogDir, LogFilter, LogPage, LogPosition, PAGE_MAX_BYTES};
pub use runs::RunSpan;
pub use source::{LogSource, MemoryLog};
pub use writer::{LogLimits, LogWriter};

#[cfg(test)]
mod tests;
