//! Sources of signed deployment files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::manifest::WrittenSource;

/// The body with which the cluster begins to follow a source: one of `dir`, `url` and `git`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceAddRequest {
    /// A directory on the servers, as an absolute path.
    #[schema(max_length = 4096)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The address below which the files are.
    #[schema(max_length = 2048)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The https address of a git repository.
    #[schema(max_length = 2048)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
    /// Its branch or tag; its default branch where none is named.
    #[schema(max_length = 255)]
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The folder of the repository that has the index.
    #[schema(max_length = 255)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Public keys that may sign for it, 64 hexadecimal digits each.
    #[schema(min_items = 1, max_items = 16)]
    pub keys: Vec<String>,
    /// The secret with the authorities that its server is believed by, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
    /// The secret with `USER:PASSWORD` or a token for its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_secret: Option<String>,
    /// The secret that whoever calls its webhook must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_secret: Option<String>,
    /// Sets that were signed longer ago are not taken.
    #[schema(minimum = 600)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_secs: Option<u64>,
}

impl SourceAddRequest {
    pub fn written(&self) -> WrittenSource {
        let Self {
            dir,
            url,
            git,
            reference,
            path,
            keys: _,
            ca_secret,
            login_secret,
            hook_secret,
            max_age_secs,
        } = self.clone();
        WrittenSource {
            dir,
            url,
            git,
            reference,
            path,
            ca_secret,
            login_secret,
            hook_secret,
            max_age_secs,
        }
    }
}

/// One source that the cluster follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceStatus {
    pub name: String,
    /// Where it is: a directory, or an address with what is read there.
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
    /// When a call of its webhook was refused last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_refused_unix_secs: Option<i64>,
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
