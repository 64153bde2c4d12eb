//! Secrets at rest: sealed with a key that only this cluster's servers have, bound to their names.
//!
//! The API seals what people set, and the node session unseals what a replica's spec names. A value is never logged,
//! never in the log of commands in clear, and never in an answer of the API.

mod key_file;
mod secret_box;
mod unseal;

pub use key_file::KeyFileError;
pub use secret_box::{SealError, SecretBox};
pub use unseal::{UnsealError, Unsealed, unseal_all};

#[cfg(test)]
mod tests;
