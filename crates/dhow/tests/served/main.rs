//! The real binary against the real API in this process, over a node that only pretends to run replicas: both sides
//! mean the same by every address, body and stream.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod afar;
mod daemon;
mod verbs;
