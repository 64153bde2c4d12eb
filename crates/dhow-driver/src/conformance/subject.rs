//! The driver under test, and what its replicas are asked to do.

use std::sync::Arc;

use dhow_core::spec::ServiceSpec;

use crate::driver::{Driver, ExecRequest, ExitKind};

/// What a replica of a case does. Whatever goes on running writes the line `ready` to stdout once it is as
/// far as its description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ends with this code.
    Exit(i32),
    /// Ends by sending itself this signal.
    Die(i32),
    /// Writes these lines to stdout and stderr and ends with 0.
    Say {
        stdout: Vec<String>,
        stderr: Vec<String>,
    },
    /// Runs until a signal ends it.
    Run,
    /// Runs; ends with this code on SIGTERM.
    EndOnTerm(i32),
    /// Runs; only SIGKILL ends it.
    IgnoreTerm,
    /// Runs; has started processes in the background, one of them out of its session and orphaned.
    Family,
    /// Writes the values of these variables to stdout, a line each, and ends with 0.
    ShowEnv(Vec<String>),
    /// Takes memory until the limit, which the spec sets to 32 MiB, ends it.
    EatMemory,
    /// Runs a program that does not exist: `dhow-no-such-program`.
    NoProgram,
    /// Runs in a working directory that does not exist: `/dhow-no-such-folder`.
    NoWorkdir,
}

/// What a command beside a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecAct {
    /// Writes a line to each stream and ends with the code.
    Say {
        stdout: String,
        stderr: String,
        code: i32,
    },
    /// Writes the value of a variable to stdout.
    ShowEnv(String),
    /// A program that does not exist.
    NoProgram,
}

/// A driver under test.
pub trait Subject: Send + Sync {
    /// Opens the driver on the same host again: what a daemon does after a restart.
    fn open(&self) -> Arc<dyn Driver>;

    /// A service whose replica does this; `None` where this kind of driver has no such thing.
    fn spec(&self, act: &Act) -> Option<ServiceSpec>;

    fn exec(&self, act: &ExecAct) -> ExecRequest;

    /// How the end of a replica by a signal that it does not catch shows. The first process of a container is
    /// not ended by any but SIGKILL: there a shell's code stands for it.
    fn ended_by(&self, signal: i32) -> ExitKind {
        ExitKind::Signal(signal)
    }

    /// What is still on the host although every replica was removed: processes, groups, files.
    fn leftovers(&self) -> Vec<String>;
}
