//! What is wrong with a scenario file itself, as opposed to what comes out of it.

/// Why a scenario file cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadScript {
    pub line: usize,
    pub what: String,
}
