//! The real binary against a daemon that answers by a script: what is asked, what is printed, how it ends.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod deploying;
mod failures;
mod listings;
mod server;
mod streams;
mod writes;
