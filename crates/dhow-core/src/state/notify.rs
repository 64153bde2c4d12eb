//! Who is told of what goes wrong, and how far that has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Revision;

/// What a target is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// A rollout has failed, and what was before it as well or nothing was.
    RolloutFailed,
    /// A rollout has failed, or was aborted, and is taken back.
    RolloutReverted,
    NodeLost,
    /// A run of a schedule has failed, or was not done by its deadline.
    RunFailed,
    /// A source was refused, or something else that people should look at.
    Alarm,
}

impl Notice {
    pub const ALL: [Self; 5] = [
        Self::RolloutFailed,
        Self::RolloutReverted,
        Self::NodeLost,
        Self::RunFailed,
        Self::Alarm,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::RolloutFailed => "rollout-failed",
            Self::RolloutReverted => "rollout-reverted",
            Self::NodeLost => "node-lost",
            Self::RunFailed => "run-failed",
            Self::Alarm => "alarm",
        }
    }
}

/// Where notices go, and what they are signed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifySettings {
    /// The address for people, without what may be a credential in it.
    pub shown: Arc<str>,
    /// The address and the key that signs what is sent there, sealed like any secret.
    pub sealed: Arc<[u8]>,
    pub on: BTreeSet<Notice>,
}

/// The place of an event: its revision, and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventPlace {
    pub revision: Revision,
    pub part: u32,
}

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyTarget {
    pub settings: NotifySettings,
    /// Everything up to here was told, or given up: whoever leads next goes on behind it.
    pub done: EventPlace,
}
