//! The limits of one document, so that a hostile or broken one is refused in milliseconds.

/// One file: 10,000 peers with labels take about 1.5 MiB; the gateway's bodies have the same bound.
pub const INPUT_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Nesting: the deepest place of the language is below 10.
pub const DEPTH_MAX: usize = 64;

/// Nodes with aliases counted as often as they are used: 10,000 peers of 15 nodes each and room to spare.
/// A node takes about 100 bytes, so that a tree stays below 25 MB.
pub const NODES_MAX: usize = 250_000;

/// Text with aliases counted as often as they are used: four times the largest file.
pub const TEXT_MAX_BYTES: usize = 4 * INPUT_MAX_BYTES;

/// Findings that are kept; more are only counted. Nobody reads more, and each costs an excerpt.
pub const FINDINGS_MAX: usize = 1_000;

/// Findings that are shown to a person at once; the machine form has all that are kept.
pub const FINDINGS_SHOWN_MAX: usize = 50;
