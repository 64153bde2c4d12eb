//! What was found where the bytes on disk are not what was written, and what a person can do about it.

use std::fmt;
use std::path::Path;

use super::error::StoreError;

/// The kinds of damage. Each is refused: the store never cuts off what it cannot explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// There are log files, but not the file that lists them.
    ManifestMissing,
    /// The file that lists the segments does not match its checksum.
    ManifestChecksum,
    /// A segment that must be there is not.
    SegmentMissing {
        /// Number of the first frame that is missing.
        frame: u64,
    },
    /// Frames are gone between two segments.
    FramesMissing {
        /// First missing frame.
        from: u64,
        /// Last missing frame.
        to: u64,
    },
    /// The first segment holds nothing, although the log did not begin with it.
    SegmentEmpty,
    /// A segment that the manifest does not list holds frames.
    SegmentUnlisted,
    /// The header of a segment does not match its checksum.
    SegmentHeader,
    /// A segment of another store, under another name, or one that does not follow the one before it.
    SegmentOutOfPlace,
    /// A segment has another length than all of them have.
    SegmentLength {
        /// What it should have.
        expected_bytes: u64,
        /// What it has.
        found_bytes: u64,
    },
    /// A sector does not match its checksum.
    SectorChecksum {
        /// The frame it belongs to.
        frame: u64,
    },
    /// A sector is empty although the log goes on after it.
    SectorMissing {
        /// The frame it belongs to.
        frame: u64,
    },
    /// A frame stands where another belongs.
    FrameOutOfOrder {
        /// The frame that belongs there.
        expected: u64,
        /// The frame that was found.
        found: u64,
    },
    /// Sound sectors do not add up to a sound frame.
    FrameContent {
        /// The frame.
        frame: u64,
    },
    /// A frame follows another one than stands before it.
    FrameChain {
        /// The frame.
        frame: u64,
    },
    /// A record inside a sound frame makes no sense.
    Record {
        /// The frame.
        frame: u64,
    },
    /// Bytes that are not zero after the end of the log.
    AfterEnd,
    /// Entries are gone that no purge has allowed to go.
    EntriesMissing {
        /// First missing index.
        from: u64,
        /// Last missing index.
        to: u64,
    },
    /// The header of a snapshot does not match its checksum.
    SnapshotHeader,
    /// A snapshot under another's name, or of another store.
    SnapshotOutOfPlace,
    /// A chunk of a snapshot does not match its checksum.
    SnapshotChunk {
        /// Which one, from 0.
        number: u64,
    },
    /// A snapshot ends before its footer.
    SnapshotCut,
    /// The footer of a snapshot does not match what stands before it.
    SnapshotFooter,
    /// A snapshot goes on after its footer.
    SnapshotAfterEnd,
    /// The log begins behind the newest snapshot, or there is none.
    SnapshotMissing {
        /// First index that the log holds.
        log_first: u64,
    },
    /// The newest snapshot covers entries that the log never had.
    SnapshotAhead {
        /// The snapshot's index.
        snapshot: u64,
        /// Index of the log's next entry.
        log_next: u64,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::ManifestMissing => f.write_str("the list of segments is missing beside log files"),
            What::ManifestChecksum => f.write_str("the list of segments does not match its checksum"),
            What::SegmentMissing { frame } => write!(f, "the segment with frame {frame} is missing"),
            What::FramesMissing { from, to } => write!(f, "the frames {from} to {to} are missing"),
            What::SegmentEmpty => f.write_str("the first segment is empty although the log goes on in it"),
            What::SegmentUnlisted => {
                f.write_str("this segment holds frames but is not in the list of segments")
            }
            What::SegmentHeader => f.write_str("the header of the segment does not match its checksum"),
            What::SegmentOutOfPlace => {
                f.write_str("this segment belongs to another place in the log, or to another log")
            }
            What::SegmentLength {
                expected_bytes,
                found_bytes,
            } => {
                write!(
                    f,
                    "the segment is {found_bytes} bytes long and must be {expected_bytes}"
                )
            }
            What::SectorChecksum { frame } => {
                write!(f, "a sector of frame {frame} does not match its checksum")
            }
            What::SectorMissing { frame } => {
                write!(
                    f,
                    "a sector of frame {frame} is empty although the log goes on after it"
                )
            }
            What::FrameOutOfOrder { expected, found } => {
                write!(f, "frame {found} stands where frame {expected} belongs")
            }
            What::FrameContent { frame } => write!(f, "the content of frame {frame} does not match its seal"),
            What::FrameChain { frame } => {
                write!(f, "frame {frame} follows another frame than stands before it")
            }
            What::Record { frame } => write!(f, "a record of frame {frame} makes no sense there"),
            What::AfterEnd => f.write_str("there are bytes after the end of the log"),
            What::EntriesMissing { from, to } => write!(f, "the entries {from} to {to} are missing"),
            What::SnapshotHeader => f.write_str("the header of the snapshot does not match its checksum"),
            What::SnapshotOutOfPlace => {
                f.write_str("this snapshot belongs to another index or to another log")
            }
            What::SnapshotChunk { number } => {
                write!(f, "chunk {number} of the snapshot does not match its checksum")
            }
            What::SnapshotCut => f.write_str("the snapshot ends before its footer"),
            What::SnapshotFooter => f.write_str("the footer does not match the snapshot"),
            What::SnapshotAfterEnd => f.write_str("there are bytes after the end of the snapshot"),
            What::SnapshotMissing { log_first } => {
                write!(
                    f,
                    "no snapshot covers what is before entry {log_first}, where the log begins"
                )
            }
            What::SnapshotAhead { snapshot, log_next } => write!(
                f,
                "the snapshot covers entries up to {snapshot}, but the log ends before entry {log_next}"
            ),
        }
    }
}

/// What can be done where the log itself is damaged: it is needed whole.
const RESTORE: &str = "Nothing was changed. Restore the directory from a backup; on a member of a cluster, move \
                       it away and join again, so that the log is copied from another server";

/// Damage of a log file, with what is known of the part before it.
pub(super) fn damaged(file: &Path, offset: u64, what: What, valid_bytes: u64) -> StoreError {
    let hint = format!("The {valid_bytes} bytes before it are sound. {RESTORE}");
    StoreError::Damaged {
        file: file.to_owned(),
        offset,
        what,
        hint,
    }
}

/// Damage of a file as a whole.
pub(super) fn damaged_file(file: &Path, what: What) -> StoreError {
    StoreError::Damaged {
        file: file.to_owned(),
        offset: 0,
        what,
        hint: RESTORE.to_owned(),
    }
}
