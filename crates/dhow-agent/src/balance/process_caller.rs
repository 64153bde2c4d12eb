//! How the proxy tells the processes of a replica from others of this host: by their control group, else by their user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::CallsFrom;

/// Where the second form of control groups is found, alone or beside the first.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// From where a process calls; nothing is known of one that has ended. Blocks.
pub fn of_process(pid: u32) -> CallsFrom {
    let proc = Path::new("/proc").join(pid.to_string());
    let own_user = nix::unistd::geteuid().as_raw();
    let user = fs::metadata(&proc).ok().map(|found| found.uid());
    let cgroup = fs::read_to_string(proc.join("cgroup")).ok();
    CallsFrom::Process {
        cgroup: cgroup.as_deref().and_then(inode),
        // Others run as these too.
        uid: user.filter(|uid| *uid != 0 && *uid != own_user),
    }
}

/// The number of the group that the list of a process's groups names.
fn inode(groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Everybody is in the first one.
    if path.is_empty() {
        return None;
    }
    let found = MOUNTS.iter().find_map(|mount| {
        let mount = Path::new(mount);
        // Of the first form there is no such file.
        mount.join("cgroup.procs").exists().then(|| mount.join(path))
    })?;
    fs::metadata(found).ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_one_that_ended_is_not() {
        let CallsFrom::Process { uid, .. } = of_process(std::process::id()) else {
            panic!("a process is no container");
        };
        assert_eq!(uid, None, "the own user tells nobody apart");
        let nobody = CallsFrom::Process {
            cgroup: None,
            uid: None,
        };
        assert_eq!(of_process(u32::MAX), nobody);
        assert_eq!(inode("1:cpu:/x\n0::/\n"), None);
    }
}
