//! From what a shim or a runtime says to what a person needs to hear.

use std::io;

use nix::libc::EACCES;

use crate::driver::Cause;
use crate::shim::ShimError;
use crate::shim::protocol::{Failure, Step};

use super::command;
use super::oci::Process;
use super::root_view::RootView;

/// Why a container did not start. `root` is its root file system, without its mounts.
pub(super) fn explain(error: ShimError, process: &Process, root: Option<&RootView>) -> Cause {
    let failure = match error {
        ShimError::Refused(failure) => failure,
        other => return Cause::Shim(other),
    };
    match failure.step {
        Step::Starter => explain_runtime(said(&failure), process, root),
        Step::PidFile | Step::Program | Step::SetUp => Cause::Runtime {
            output: failure.to_string(),
        },
        Step::Request
        | Step::Log
        | Step::Resources
        | Step::Record
        | Step::Group
        | Step::Rlimit
        | Step::Stdio
        | Step::User
        | Step::Workdir => Cause::Shim(ShimError::Refused(failure)),
    }
}

/// What the runtime wrote, without its command line.
fn said(failure: &Failure) -> String {
    let text = failure.detail.as_str();
    let output = text
        .split_once(" ended with ")
        .and_then(|(_, rest)| rest.split_once(": "));
    let lines = output.map_or(text, |(_, output)| output).trim().lines();
    // One line each, as logs write them: `time level message`, or the message alone.
    lines
        .map(|line| message(line).trim())
        .collect::<Vec<_>>()
        .join("; ")
}

fn message(line: &str) -> &str {
    let quoted = line
        .split_once("msg=\"")
        .map(|(_, rest)| rest.trim_end_matches('"'));
    quoted.unwrap_or_else(|| {
        line.split_once(": ").map_or(line, |(first, rest)| {
            // A time and the runtime's own name say nothing.
            if first.starts_with("20") && first.contains('T') {
                rest
            } else {
                line
            }
        })
    })
}

fn explain_runtime(output: String, process: &Process, root: Option<&RootView>) -> Cause {
    let Some(program) = process.args.first() else {
        return Cause::NoCommand;
    };
    let lower = output.to_ascii_lowercase();
    let is_about_program = output.contains(program.as_str()) || lower.contains("executable");
    let path = command::path_of(&process.env);
    let exists = root.is_none_or(|root| root.has_program(program, path, &process.cwd));
    if is_about_program && !exists && (lower.contains("no such file") || lower.contains("not found")) {
        return not_found(program, path);
    }
    if is_about_program && lower.contains("permission denied") {
        return Cause::ProgramRefused {
            program: program.clone(),
            source: io::Error::from_raw_os_error(EACCES),
        };
    }
    Cause::Runtime { output }
}

/// A program that the container does not have.
pub(super) fn not_found(program: &str, path: &str) -> Cause {
    if program.contains('/') {
        Cause::ProgramMissing {
            program: program.to_owned(),
        }
    } else {
        Cause::ProgramNotFound {
            program: program.to_owned(),
            searched: format!("the image's {path}"),
        }
    }
}
