//! Every limit of the store, with its arithmetic. Callers may lower some of them through
//! [`super::options::StoreOptions`]; nothing may raise them.

/// The unit a disk writes whole or not at all. Frames begin on such a boundary and never share one, so a
/// write that is cut off can only ever leave whole sectors of its own frame missing.
pub const SECTOR_BYTES: usize = 512;

/// Size of a segment file: 32,768 sectors. Large enough that a rotation (four fsyncs) is rare beside
/// commits, small enough that recovery reads one whole segment into memory.
pub const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Largest segment that the format can hold: a frame counts its sectors in a `u16`.
pub const MAX_SEGMENT_BYTES: u64 = 65_535 * SECTOR_BYTES as u64;

/// Largest payload of one entry. Raft entries stay far below (512 KiB); the rest is room for one
/// deployment file with large environment values.
pub const MAX_RECORD_BYTES: usize = 8 * 1024 * 1024;

/// What the records of one batch may add to the payload of its largest entry: 64 KiB is the headers of
/// 3,120 entries (21 bytes each).
pub const BATCH_SLACK_BYTES: usize = 64 * 1024;

/// Largest value under one metadata key. A vote or a log position takes about 30 bytes.
pub const MAX_META_BYTES: usize = 1024;

/// Requests that may wait for the writer. At 64 KiB each they would fill [`MAX_QUEUED_BYTES`].
pub const MAX_QUEUED_REQUESTS: usize = 1024;

/// Encoded bytes that may wait for the writer: eight of the largest batches, and 64 KiB for each of
/// [`MAX_QUEUED_REQUESTS`].
pub const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;

/// Payload bytes of recent entries kept in memory, so that followers and replicas that are nearly up to
/// date are served without reading the disk.
pub const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// What an entry costs in a cache or an answer besides its payload, so that empty entries are bounded too.
pub const ENTRY_OVERHEAD_BYTES: usize = 64;

/// Largest stretch of one segment that a read takes in at once. One entry above it is still read whole.
pub const READ_RUN_BYTES: usize = 1024 * 1024;

/// The buffer a frame is built in is given back when it grew beyond this, so that one large batch does not
/// pin 8 MiB for ever.
pub const FRAME_BUFFER_KEEP_BYTES: usize = 1024 * 1024;

/// Bytes of zeros written at a time while a segment is prepared.
pub const ZERO_RUN_BYTES: usize = 256 * 1024;

/// Content bytes in one chunk of a snapshot, each with its own checksum: what a reader holds in memory.
pub const SNAPSHOT_CHUNK_BYTES: usize = 64 * 1024;

/// Finished snapshots that are kept. The log is purged only behind the older one, so that a damaged newest
/// snapshot never costs data.
pub const KEPT_SNAPSHOTS: usize = 2;
