//! The image side of the driver through its public face: sources, faults, crashes, concurrency, mounts.

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
