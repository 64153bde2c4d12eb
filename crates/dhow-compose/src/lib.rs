//! Compose files, read as they are: from their texts to a deployment, with notes on what differs and findings on what
//! cannot be carried out.
//!
//! Called by the verbs that take a file. It opens no file and reads no variable by itself: both come through [`Around`].
//! Each key of the compose specification is carried out, explained by a note as having no effect, or refused by name.

mod conversion;
mod dotenv;
mod duration;
mod endpoints;
mod environment;
mod extends;
mod files;
mod health;
mod interpolate;
mod item;
mod keys;
mod load;
mod mentions;
mod merge;
mod mounts;
mod names;
mod networks;
mod pairs;
mod project;
mod report;
mod service;
mod swarm;
#[cfg(test)]
mod tests;
mod words;
mod written;

pub use conversion::{Around, Asked, Converted, Nodes, PathKind, SecretValue, convert};
pub use load::is_compose;
pub use report::Note;
pub use written::write_file;
