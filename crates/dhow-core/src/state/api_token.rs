//! Tokens with which people and programs call the API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::DeploymentName;

/// What the bearer may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiRole {
    Admin,
    /// Looks, and changes nothing.
    Read,
    /// Deploys this deployment and looks at it; knows of nothing else.
    Deploy(DeploymentName),
}

impl ApiRole {
    /// The deployment that the bearer is confined to.
    pub fn deployment(&self) -> Option<&DeploymentName> {
        match self {
            Self::Admin | Self::Read => None,
            Self::Deploy(deployment) => Some(deployment),
        }
    }
}

/// What is known of a token. The token itself is not here: only whoever has it can show that the hash is its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// BLAKE3 of its secret.
    pub hash: [u8; 32],
    pub role: ApiRole,
    /// For people: who did what with it.
    pub name: Arc<str>,
    pub created_unix_secs: i64,
    /// From this second on it is refused.
    pub expires_unix_secs: Option<i64>,
}

impl ApiToken {
    pub fn is_expired(&self, now_unix_secs: i64) -> bool {
        self.expires_unix_secs.is_some_and(|end| now_unix_secs >= end)
    }
}
