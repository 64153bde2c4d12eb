//! Giving up root for good: another user, no groups, and of all capabilities those that are named.
//!
//! The kernel keeps capabilities for each thread: threads that are there before give up theirs themselves.

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
    keep_through_change(keep)?;
    let became = change(id)
        .map(|()| id)
        .or_else(|_| change(NOBODY).map(|()| NOBODY));
    keep_only(keep)?;
    Ok(became?)
}

/// Who [`become_user`] becomes here.
pub fn user_for(id: u32) -> u32 {
    let known = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    match has_user(&known, id) {
        true => id,
        false => NOBODY,
    }
}

/// Whether a table of users has one: lines of the first, who that is outside, and how many there are.
fn has_user(table: &str, id: u32) -> bool {
    table.lines().any(|line| {
        let words: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        matches!(words[..], [first, _, count] if (first..first + count).contains(&u64::from(id)))
    })
}

/// Lets the calling thread keep capabilities while the process becomes another user, which takes them all away
/// otherwise; no more than these can ever be gained. Then comes [`keep_only`].
pub fn keep_through_change(keep: &[u8]) -> io::Result<()> {
    prctl::set_keepcaps(true)?;
    for capability in 0..=u8::MAX {
        if !keep.contains(&capability) && drop_from_bounding_set(capability).is_err() {
            // Either the kernel knows no capability of this number and above, or this process may drop none.
            break;
        }
    }
    Ok(())
}

/// Gives up all capabilities of the calling thread but these, for good.
pub fn keep_only(keep: &[u8]) -> io::Result<()> {
    set_capabilities(keep)?;
    Ok(prctl::set_keepcaps(false)?)
}

fn change(id: u32) -> nix::Result<()> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    unistd::setgroups(&[])?;
    unistd::setresgid(group, group, group)?;
    unistd::setresuid(user, user, user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_few_users_has_no_others() {
        let few = "         0     100000      65536\n";
        assert!(has_user(few, 0) && has_user(few, 65_535));
        assert!(!has_user(few, 65_536) && !has_user("", 0));
        assert!(has_user("0 0 4294967295", 0x7fff_ffff));
    }
}
