//! How a replica runs on a host: images, the driver trait and its drivers, the shim.
//!
//! Called by `dhow-agent`, and by the binary, which opens the drivers and becomes the shim. It must never decide what
//! runs where: that is the control plane's.

pub mod call_filter;
pub mod carry;
pub mod cgroup;
pub mod conformance;
pub mod container;
pub mod driver;
pub mod fake;
pub mod files;
pub mod image;
pub mod logs;
pub mod memory;
pub mod process;
mod regular_file;
pub mod shim;
pub mod unavailable;
pub mod unprivileged;
pub mod volume;
