//! How much of a server elsewhere is read, and for how long.

use std::time::Duration;

/// All of one look: a server that drips is cut as well as one that hangs.
pub(super) const LOOK_DEADLINE: Duration = Duration::from_secs(60);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two pieces of an answer.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// To the same server; one that redirects further is lost.
pub(super) const REDIRECTS_MAX: usize = 4;

/// The references of a repository that were asked for: few, unless somebody has thousands of tags of one prefix.
pub(super) const REFS_BYTES_MAX: usize = 1 << 20;
/// What a repository sends of one commit: a set of the largest size, and as much beside it.
pub(super) const PACK_BYTES_MAX: usize = 128 << 20;
/// The same unpacked, of all objects together. The memory of two looks at a time is four times this at most.
pub(super) const UNPACKED_BYTES_MAX: u64 = 192 << 20;
/// Commits, folders and files of one answer: at 100 bytes each beside what they hold.
pub(super) const OBJECTS_MAX: u32 = 200_000;
/// Folders inside folders of a set.
pub(super) const DEPTH_MAX: usize = 16;
