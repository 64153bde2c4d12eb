//! What earlier lives of a data directory left running: shims whose folder is not one of ours.
//!
//! The drivers look for them once, at the daemon's start, among the shims below its own control group. Where the folder
//! was removed, nobody can ever ask for the replica again: the driver stops it. Where the folder still is somewhere,
//! the replica may be another daemon's: the driver names it in the log and leaves it alone. Without control groups the
//! driver looks at the shims of this user whose removed folder was one of this data directory; of folders elsewhere it
//! says nothing, since they may be another daemon's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::client::ShimConfig;
use super::identity::{self, ProcessId};
use super::record::LOCK_FILE;
use super::zygote;
use crate::cgroup::{CgroupError, CgroupHost, Group};
use crate::driver::Cause;

/// The name that a shim gives itself.
const SHIM_NAME: &str = "dhow-shim";
/// The name of what forks them.
const ZYGOTE_NAME: &str = "dhow-zygote";
/// How long a shim is waited for whose workload is killed. It clears up for at most 5 s, waits 1 s for output and 30 s
/// for a command that it runs after the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
const ROUND_PAUSE: Duration = Duration::from_millis(10);
/// What the kernel adds to the path of a file without a name.
const DELETED: &str = " (deleted)";

/// Where the folder of a shim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// Nowhere any more: it, or the lock in it, was removed.
    Removed(PathBuf),
    At(PathBuf),
}

/// A shim that supervises something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundShim {
    pub process: ProcessId,
    pub folder: Folder,
}

/// Stops what supervises a removed folder, and gives the shims whose folder is elsewhere. `run_dirs` are the daemon's
/// own. Blocks, for as long as what is stopped takes.
pub fn sweep(cgroups: &CgroupHost, run_dirs: &[PathBuf]) -> Vec<FoundShim> {
    if !cgroups.is_usable() {
        stop(removed_below(run_dirs));
        return Vec::new();
    }
    let shims = cgroups.group(ShimConfig::GROUP).pids();
    for pid in &shims {
        // Nobody reaches it any more; it would notice that by itself within a minute.
        identity::kill_if(*pid, || is_lost_zygote(*pid));
    }
    let found: Vec<FoundShim> = shims.into_iter().filter_map(found_shim).collect();
    let (removed, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|shim| matches!(shim.folder, Folder::Removed(_)));
    stop(removed);
    let foreign = others.into_iter().filter(|shim| !is_ours(shim, run_dirs));
    foreign.collect()
}

/// Shims of this user whose folder was in one of these and is gone.
fn removed_below(run_dirs: &[PathBuf]) -> Vec<FoundShim> {
    let run_dirs: Vec<PathBuf> = run_dirs.iter().map(|dir| resolved(dir)).collect();
    let own = rustix::process::geteuid().as_raw();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        (entry.metadata().ok()?.uid() == own).then_some(pid)
    });
    let was_ours = |shim: &FoundShim| match &shim.folder {
        Folder::Removed(dir) => dir
            .parent()
            .is_some_and(|parent| run_dirs.iter().any(|run| run == parent)),
        Folder::At(_) => false,
    };
    pids.filter_map(found_shim).filter(was_ours).collect()
}

/// The path without links, as far as it leads to something.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(found) = fs::canonicalize(path) {
        return found;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolved(parent).join(name),
        (None, _) | (_, None) => path.to_owned(),
    }
}

/// Who has the processes of a group.
pub(crate) enum Claim {
    /// There are none.
    Nobody,
    /// Shims whose folder was removed.
    Removed(Vec<FoundShim>),
    /// A shim with a folder.
    Elsewhere(FoundShim),
    /// No shim is above them: it was killed.
    Unknown(Vec<u32>),
}

/// Looks at a group that belongs to no folder here, or whose folder's own shim has ended.
pub(crate) fn claim(group: &Group) -> Claim {
    let pids = group.pids();
    if pids.is_empty() {
        return Claim::Nobody;
    }
    let mut above: Vec<u32> = pids.iter().copied().filter_map(supervisor).collect();
    above.sort_unstable();
    above.dedup();
    let mut removed = Vec::new();
    for shim in above.into_iter().filter_map(found_shim) {
        match shim.folder {
            Folder::At(_) => return Claim::Elsewhere(shim),
            Folder::Removed(_) => removed.push(shim),
        }
    }
    match removed.is_empty() {
        true => Claim::Unknown(pids),
        false => Claim::Removed(removed),
    }
}

/// Makes room in a group that belongs to no folder here. Gives whether it is free now; what belongs or may belong to
/// another daemon is named in the log and left. Blocks.
pub(crate) fn clear(group: &Group, leaf: &str) -> Result<bool, CgroupError> {
    match claim(group) {
        Claim::Nobody => {}
        Claim::Removed(shims) => {
            stop(shims);
            group.kill_and_wait()?;
        }
        Claim::Elsewhere(shim) => {
            report(&[shim]);
            return Ok(false);
        }
        Claim::Unknown(pids) => {
            tracing::error!(
                leaf,
                ?pids,
                "processes below this daemon's control group belong to no replica and nobody supervises them; they are \
                 left alone. End them, and start the daemon again"
            );
            return Ok(false);
        }
    }
    group.remove()?;
    Ok(true)
}

/// Ends what earlier lives of a data directory left in the group of a replica that is about to start. What belongs to
/// another daemon keeps the replica from starting. Call it with the replica's lock held: its own shim has ended.
/// Blocks.
pub(crate) fn make_way(group: &Group) -> Result<(), Cause> {
    match claim(group) {
        Claim::Elsewhere(FoundShim {
            process,
            folder: Folder::At(folder),
        }) => Err(Cause::RunsElsewhere {
            pid: process.pid,
            folder,
        }),
        Claim::Removed(shims) => {
            stop(shims);
            group.kill_and_wait().map_err(Cause::Cgroup)
        }
        Claim::Nobody | Claim::Elsewhere(_) | Claim::Unknown(_) => {
            group.kill_and_wait().map_err(Cause::Cgroup)
        }
    }
}

/// The shim above a process.
fn supervisor(pid: u32) -> Option<u32> {
    // A workload's tree is rarely deeper than ten; a loop in what changes meanwhile must end.
    const DEPTH_MAX: usize = 1_024;
    let mut at = pid;
    for _ in 0..DEPTH_MAX {
        at = identity::Stat::read(at).ok()?.parent;
        if is_shim(at) {
            return Some(at);
        }
        if at <= 1 {
            return None;
        }
    }
    None
}

fn is_shim(pid: u32) -> bool {
    is_named(pid, SHIM_NAME)
}

fn is_named(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim_end() == name)
}

/// Whether it is a zygote whose lock was removed.
fn is_lost_zygote(pid: u32) -> bool {
    let lock = || held(pid, zygote::LOCK_FILE);
    is_named(pid, ZYGOTE_NAME) && matches!(lock(), Some(Folder::Removed(_)))
}

/// The folder of the file of this name that a process has open.
fn held(pid: u32, file: &str) -> Option<Folder> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    descriptors
        .flatten()
        .find_map(|entry| folder_of(&entry.path(), file))
}

/// The shim of this number, by the lock that it holds. One that only runs a command holds none.
fn found_shim(pid: u32) -> Option<FoundShim> {
    if !is_shim(pid) {
        return None;
    }
    let process = ProcessId::of(pid).ok()?;
    let folder = held(pid, LOCK_FILE)?;
    // The number may have become somebody else's while its descriptors were read.
    process.lives().then_some(FoundShim { process, folder })
}

/// The folder of the file that a descriptor is of, where that has this name.
fn folder_of(descriptor: &Path, file: &str) -> Option<Folder> {
    let target = fs::read_link(descriptor).ok()?;
    let text = target.to_str()?;
    let path = Path::new(text.strip_suffix(DELETED).unwrap_or(text));
    if path.file_name()? != file {
        return None;
    }
    let dir = path.parent()?.to_owned();
    // Through the link it is the open file itself, whatever its name leads to.
    let open = fs::metadata(descriptor).ok()?;
    Some(match open.nlink() {
        0 => Folder::Removed(dir),
        _ => Folder::At(dir),
    })
}

fn is_ours(shim: &FoundShim, run_dirs: &[PathBuf]) -> bool {
    let Folder::At(dir) = &shim.folder else {
        return false;
    };
    let within = |run_dir: &PathBuf| match (dir.parent(), fs::canonicalize(run_dir)) {
        (Some(parent), Ok(run_dir)) => parent == run_dir,
        (None, _) | (_, Err(_)) => false,
    };
    run_dirs.iter().any(within)
}

/// Kills what is below each of them, again and again, until they have ended.
fn stop(shims: Vec<FoundShim>) {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut left = shims;
    for shim in &left {
        tracing::warn!(
            pid = shim.process.pid, folder = ?shim.folder,
            "what an earlier life of this data directory left running is stopped: its folder is gone"
        );
    }
    while !left.is_empty() && Instant::now() < deadline {
        for shim in &left {
            for pid in identity::descendants(shim.process.pid) {
                identity::kill_if(pid, || identity::is_below(pid, shim.process));
            }
        }
        std::thread::sleep(ROUND_PAUSE);
        left.retain(|shim| shim.process.lives());
    }
    for shim in left {
        tracing::error!(
            pid = shim.process.pid, folder = ?shim.folder,
            "what an earlier life of this data directory left running does not end; end it by hand"
        );
    }
}

/// Tells the operator of what was left alone.
pub fn report(shims: &[FoundShim]) {
    for shim in shims {
        let Folder::At(folder) = &shim.folder else {
            continue;
        };
        tracing::error!(
            pid = shim.process.pid, folder = %folder.display(),
            "something below this daemon's control group runs from a folder that is not this data directory's; it is \
             left alone. Put the folder back, or end what runs there"
        );
    }
}
