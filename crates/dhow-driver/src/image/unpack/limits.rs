//! How large a layer may be. A small download can unpack to any size, so each dimension has a limit.

/// Limits for one layer; the defaults are far above what images need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Files, directories and links: the largest published images have about a million.
    pub max_entries: u64,
    /// Bytes of the uncompressed tar stream and of the files, holes included; model images reach 100 GiB.
    pub max_layer_bytes: u64,
}

const MAX_ENTRIES: u64 = 4_000_000;
const MAX_LAYER_BYTES: u64 = 256 << 30;

/// One extended header: 16 attributes of 64 KiB, the largest that Linux takes.
pub(super) const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// Names of directories kept in memory until their times are set: 1,000,000 names of 64 bytes.
pub(super) const MAX_DIR_PATH_BYTES: u64 = 64 << 20;
/// Parts of a sparse file: 16 bytes of memory each.
pub(super) const MAX_SPARSE_PARTS: u64 = 65_536;
/// Longest path and name that Linux takes.
pub(super) const MAX_PATH_BYTES: usize = 4_095;
pub(super) const MAX_NAME_BYTES: usize = 255;
/// Directories inside one another. Removing a tree opens one per level; images stay below 100.
pub(super) const MAX_DEPTH: usize = 256;

impl Default for UnpackLimits {
    fn default() -> Self {
        Self {
            max_entries: MAX_ENTRIES,
            max_layer_bytes: MAX_LAYER_BYTES,
        }
    }
}
