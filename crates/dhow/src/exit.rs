//! How a command ends.

use std::process::ExitCode;

use dhow_wire::problem;

/// The exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// It did not succeed: a deployment that did not become stable, a command that failed.
    Failed,
    /// The input or the usage is wrong; nothing was changed.
    BadInput,
    /// No daemon, or no leader, answers.
    NoDaemon,
    /// Not found, or refused by the present state.
    Refused,
    /// The user stopped it with Ctrl-C, as a shell counts it: 128 and the number of the signal.
    Interrupted,
    /// What a command that ran inside a replica ended with.
    Of(u8),
}

impl From<problem::ExitCode> for Exit {
    fn from(code: problem::ExitCode) -> Self {
        match code {
            problem::ExitCode::Done => Self::Done,
            problem::ExitCode::Failed => Self::Failed,
            problem::ExitCode::BadInput => Self::BadInput,
            problem::ExitCode::NoLeader => Self::NoDaemon,
            problem::ExitCode::NotFoundOrRefused => Self::Refused,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::BadInput => 2,
            Exit::NoDaemon => 3,
            Exit::Refused => 4,
            Exit::Interrupted => 130,
            Exit::Of(code) => code,
        })
    }
}
