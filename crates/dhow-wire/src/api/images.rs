//! Images of the node that answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One image of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageInfo {
    pub name: String,
    pub digest: String,
    pub size_bytes: u64,
    /// When it was pulled or imported, or a replica last began with it.
    #[serde(default, alias = "created_unix_secs", skip_serializing_if = "Option::is_none")]
    pub last_used_unix_secs: Option<i64>,
    /// Whether a replica uses it: such an image is neither removed nor pruned.
    pub in_use: bool,
}

/// What was pulled or imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageName {
    pub name: String,
    pub digest: String,
    /// The other names that an archive gave it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
}

/// The body with which an image is pulled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImagePullRequest {
    #[schema(pattern = "^[!-~]+$", max_length = 4096)]
    pub image: String,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    Resolving,
    Pulling,
    Unpacking,
    Ready,
}

/// How far a pull has come: the `progress` events of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullProgress {
    pub state: PullState,
    pub done_bytes: u64,
    /// Absent until the manifest has been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

/// The body with which an image is read from the node's disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageImportRequest {
    /// An absolute path on the node: a layout's directory or an archive, and `:tag` behind it where it holds several
    /// images.
    #[schema(pattern = r"^/[^\x00]*$", max_length = 1024)]
    pub path: String,
    /// What it is to be called; what the archive says where none is given.
    #[schema(pattern = "^[!-~]+$", max_length = 4096)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What removing or pruning did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImagesRemoved {
    /// The digests of the images that are gone.
    pub removed: Vec<String>,
    pub freed_bytes: u64,
    /// Names that are gone although their image stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untagged: Vec<String>,
    /// The names that such an image still has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_as: Vec<String>,
}
