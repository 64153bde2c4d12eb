//! Becomes somebody inside a container: its mounts, its root, its user, and no right that its workload does not have.

use std::fs::File;
use std::io;

use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, chdir, chroot, fchdir, setgroups, setresgid, setresuid};

use super::CarryError;
use crate::shim::ProcessId;
use crate::unprivileged::{keep_only, keep_through_change};

/// To give files an owner, to pass over their modes, and to change these: what carrying needs where the user is root.
const NEEDED: [u8; 3] = [0, 1, 3];

/// `PID START_TICKS UID GID[,GID…] CWD`.
pub fn enter(place: &[&str]) -> Result<(), CarryError> {
    let [pid, start_ticks, uid, gids, cwd] = place else {
        return Err(CarryError::Enter(io::ErrorKind::InvalidInput.into()));
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| CarryError::Enter(io::ErrorKind::InvalidInput.into()))
    };
    let id = |text: &str| number(text).map(|id| u32::try_from(id).unwrap_or(u32::MAX));
    let process = ProcessId {
        pid: id(pid)?,
        start_ticks: number(start_ticks)?,
    };
    let uid = Uid::from_raw(id(uid)?);
    let gids = gids.split(',').map(|gid| id(gid).map(Gid::from_raw));
    let gids: Vec<Gid> = gids.collect::<Result<_, _>>()?;
    become_it(process, uid, &gids, cwd).map_err(CarryError::Enter)
}

fn become_it(process: ProcessId, uid: Uid, gids: &[Gid], cwd: &str) -> io::Result<()> {
    let [gid, more @ ..] = gids else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let of = |what: &str| format!("/proc/{}/{what}", process.pid);
    let mounts = File::open(of("ns/mnt"))?;
    let root = File::open(of("root"))?;
    let keep: Vec<u8> = match uid.is_root() {
        true => effective(&std::fs::read_to_string(of("status"))?),
        false => Vec::new(),
    };
    // Looked at after opening: then these are the ones of the process that is meant.
    if !process.lives() {
        return Err(io::Error::other("the replica has ended"));
    }
    setns(&mounts, CloneFlags::CLONE_NEWNS)?;
    fchdir(&root)?;
    chroot(".")?;
    chdir("/")?;
    drop((mounts, root));
    nix::sys::prctl::set_no_new_privs()?;
    keep_through_change(&keep)?;
    setgroups(more)?;
    setresgid(*gid, *gid, *gid)?;
    setresuid(uid, uid, uid)?;
    keep_only(&keep)?;
    // The workload may not be let into its own folder; absolute paths are still good.
    let _ = chdir(cwd);
    Ok(())
}

/// Of the capabilities that carrying needs those that a process has, by its status in `/proc`.
fn effective(status: &str) -> Vec<u8> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0);
    NEEDED.into_iter().filter(|bit| set >> bit & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_right_is_taken_along_that_the_workload_has_not() {
        assert_eq!(effective("Name:\tx\nCapEff:\t00000000a80425fb\n"), NEEDED);
        assert_eq!(effective("CapEff:\t0000000000000002\n"), [1]);
        assert!(effective("CapEff:\t0000000000000000\n").is_empty());
        assert!(effective("").is_empty());
    }
}
