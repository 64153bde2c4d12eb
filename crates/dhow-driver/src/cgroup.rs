//! Control groups: what the host offers, one leaf per replica, limits, killing all of it, figures.
//!
//! Version 2, version 1 and the mix of both are told apart by the mounts; each controller is used where it
//! is. Everything is plain file access, so the same code runs in the daemon (on its blocking threads) and
//! in the shim. It must never touch a group that it did not make, and never pretends: what a host cannot
//! enforce is listed in [`CgroupHost::missing`].

mod enable;
mod error;
mod group;
mod host;
mod limits;
mod mounts;
mod usage;

pub use error::CgroupError;
pub use group::Group;
pub use host::{CgroupHost, Controller, Layout};
pub use limits::Limits;
pub use mounts::Mounts;
pub use usage::Usage;

#[cfg(test)]
mod tests;
