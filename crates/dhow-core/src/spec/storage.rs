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
        /// What the image has at the target is not copied into a new volume.
        #[serde(default, skip_serializing_if = "is_false")]
        nocopy: bool,
        /// How much may be in it, which the node's file system holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<ByteSize>,
    },
    Tmpfs {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<ByteSize>,
    },
    /// A folder on the node's disk that comes and goes with its replica.
    Ephemeral {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<ByteSize>,
    },
}

/// What a node can do for volumes, as it says itself; each can what those before it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeSupport {
    /// Its version knows volumes by their names alone.
    #[default]
    Named,
    /// It makes ephemeral volumes.
    Ephemeral,
    /// It also holds volumes to a size.
    Sized,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Storage {
    /// Where it appears in the replica.
    pub fn target(&self) -> &str {
        match self {
            Self::Bind { target, .. }
            | Self::Named { target, .. }
            | Self::Tmpfs { target, .. }
            | Self::Ephemeral { target, .. } => target,
        }
    }

    /// The volume that it mounts, where it is a named one.
    pub fn volume(&self) -> Option<&str> {
        match self {
            Self::Named { name, .. } => Some(name),
            Self::Bind { .. } | Self::Tmpfs { .. } | Self::Ephemeral { .. } => None,
        }
    }

    /// What a node must be able to do for it.
    pub fn needs(&self) -> VolumeSupport {
        match self {
            Self::Named { size: Some(_), .. } | Self::Ephemeral { size: Some(_), .. } => VolumeSupport::Sized,
            Self::Ephemeral { size: None, .. } => VolumeSupport::Ephemeral,
            Self::Named { size: None, .. } | Self::Bind { .. } | Self::Tmpfs { .. } => VolumeSupport::Named,
        }
    }
}
