//! A token that has been proven. Only `WorkerBootstrapToken::verify` makes one.

use std::collections::BTreeMap;

use dhow_core::directory::INGRESS_LABEL;
use dhow_core::ids::NodeId;

use super::claims::{TokenClaims, TokenNonce};
use super::error::TokenError;

/// A worker's token whose signature and times are proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    pub(super) claims: TokenClaims,
}

impl VerifiedToken {
    pub(super) fn new(claims: TokenClaims) -> Self {
        Self { claims }
    }

    /// What State counts uses by.
    pub fn nonce(&self) -> TokenNonce {
        self.claims.nonce
    }

    /// The ids that a worker with this token may have, beside the next one in turn: the one that it wishes for where the
    /// token allows that, and without a wish any that the token names.
    pub fn node_ids(&self, wish: Option<NodeId>) -> impl Iterator<Item = NodeId> + '_ {
        let allowed = self.claims.allowed_node_ids.iter().copied().map(NodeId);
        allowed.filter(move |id| wish.is_none_or(|wish| wish == *id))
    }

    /// Whether a worker with this token may carry these labels. The one by which nodes are given the keys of public
    /// endpoints has to be named: who may have keys is said by whoever makes the token, and not by whoever holds it.
    pub fn check_labels(&self, labels: &BTreeMap<String, String>) -> Result<(), TokenError> {
        let is_allowed = |key: &String, value: &String| match &self.claims.allowed_labels {
            None => key != INGRESS_LABEL,
            Some(allowed) => allowed
                .get(key)
                .is_some_and(|values| values.is_empty() || values.contains(value)),
        };
        match labels.iter().find(|(key, value)| !is_allowed(key, value)) {
            None => Ok(()),
            Some((key, value)) => Err(TokenError::LabelNotAllowed {
                key: key.clone(),
                value: value.clone(),
            }),
        }
    }
}
