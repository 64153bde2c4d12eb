//! Credentials of registries: they come in and never go out again.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest name and the longest password or token of a registry.
pub const LOGIN_CHARS_MAX: usize = 16 * 1024;

/// Who asks a registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegistryLogin {
    pub user: String,
    #[schema(write_only)]
    pub password: String,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryLogin").finish_non_exhaustive()
    }
}

/// A registry that the cluster has credentials for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegistryInfo {
    pub registry: String,
    /// Counts how often somebody has logged in.
    pub revision: u64,
}
