//! What the proofs are made with.

mod answer;
mod api;
mod browser;
mod busybox;
mod cluster;
mod daemon;
mod deployment;
mod disk;
pub mod git_server;
mod host;
mod images;
mod load;
mod network;
mod open_load;
mod pebble;
mod person;
mod relay;
mod seed;

use std::io::Write;
use std::time::{Duration, Instant};

pub use answer::Answer;
pub use api::{Reply, ask, ask_with};
pub use browser::Browser;
pub use busybox::{busybox_layout, container};
pub use cluster::{Cluster, Where};
pub use daemon::{Daemon, Replica, by_node, replicas_at};
pub use deployment::{Service, deployment, spread};
pub use disk::SmallDisk;
pub use host::{Alone, Scratch, free_port, helpers, is_alive, is_root, signal};
pub use images::{image, lacks};
pub use load::{Load, get, get_from};
pub use network::Network;
pub use open_load::{Cause, Failure, OpenLoad};
pub use pebble::{Pebble, PebbleOptions};
pub use person::Person;
pub use relay::Relay;
pub use seed::Seed;

/// Far beyond what anything here takes, also on a busy machine: who waits this long waits for nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The short count, or the long one with `DHOW_TEST_LONG=1`.
pub fn rounds(short: u32, long: u32) -> u32 {
    match std::env::var("DHOW_TEST_LONG").is_ok_and(|value| value == "1") {
        true => long,
        false => short,
    }
}

/// Looks until there is something to see.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Says what was not proved here, past the harness, which shows nothing of a test that passes.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {what}: {why}");
}
