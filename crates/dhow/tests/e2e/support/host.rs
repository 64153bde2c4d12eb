//! The host: folders, ports, processes, control groups.

use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use dhow_driver::cgroup::CgroupHost;
use rustix::process::{Pid, Signal, kill_process};

/// Below the ports that the kernel hands out by itself, so that no replica is given one of them.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// The folders that there are, and whether a test wants to be the only one that runs.
struct Crowd {
    folders: u32,
    is_closed: bool,
}

static CROWD: Mutex<Crowd> = Mutex::new(Crowd {
    folders: 0,
    is_closed: false,
});
static LEFT: Condvar = Condvar::new();

thread_local! {
    /// What this test has of the crowd already: whoever is in it never waits for others.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

fn crowd() -> MutexGuard<'static, Crowd> {
    // Every change is whole, so that one left by a test that failed is sound.
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test beside which no other one runs: what it counts would be about a machine that is too busy.
pub struct Alone;

impl Alone {
    /// Waits until the tests that run have ended; those that follow wait for this one.
    pub fn wait() -> Self {
        let is_closed = |crowd: &mut Crowd| crowd.is_closed;
        let closing = LEFT.wait_while(crowd(), is_closed);
        let mut closing = closing.unwrap_or_else(PoisonError::into_inner);
        closing.is_closed = true;
        let others = LEFT.wait_while(closing, |crowd| crowd.folders > 0);
        drop(others.unwrap_or_else(PoisonError::into_inner));
        OWN.set(OWN.get() + 1);
        Self
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        OWN.set(OWN.get().saturating_sub(1));
        crowd().is_closed = false;
        LEFT.notify_all();
    }
}

/// A folder that goes with everything that runs on account of it.
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        let must_wait = |crowd: &mut Crowd| crowd.is_closed && OWN.get() == 0;
        let entered = LEFT.wait_while(crowd(), must_wait);
        entered.unwrap_or_else(PoisonError::into_inner).folders += 1;
        OWN.set(OWN.get() + 1);
        let path = std::env::temp_dir().join(format!("dhow-e2e-{}-{name}", std::process::id()));
        // What an aborted run has left would only confuse this one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    fn data_dir(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Groups that a daemon of this folder made and that are still there.
    pub fn groups(&self) -> Vec<PathBuf> {
        let name = CgroupHost::parent_name(&self.data_dir());
        let mut roots = vec![PathBuf::from("/sys/fs/cgroup")];
        let mounts = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        roots.extend(mounts.map(|entry| entry.path()));
        let groups = roots.into_iter().map(|root| root.join(&name));
        groups.filter(|group| group.is_dir()).collect()
    }

    /// The network of its containers, which a root daemon makes at its start: the device, its rules, and what is kept
    /// on memory. Those that are still there.
    pub fn network(&self) -> Vec<PathBuf> {
        let (bridge, kept) = (self.bridge(), digits(&self.data_dir().join("container")));
        let device = Path::new("/sys/class/net").join(bridge);
        let kept = ["/run/dhow", "/dev/shm/dhow"].map(|base| Path::new(base).join(&kept));
        let all = std::iter::once(device).chain(kept);
        all.filter(|path| path.exists()).collect()
    }

    /// As the daemon names it after its data directory.
    pub fn bridge(&self) -> String {
        format!("dhow-{}", &digits(&self.data_dir())[..8])
    }

    /// A daemon that was killed could not.
    fn remove_network(&self) {
        for path in self.network() {
            if path.starts_with("/sys") {
                let bridge = self.bridge();
                run("ip", &["link", "delete", &bridge]);
                for family in ["ip", "bridge", "inet"] {
                    run("nft", &["delete", "table", family, &bridge]);
                }
                continue;
            }
            let pins = fs::read_dir(path.join("netns")).into_iter().flatten().flatten();
            for pin in pins {
                let _ = rustix::mount::unmount(pin.path(), rustix::mount::UnmountFlags::DETACH);
            }
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// What devices, groups and folders of a directory are named after.
fn digits(dir: &Path) -> String {
    let name = CgroupHost::parent_name(dir);
    name.trim_start_matches("dhow-").to_owned()
}

/// What it cannot do is seen by who looks.
fn run(program: &str, args: &[&str]) {
    let _ = std::process::Command::new(program)
        .args(args)
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A daemon first, lest it heals what is ended here.
        for _ in 0..10 {
            let left = marked(&self.path);
            if left.is_empty() {
                break;
            }
            for process in left {
                signal(process.pid, Signal::KILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        for group in self.groups() {
            remove_groups(&group);
        }
        self.remove_network();
        // The roots of containers whose daemon had no chance, and what a test has mounted there.
        for place in mounted_below(&self.path) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.path);
        OWN.set(OWN.get().saturating_sub(1));
        crowd().folders -= 1;
        LEFT.notify_all();
    }
}

/// Where something is mounted, the innermost first.
fn mounted_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = places
        .map(PathBuf::from)
        .filter(|place| place.starts_with(folder));
    let mut below: Vec<_> = below.collect();
    below.reverse();
    below
}

fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// A port that nobody else is given by this function.
pub fn free_port() -> u16 {
    let size = u32::from(PORTS.end - PORTS.start);
    // Test programs that run at the same time begin at different places.
    let start = std::process::id().wrapping_mul(97) % size;
    loop {
        let offset = (start + TAKEN.fetch_add(1, Ordering::Relaxed)) % size;
        let port = PORTS.start + u16::try_from(offset).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

pub struct Process {
    pub pid: u32,
    pub environment: String,
}

/// Processes whose command line or environment names this folder: daemons, helpers, and replicas by their mark.
pub fn marked(folder: &Path) -> Vec<Process> {
    let mark = folder.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may end while it is looked at.
        let read = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (command, environment) = (read("cmdline"), read("environ"));
        if pid != std::process::id() && (command.contains(mark) || environment.contains(mark)) {
            found.push(Process { pid, environment });
        }
    }
    found
}

/// A process as a person would look for it.
pub fn told(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    // Forks of the zygote have its command line and a name of their own.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let named: Vec<&str> = stat.split(' ').take(4).collect();
    let waits = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    format!("{} in {waits}: {command}", named.join(" "))
}

/// The daemon's own processes of a folder that were started with this verb.
pub fn helpers(folder: &Path, verb: &str) -> Vec<u32> {
    let marked = marked(folder).into_iter().map(|process| process.pid);
    let is_one = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).nth(1) == Some(verb.as_bytes()) && is_alive(*pid)
    };
    marked.filter(is_one).collect()
}

pub fn is_alive(pid: u32) -> bool {
    // One that ended and was not waited for is not alive.
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// To one process; one that has ended already is no mistake.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
