//! Tokens of the API and of workers. The token itself is in the answer to its making, and in no other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest name of a token.
pub const TOKEN_NAME_CHARS_MAX: usize = 63;

/// What the bearer of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    Admin,
    /// Only looks: `GET`.
    Read,
    /// Deploys one deployment and looks at it.
    Deploy,
}

/// Asks for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreateRequest {
    pub role: TokenRole,
    /// The deployment that a token of the role `deploy` is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// Stands as the author of what is done with it: letters, digits and `._@-`. The role, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length = 63)]
    pub name: Option<String>,
    /// It is good for so long; for ever where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_u64)]
    pub ttl_secs: Option<u64>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// To revoke it by.
    pub id: String,
    /// The whole token, for `DHOW_TOKEN`. It is never shown again.
    pub token: String,
}

impl std::fmt::Debug for TokenCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenCreated({})", self.id)
    }
}

/// Asks for a token with which workers join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerTokenCreateRequest {
    /// It is good for so long.
    #[serde(default = "WorkerTokenCreateRequest::default_ttl_secs")]
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub ttl_secs: u64,
    /// How many workers may join with it: as many as the cluster may have nodes at most.
    #[serde(default = "WorkerTokenCreateRequest::default_uses")]
    #[schema(minimum = 1, maximum = 40_000)]
    pub uses: u32,
    /// The labels that its workers may carry, with the values that each may have (none: any value). Left out: no
    /// labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_labels: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Its workers may carry any labels but `ingress`, which has to be named: it decides who is given keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_label: bool,
    /// The node ids that its workers may have, where they are free. Others are given theirs in turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub node_ids: BTreeSet<u64>,
}

impl WorkerTokenCreateRequest {
    fn default_ttl_secs() -> u64 {
        3_600
    }

    fn default_uses() -> u32 {
        1
    }
}

/// A new CA of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerCaRotated {
    pub state_revision: u64,
    /// The one that makes certificates from now on.
    pub generation: u32,
    /// Until then the one before it is believed.
    pub believed_until_unix_secs: i64,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    Admin,
    Read,
    /// One deployment is deployed with it.
    Deploy,
    /// A worker joins with it.
    Worker,
}

/// What is known of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    pub id: String,
    pub name: String,
    pub role: TokenKind,
    /// The one that it is for; left out where it is for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// Left out for a worker's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix_secs: Option<i64>,
    /// None: until it is revoked.
    pub expires_unix_secs: Option<i64>,
    pub expired: bool,
    /// How many workers may join with it, and how many more may; left out for tokens of the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// A worker's token that was revoked is still listed, with the uses that it had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}
