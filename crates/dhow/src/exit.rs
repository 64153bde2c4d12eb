//! How a command ends.

use std::process::ExitCode;

/// The exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// It did not succeed: a deployment that did not become stable, a command that failed.
    Failed,
    /// The input or the usage is wrong; nothing was changed.
    BadInput,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::BadInput => 2,
        })
    }
}
