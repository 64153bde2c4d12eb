//! The host beside containers: user, name servers, clock, limits.

use std::time::{Duration, SystemTime};

use dhow_driver::container::host_name_servers;
use dhow_wire::DaemonConfig;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Group;

use super::Found;

/// Where the manager of the host's time leaves a mark once the clock is right.
const TIME_IS_RIGHT: &str = "/run/systemd/timesync/synchronized";

/// Fewer files than this and a daemon with many replicas or workers runs out of them.
const OPEN_FILES_MIN: u64 = 8_192;

/// No host that runs this is older: 2025-01-01.
const BUILT_AFTER_UNIX_SECS: u64 = 1_735_689_600;

/// How far a file may lie in the future before the clock is doubted.
const AHEAD: Duration = Duration::from_secs(60);

/// The group whose members use the daemon's socket.
const GROUP: &str = "dhow";

pub(super) fn user() -> Found {
    match nix::unistd::geteuid().is_root() {
        true => Found::ok("user", "root: host programs and containers"),
        false => Found::lacks(
            "user",
            "an ordinary user: host programs (`runtime: process`) alone",
            "containers need root: run this, and the daemon, with sudo",
        ),
    }
}

pub(super) fn name_servers() -> Found {
    let servers = host_name_servers();
    if servers.is_empty() {
        return Found::lacks(
            "dns",
            "/etc/resolv.conf names no server: containers find each other by name, and nothing outside",
            "name one there: `nameserver 192.0.2.53`",
        );
    }
    let listed: Vec<String> = servers.iter().map(|server| server.ip().to_string()).collect();
    Found::ok("dns", format!("this host asks {}", listed.join(", ")))
}

pub(super) fn clock(config: &DaemonConfig) -> Found {
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let hint = "set it, and keep it right with systemd-timesyncd or chrony: certificates are judged by it";
    if since.as_secs() < BUILT_AFTER_UNIX_SECS {
        return Found::broken("clock", "it is years behind", hint);
    }
    // The lock is written at each start of a daemon.
    let written = std::fs::metadata(config.data_dir.join("daemon.lock")).and_then(|found| found.modified());
    if written.is_ok_and(|written| written.duration_since(now).is_ok_and(|ahead| ahead > AHEAD)) {
        return Found::broken("clock", "it is behind the last start of the daemon here", hint);
    }
    match std::path::Path::new(TIME_IS_RIGHT).exists() {
        true => Found::ok("clock", "it is kept right by systemd-timesyncd"),
        false => Found::ok("clock", "it looks right; that something keeps it so was not seen"),
    }
}

pub(super) fn open_files() -> Found {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < OPEN_FILES_MIN => Found::lacks(
            "open files",
            format!("a process may have {hard} open"),
            format!(
                "raise the hard limit to {OPEN_FILES_MIN} or more (`LimitNOFILE` of the unit, or limits.conf)"
            ),
        ),
        Ok((_, hard)) => Found::ok("open files", format!("a process may have {hard} open")),
        Err(error) => Found::lacks(
            "open files",
            format!("the limit cannot be read: {error}"),
            "see `ulimit -n`",
        ),
    }
}

pub(super) fn service_group() -> Found {
    match Group::from_name(GROUP) {
        Ok(Some(_)) => Found::ok("group", "members of `dhow` may use the daemon's socket"),
        Ok(None) | Err(_) => Found::ok(
            "group",
            "there is no group `dhow`: only the daemon's own user may use its socket (`groupadd --system dhow` makes one)",
        ),
    }
}
