//! What is mounted into a replica.

use serde::{Deserialize, Serialize};

use super::units::ByteSize;

/// One thing that is mounted into a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Storage {
    Bind {
        source: String,
        target: String,
        #[serde(default)]
        read_only: bool,
    },
    /// A volume that the node keeps: it binds its replica to that node.
    Named {
        name: String,
        target: String,
        #[serde(default, skip_serializing_if = "is_false")]
        read_only: bool,
    },
    Tmpfs {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<ByteSize>,
    },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Storage {
    /// Where it appears in the replica.
    pub fn target(&self) -> &str {
        match self {
            Self::Bind { target, .. } | Self::Named { target, .. } | Self::Tmpfs { target, .. } => target,
        }
    }
}
