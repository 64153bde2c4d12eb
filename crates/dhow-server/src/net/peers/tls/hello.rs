//! The first frame of each side.

use serde::{Deserialize, Serialize};

/// Before everything else, so that whoever speaks another language is known at once.
const MAGIC: &[u8; 4] = b"dhow";

/// The form of the frames that follow.
const PROTOCOL: u8 = 1;

/// Who calls whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub from: u64,
    pub to: u64,
    /// Unknown to a server that has not joined yet.
    pub cluster_id: Option<String>,
    /// Drawn at each start of a process: another one is another process.
    pub incarnation: u64,
}

/// What is said to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    Welcome {
        cluster_id: Option<String>,
        incarnation: u64,
    },
    Refused(Refusal),
}

/// Why a caller that was understood is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it belongs to another cluster")]
    Cluster,
    #[error("it is another node than the one that is meant")]
    Node,
    #[error("its certificate is another node's than it says to be")]
    Identity,
}

/// Why a first frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unread {
    #[error("what came is not of Dhow's servers")]
    Strange,
    #[error(
        "it speaks version {found} of the servers' protocol, this one speaks {PROTOCOL}; run the same version on both"
    )]
    Protocol { found: u8 },
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.push(PROTOCOL);
    // Numbers and texts always have a form; an empty frame would be refused by the other side.
    postcard::to_extend(value, head).unwrap_or_default()
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Unread> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Unread::Strange)?;
    let (protocol, body) = rest.split_first().ok_or(Unread::Strange)?;
    if *protocol != PROTOCOL {
        return Err(Unread::Protocol { found: *protocol });
    }
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Unread::Strange),
    }
}

/// Two servers that both know their cluster must mean the same.
pub(super) fn is_same_cluster(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    }
}
