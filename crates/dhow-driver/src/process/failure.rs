//! From what a shim says to what a person needs to hear.

use std::io;
use std::path::{Path, PathBuf};

use nix::libc::ENOENT;

use crate::driver::Cause;
use crate::shim::ShimError;
use crate::shim::protocol::{Failure, Program, Step};

pub(super) fn explain(error: ShimError, program: &Program) -> Cause {
    let ShimError::Refused(failure) = error else {
        return Cause::Shim(error);
    };
    let source = || {
        failure
            .errno
            .map_or_else(|| io::Error::other("refused"), io::Error::from_raw_os_error)
    };
    match failure.step {
        Step::Program => explain_program(&failure, program, source()),
        Step::Workdir => Cause::Workdir {
            path: PathBuf::from(&failure.detail),
            source: source(),
        },
        Step::User => Cause::UserRefused {
            user: failure.detail.clone(),
            source: source(),
        },
        Step::Rlimit => Cause::Unsupported {
            field: "ulimits",
            why: failure.to_string(),
        },
        Step::Starter | Step::PidFile => Cause::Runtime {
            output: failure.detail.clone(),
        },
        Step::Request
        | Step::Log
        | Step::SetUp
        | Step::Resources
        | Step::Record
        | Step::Group
        | Step::Stdio => Cause::Shim(ShimError::Refused(failure)),
    }
}

fn explain_program(failure: &Failure, program: &Program, source: io::Error) -> Cause {
    let name = failure.detail.clone();
    if failure.errno != Some(ENOENT) {
        return Cause::ProgramRefused {
            program: name,
            source,
        };
    }
    if !name.contains('/') {
        let path = program.env.iter().find(|(key, _)| key == "PATH");
        let searched = path.map_or_else(|| "an empty PATH".to_owned(), |(_, path)| path.clone());
        return Cause::ProgramNotFound {
            program: name,
            searched,
        };
    }
    let file = program.workdir.as_deref().unwrap_or(Path::new("/")).join(&name);
    if file.exists() {
        Cause::InterpreterMissing { program: name }
    } else {
        Cause::ProgramMissing { program: name }
    }
}
