//! Why the past cannot be told, or not be written.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use dhow_core::ids::Revision;
use dhow_wire::log_form::LogFormError;

use crate::plane::log::store::StoreError;

/// Why the past cannot be told, or not be written.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    #[error("the past of this server begins at revision {first}")]
    Before { first: Revision },
    #[error("nothing of the past is kept yet; try again in a moment")]
    Nothing,
    #[error("the cluster has not come to revision {asked}: it is at {newest}")]
    Ahead { asked: Revision, newest: Revision },
    #[error(
        "this server has no past from revision {from} to {to}: its log had forgotten them before they were written"
    )]
    Gap { from: Revision, to: Revision },
    #[error("{path} is damaged at byte {at}: {what}", path = path.display())]
    Damaged { path: PathBuf, at: u64, what: String },
    #[error("other moments of the past are being made; try again shortly")]
    Busy,
    #[error(
        "the disk has {free_bytes} bytes left: the past is written again once it has more than {needed_bytes}"
    )]
    DiskFull { free_bytes: u64, needed_bytes: u64 },
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the log of commands cannot be read")]
    Log(#[from] StoreError),
    #[error("what the log of commands has cannot be read")]
    Form(#[from] LogFormError),
    #[error("the work was cut off")]
    CutOff,
}

impl PastError {
    /// With its causes, in one line.
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PastError {
    let path = path.to_owned();
    move |cause| PastError::Io { action, path, cause }
}

pub(super) fn damaged(path: &Path, at: u64, what: impl ToString) -> PastError {
    PastError::Damaged {
        path: path.to_owned(),
        at,
        what: what.to_string(),
    }
}
