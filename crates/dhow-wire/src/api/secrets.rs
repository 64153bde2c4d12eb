//! Secrets, by name alone: no answer of the API ever carries a value.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest value: a key or a certificate chain, and no file store.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;

/// One secret, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretInfo {
    pub name: String,
    /// Counts how often it was set.
    pub revision: u64,
}
