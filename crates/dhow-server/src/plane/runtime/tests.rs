//! The runtime as a whole, with a scripted agent, a clock that stands still and a disk that can be held.

mod agent;
mod directory;
mod durability;
mod failures;
mod heartbeats;
mod inbox;
mod manifests;
mod planning;
mod restored;
mod shutdown;
mod support;
mod told;
mod walk;
