//! How entries of the log and snapshots of the state are written to disk and sent between servers: one byte
//! with the version of the form, then the value in postcard.
//!
//! Called by the runtime, which encodes what it proposes and decodes what comes back. Postcard does not describe
//! itself, so a byte more or a field in another order is another form: it gets a new number, and the goldens
//! beside this file show the change in review. What an older form had is in `dhow_core::stored`. Older forms are
//! read for ever, and written while the cluster's feature level says that a server may know no newer one. It never
//! accepts a form that it does not know and never panics on bytes from elsewhere.

mod entry;
mod error;
mod parse;
mod snapshot;

pub use entry::{ENTRY_MAX_BYTES, decode_entry, encode_entry};
pub use error::LogFormError;
pub use snapshot::{SNAPSHOT_MAX_BYTES, decode_snapshot, encode_snapshot, snapshot_term};

#[cfg(test)]
mod tests;
