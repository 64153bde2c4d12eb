//! What a token says.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::NodeId;
use serde::{Deserialize, Serialize};

use super::error::{MalformedToken, TokenError};
use crate::hex::hex_bytes;

/// Cluster ids are short; a longer one is somebody else's mistake.
const CLUSTER_ID_CHARS_MAX: usize = 128;

hex_bytes! {
    /// Chosen at random by the issuer: what State counts uses by.
    TokenNonce, 16
}
hex_bytes! {
    /// SHA-256 of the CA certificate's DER form.
    CaFingerprint, 32
}

/// Unknown claims are refused: they may be restrictions that this version would fail to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenClaims {
    pub cluster_id: String,
    pub issued_unix_secs: i64,
    /// From this second on it is refused.
    pub expires_unix_secs: i64,
    /// How many workers may join with it.
    pub uses: u32,
    pub nonce: TokenNonce,
    pub ca_fingerprint: CaFingerprint,
    /// The labels that a worker with this token may carry, with the values that each may have (none listed:
    /// any value). Absent: any labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_labels: Option<BTreeMap<String, BTreeSet<String>>>,
    /// The node ids that its workers may have, where they are free. Others are given theirs in turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub allowed_node_ids: BTreeSet<u64>,
}

impl TokenClaims {
    /// Whether a token with these claims could be of use to anybody.
    pub(super) fn check(&self) -> Result<(), TokenError> {
        let wrong = |reason| Err(TokenError::CannotIssue { reason });
        if self.cluster_id.is_empty() || self.cluster_id.chars().count() > CLUSTER_ID_CHARS_MAX {
            return wrong("its cluster id is empty or longer than 128 characters");
        }
        if self.uses == 0 {
            return wrong("it would have no uses: give it at least 1");
        }
        if self.expires_unix_secs <= self.issued_unix_secs {
            return wrong("it would expire at once: give it a longer time to live");
        }
        if !self.allowed_node_ids.iter().all(|id| NodeId(*id).is_in_range()) {
            return wrong("an id of a node is a number from 1 to 2^53");
        }
        Ok(())
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, TokenError> {
        serde_json::to_vec(self).map_err(|_| MalformedToken::Claims.into())
    }

    pub(super) fn from_bytes(body: &[u8]) -> Result<Self, TokenError> {
        let claims: Self = serde_json::from_slice(body).map_err(|_| MalformedToken::Claims)?;
        // Errors repeat the cluster id, so that it must not be able to fill a log.
        if claims.cluster_id.chars().count() > CLUSTER_ID_CHARS_MAX {
            return Err(MalformedToken::Claims.into());
        }
        Ok(claims)
    }
}
