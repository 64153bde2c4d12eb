//! What can go wrong between the daemon and its proxy.

use std::io;
use std::path::PathBuf;

use dhow_driver::driver::Cause;
use dhow_driver::shim::ShimError;

/// Why the daemon could not start, reach or change its proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("{doing} {path} failed")]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the proxy could not be started")]
    Start(#[source] ShimError),
    #[error("the record of the proxy failed")]
    Record(#[source] Cause),
    #[error("the proxy ended as soon as it was started ({exit}): {said}")]
    EndedAtOnce { exit: String, said: String },
    #[error(
        "the proxy has ended {times} times in a row: it is started again in {pause_ms} ms. Its log is in {log}"
    )]
    CrashLoop { times: u32, pause_ms: u64, log: PathBuf },
    #[error("the proxy does not answer on {socket}")]
    Silent {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the proxy refused: {why}")]
    Refused { why: String },
    #[error("the proxy was stopped")]
    Stopped,
}
