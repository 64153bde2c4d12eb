//! Named volumes of a node: folders that outlive the replicas that mount them, with what is known of each beside it.
//!
//! A volume is `DIR/DEPLOYMENT/NAME`; what begins with a dot beside it is the node's own: a record of it, a lock, and
//! folders that are being made. The agent makes and lists volumes, the container driver fills new ones from images,
//! people take copies of them and put them back through the daemon. All of it blocks. It must never show a workload a
//! volume that is half filled or half restored, and never follow a link that somebody has put into one.

mod archive;
mod copy;
mod error;
mod fill;
mod project;
mod record;
mod restore;
mod store;
#[cfg(test)]
mod tests;

pub use error::VolumeError;
pub(crate) use fill::{Covered, fill};
pub(crate) use project::limit_new;
pub use project::support;
pub use store::{VolumeOnDisk, Volumes};

/// What stands before the names of the node's own files: no volume's name begins with it.
const OWN: &str = ".";
