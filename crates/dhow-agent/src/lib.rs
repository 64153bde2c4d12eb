//! One node: what runs on it and what leads to it.
//!
//! Called by the `dhow` binary. It executes and reports; it never decides where a replica runs, and it never
//! sees the control plane but through its session.

pub mod proxy;
