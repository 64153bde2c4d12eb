//! Keys on disk, what is made of them, and who is let in by whom.

mod certificates;
mod files;
mod handshakes;
mod worker_tier;
mod workers;
