//! What went wrong with a control group, and at which file.

use std::io;
use std::path::PathBuf;

/// Why a control group could not be made, limited, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("the control group {path} could not be made")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the limit `{value}` could not be written to {path}")]
    Limit {
        path: PathBuf,
        value: String,
        #[source]
        source: io::Error,
    },
    #[error("the control group {path} could not be removed")]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{left} processes in the control group {path} did not end although they were killed")]
    Unkillable { path: PathBuf, left: usize },
}
