//! The token that a worker over HTTP shows with each request: its id, signed with a key that the servers share. Nothing
//! of it is stored; a node that was removed is unknown to the state, whatever it shows.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dhow_core::ids::NodeId;

/// The bytes of a node id before its signature.
const ID_BYTES: usize = 8;
/// The longest text that is looked at: forty bytes in base64 are 54 characters.
const TEXT_CHARS_MAX: usize = 128;

/// Makes and checks internal tokens. It shows none of its key.
#[derive(Clone)]
pub struct InternalTokens {
    key: [u8; 32],
}

impl InternalTokens {
    /// From a key that all servers have, and that is used for nothing else.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    pub fn issue(&self, cluster_id: &str, node: NodeId) -> String {
        let mut bytes = node.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(self.sign(cluster_id, node).as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The node that a token was made for; none where it was not made here.
    pub fn node_of(&self, cluster_id: &str, text: &str) -> Option<NodeId> {
        if text.len() > TEXT_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, signature) = bytes.split_first_chunk::<ID_BYTES>()?;
        let node = NodeId(u64::from_be_bytes(*id));
        let signature = blake3::Hash::from_slice(signature).ok()?;
        // Hashes are compared in constant time.
        (self.sign(cluster_id, node) == signature).then_some(node)
    }

    fn sign(&self, cluster_id: &str, node: NodeId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"dhow 1 internal token of a worker\n");
        hasher.update(&node.0.to_be_bytes());
        hasher.update(cluster_id.as_bytes());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_here_for_this_cluster_counts() {
        let tokens = InternalTokens::new([7; 32]);
        let token = tokens.issue("one", NodeId(9));
        assert_eq!(tokens.node_of("one", &token), Some(NodeId(9)));
        assert_eq!(tokens.node_of("two", &token), None);
        assert_eq!(InternalTokens::new([8; 32]).node_of("one", &token), None);
        let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(
                tokens.node_of("one", &URL_SAFE_NO_PAD.encode(&bytes)),
                None,
                "byte {at}"
            );
            bytes[at] ^= 1;
        }
        for text in ["", "x", "====", &"A".repeat(10_000), &token[..20]] {
            assert_eq!(tokens.node_of("one", text), None);
        }
    }
}
