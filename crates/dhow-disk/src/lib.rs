//! Small files that are replaced as a whole: the one way in which Dhow writes what must outlive a power cut, and in
//! which it reads such a file back without ever losing it.
//!
//! Called by every crate that keeps something on disk, except the log's store, which has segments of its own, syncs
//! them by itself and injects faults before each of its steps. Everything here blocks. It never follows a link where
//! it writes, never leaves half a file under the name that was asked for, and never puts anything in the place of a
//! file that it could not read.

mod dir;
mod kept;
mod whole;

pub use dir::{Dir, Outlives};
pub use kept::{Kept, read_or_set_aside, set_aside};
pub use whole::{create, replace, replace_through};
