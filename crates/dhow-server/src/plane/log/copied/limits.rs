//! Every limit of the copied log, with its arithmetic.

use crate::plane::log::store::limits::MAX_QUEUED_REQUESTS;

/// Events that may wait for the reducer: a proposal takes its place when it is made, and there is room for what peers
/// send beside them.
pub const EVENTS_MAX: usize = MAX_QUEUED_REQUESTS + 64;

/// Proposals that may wait for the task: as many as the reducer has on their way.
pub const PROPOSALS_MAX: usize = MAX_QUEUED_REQUESTS;

/// Proposals that are written and copied together. What one write of the store may hold bounds it too.
pub const BATCH_PROPOSALS_MAX: usize = 256;

/// Bytes of one batch: half of what the store takes in one write, so that one more proposal always fits.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of entries in one message that brings a peer up to date.
pub const CATCH_UP_BYTES: usize = 1024 * 1024;

/// Messages of entries after which a peer is sent the whole state instead.
pub const CATCH_UP_MESSAGES_MAX: usize = 16;

/// The largest whole copy: a static cluster is a few nodes, and a replica takes about 100 bytes.
pub const WHOLE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long a claim may take: the peer reads its whole state for the answer.
pub const CLAIM_TIMEOUT_MS: u64 = 5_000;

/// How long a whole copy may take on its way.
pub const WHOLE_TIMEOUT_MS: u64 = 30_000;

/// The pause before a claim that was refused is made again.
pub const CLAIM_PAUSE_MS: u64 = 300;
