//! How many files a daemon may have open. Services are started with few, for programs that cannot count further; a daemon
//! with thousands of connections needs all that it is allowed. What it starts has what it was given itself.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than any daemon uses, where the host sets no bound.
const FILES_MAX: u64 = 1024 * 1024;

/// What this process was started with.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Takes what is allowed. A host that refuses leaves the process with what it has.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let wanted = hard.min(FILES_MAX);
    if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        // Only the first call finds the limit that the process was started with.
        let _ = GIVEN.set(soft);
    }
}

/// What this process was given, where it has taken more since.
pub(crate) fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// Gives back what is above `soft`.
pub(crate) fn lower(soft: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard)
}
