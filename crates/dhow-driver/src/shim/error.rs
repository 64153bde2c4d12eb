//! What can go wrong between the daemon and its shims.

use std::io;
use std::path::PathBuf;

use super::protocol::Failure;

/// Why a shim or a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("the zygote {program} could not be started")]
    Launch {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the zygote ended at once: {said}")]
    LaunchRefused { said: String },
    #[error("the zygote at {socket} does not answer")]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the connection to the supervisor broke before it had answered")]
    Lost(#[source] io::Error),
    #[error("the supervisor did not answer within {timeout_ms} ms")]
    Silent { timeout_ms: u64 },
    #[error("{0}")]
    Refused(Failure),
    #[error("the request is too long ({bytes} bytes): the environment and the command are limited to 2 MiB")]
    TooLong { bytes: usize },
    #[error("the record of the zygote in {path} cannot be read")]
    Record {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
