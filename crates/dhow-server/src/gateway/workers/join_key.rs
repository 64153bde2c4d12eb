//! What a worker that joins is known by, should it have to ask again because the answer was lost.

use dhow_core::ids::NodeId;
use dhow_core::state::{NodeInfo, State};
use rcgen::{CertificateSigningRequestParams, PublicKeyData};

use super::join_error::JoinError;
use super::tier::CertificateError;

/// The longest request for a certificate: one with a large key is below 3 KiB.
const CSR_BYTES_MAX: usize = 16 * 1024;

/// What State knows a key by. The request must be signed with its own key: nobody asks for another's.
pub(super) fn of_csr(csr_pem: &str) -> Result<String, JoinError> {
    let wrong = |why: &str| JoinError::Csr(CertificateError(why.to_owned()));
    if csr_pem.len() > CSR_BYTES_MAX {
        return Err(wrong("it is longer than any request for a certificate"));
    }
    let request = CertificateSigningRequestParams::from_pem(csr_pem);
    let request = request.map_err(|error| wrong(&error.to_string()))?;
    let hash = blake3::hash(&request.public_key.subject_public_key_info());
    Ok(hash.to_hex().to_string())
}

/// What a client without a key is known by: the name that it made up for itself.
pub(super) fn of_client(nonce: &str, client_id: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"dhow 1 client that joins\n");
    hasher.update(nonce.as_bytes());
    hasher.update(client_id.as_bytes());
    format!("client-{}", hasher.finalize().to_hex())
}

/// What a client without a key and without a name is known by: its token and all that it says of itself. The same again
/// is the same worker for as long as the worker that came of it has not been heard, because then its answer may have been
/// lost; once it was, whoever says the same is another one, and counts as such.
pub(super) fn of_plain(
    state: &State,
    nonce: &str,
    info: &NodeInfo,
    wish: Option<NodeId>,
    is_heard: impl Fn(NodeId) -> bool,
) -> String {
    let token = state.tokens.get(nonce);
    // One more than there can be uses: the last one is free, or the token is used up.
    let tries = token.map_or(0, |token| token.uses_allowed);
    let mut key = plain(nonce, info, wish, 0);
    for number in 1..=tries {
        let known = token.and_then(|token| token.uses.get(key.as_str()));
        let is_other = |node: &NodeId| state.node(*node).is_none() || is_heard(*node);
        if !known.is_some_and(is_other) {
            break;
        }
        key = plain(nonce, info, wish, number);
    }
    key
}

fn plain(nonce: &str, info: &NodeInfo, wish: Option<NodeId>, number: u32) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"dhow 1 plain worker that joins\n");
    // Texts and numbers can always be written.
    let said = serde_json::to_vec(&(nonce, info, wish, number)).unwrap_or_default();
    hasher.update(&said);
    format!("plain-{}", hasher.finalize().to_hex())
}
