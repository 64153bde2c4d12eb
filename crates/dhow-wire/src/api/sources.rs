//! Sources of signed deployment files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body with which the cluster begins to follow a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceAddRequest {
    /// The directory on the servers, as an absolute path.
    #[schema(max_length = 4096)]
    pub dir: String,
    /// Public keys that may sign for it, 64 hexadecimal digits each.
    #[schema(min_items = 1, max_items = 16)]
    pub keys: Vec<String>,
}

/// One source that the cluster follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceStatus {
    pub name: String,
    pub dir: String,
    pub keys: Vec<String>,
    /// From the servers' configuration, not added by a command.
    pub configured: bool,
    /// The set in force.
    pub version: Option<u64>,
    /// The deployments that it has brought.
    pub deployments: Vec<String>,
    /// Why the last look at it brought nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// When the leader looked at it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_unix_secs: Option<i64>,
    /// The commit that brought the set in force, of a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The version that waits for a person to say yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_version: Option<u64>,
    /// Its deployments about which people have the last word at the moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<String>,
}

/// The body with which a person says yes to a set that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceAcceptRequest {
    /// Only this version; whatever waits where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// What a look at a source found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceSynced {
    pub name: String,
    /// The set in force now.
    pub version: u64,
    /// Whether it came with this look.
    pub changed: bool,
}
