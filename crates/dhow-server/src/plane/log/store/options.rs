//! What a caller may choose when it opens a store.

use super::disk::Disk;
use super::error::StoreError;
use super::frame::records_capacity;
use super::identity::StoreId;
use super::limits::{
    BATCH_SLACK_BYTES, CACHE_BYTES, MAX_RECORD_BYTES, MAX_SEGMENT_BYTES, SECTOR_BYTES, SEGMENT_BYTES,
};
use super::record::{APPEND_HEADER_BYTES, MAX_CHECKPOINT_BYTES};

/// Sizes and switches of a store. The size of segments counts when a store is created; an existing one keeps
/// the size it was made with.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Size of a segment file.
    pub segment_size_bytes: u64,
    /// Largest payload of an entry.
    pub max_record_bytes: usize,
    /// Payload bytes of recent entries kept in memory.
    pub cache_bytes: usize,
    /// Whether a log that was purged must have a snapshot that reaches its first entry.
    pub purged_needs_snapshot: bool,
    /// Identity of a store that is created now; random when none is given.
    pub store_id: Option<StoreId>,
    /// How the disk is reached; a test may make it fail.
    pub disk: Disk,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            segment_size_bytes: SEGMENT_BYTES,
            max_record_bytes: MAX_RECORD_BYTES,
            cache_bytes: CACHE_BYTES,
            purged_needs_snapshot: true,
            store_id: None,
            disk: Disk::default(),
        }
    }
}

impl StoreOptions {
    /// Encoded bytes that one request may have. Requests are atomic, so each must fit into one frame.
    pub fn max_batch_bytes(&self) -> usize {
        self.max_record_bytes + self.max_record_bytes.min(BATCH_SLACK_BYTES)
    }

    /// Refuses sizes with which the largest request would not fit into an empty segment.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let bad = |why: String| Err(StoreError::BadOptions { why });
        let sector = SECTOR_BYTES as u64;
        if !self.segment_size_bytes.is_multiple_of(sector) || self.segment_size_bytes > MAX_SEGMENT_BYTES {
            return bad(format!(
                "a segment of {} bytes is not a multiple of {sector} or above {MAX_SEGMENT_BYTES}",
                self.segment_size_bytes
            ));
        }
        if !(APPEND_HEADER_BYTES..=MAX_RECORD_BYTES).contains(&self.max_record_bytes) {
            return bad(format!(
                "the largest entry of {} bytes is not between {APPEND_HEADER_BYTES} and {MAX_RECORD_BYTES}",
                self.max_record_bytes
            ));
        }
        let room = records_capacity((self.segment_size_bytes / sector).saturating_sub(1) as usize);
        let needed = self.max_batch_bytes() + MAX_CHECKPOINT_BYTES;
        if room < needed {
            return bad(format!(
                "a segment has room for {room} bytes, the largest request takes {needed}"
            ));
        }
        Ok(())
    }
}
