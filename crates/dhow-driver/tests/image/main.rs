//! The image side of the driver through its public face: sources, faults, crashes, concurrency, mounts.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails ends its test, which is all that can be done"
)]

mod builder;
mod concurrency;
mod crash;
mod errors;
mod prune;
mod pull;
mod registry;
mod rootfs;
mod sources;
mod support;
