//! Giving up root for good: another user, no groups, and of all capabilities those that are named.
//!
//! For a process with one thread, before it starts others: the kernel keeps capabilities for each thread.

use std::io;

use nix::sys::prctl;
use nix::unistd::{self, Gid, Uid};

use crate::shim::{drop_from_bounding_set, set_capabilities};

/// May bind ports below 1024.
pub const NET_BIND_SERVICE: u8 = 10;

/// Nobody, on every system.
const NOBODY: u32 = 65_534;

/// Becomes this user with these capabilities and no other; nobody, where the host does not have the number, as in a
/// container with few of them. Gives who it has become. The process must be root.
pub fn become_user(id: u32, keep: &[u8]) -> io::Result<u32> {
    // Without this the change of the user takes all of them away.
    prctl::set_keepcaps(true)?;
    for capability in 0..=u8::MAX {
        if !keep.contains(&capability) && drop_from_bounding_set(capability).is_err() {
            // Either the kernel knows no capability of this number and above, or this process may drop none.
            break;
        }
    }
    let became = change(id)
        .map(|()| id)
        .or_else(|_| change(NOBODY).map(|()| NOBODY));
    set_capabilities(keep)?;
    prctl::set_keepcaps(false)?;
    Ok(became?)
}

fn change(id: u32) -> nix::Result<()> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    unistd::setgroups(&[])?;
    unistd::setresgid(group, group, group)?;
    unistd::setresuid(user, user, user)
}
