//! The token that a worker over HTTP shows with each request: its id, its number and the end of its life, signed with a
//! key that the servers share. The token itself is not stored; the state keeps the number of the newest that its worker
//! has shown, and those before it end soon after. A node that was removed is unknown to the state, whatever it shows.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dhow_core::ids::NodeId;

const DAY_SECS: i64 = 24 * 60 * 60;
/// How long a token is good.
const LIFE_SECS: i64 = 7 * DAY_SECS;
/// From this age on the next one is handed over with every answer, so that a worker that was away for almost a week
/// still has a good one.
const RENEW_AFTER_SECS: i64 = DAY_SECS;
/// How long the tokens before one that was shown are still good: a poll that was under way with the earlier one takes a
/// minute, and so does its repetition.
pub const OVERLAP_SECS: i64 = 120;

/// The bytes of a node id, and of a time.
const NUMBER_BYTES: usize = 8;
/// The bytes of a token's number.
const COUNT_BYTES: usize = 4;
/// The longest text that is looked at: 52 bytes in base64 are 70 characters.
const TEXT_CHARS_MAX: usize = 128;

/// What a token says, once it is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownToken {
    pub node: NodeId,
    /// Which of its worker's it is, from 1; 0 for one that was made before they were counted.
    pub number: u32,
    /// None for one that was made before tokens had an end: its worker is handed one of the new kind with each answer.
    pub expires_unix_secs: Option<i64>,
}

impl ShownToken {
    pub fn is_expired(&self, now_unix_secs: i64) -> bool {
        self.expires_unix_secs.is_some_and(|end| now_unix_secs >= end)
    }

    /// Whether its worker should be handed the next one.
    pub fn is_due(&self, now_unix_secs: i64) -> bool {
        let due = |end: i64| now_unix_secs >= end.saturating_sub(LIFE_SECS - RENEW_AFTER_SECS);
        self.number == 0 || self.expires_unix_secs.is_none_or(due)
    }
}

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

    /// The worker's token of this number. Number 0 is the first form, without an end, which is the one that servers of
    /// every version read.
    pub fn issue(&self, cluster_id: &str, node: NodeId, number: u32, now_unix_secs: i64) -> String {
        let token = ShownToken {
            node,
            number,
            expires_unix_secs: (number > 0).then(|| now_unix_secs.saturating_add(LIFE_SECS)),
        };
        let mut bytes = token.node.0.to_be_bytes().to_vec();
        if let Some(expires) = token.expires_unix_secs {
            bytes.extend_from_slice(&expires.to_be_bytes());
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(self.sign(cluster_id, token).as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What a token says; none where it was not made here. Whether its time is over is for the caller to look.
    pub fn read(&self, cluster_id: &str, text: &str) -> Option<ShownToken> {
        if text.len() > TEXT_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
        let (end, rest) = match rest.len() {
            blake3::OUT_LEN => (None, rest),
            _ => {
                let (end, rest) = rest.split_first_chunk::<NUMBER_BYTES>()?;
                (Some(i64::from_be_bytes(*end)), rest)
            }
        };
        let (number, signature) = match rest.len() {
            blake3::OUT_LEN => (0, rest),
            _ => {
                let (number, rest) = rest.split_first_chunk::<COUNT_BYTES>()?;
                // A number of 0 is not written.
                (
                    Some(u32::from_be_bytes(*number)).filter(|number| *number > 0)?,
                    rest,
                )
            }
        };
        let token = ShownToken {
            node: NodeId(u64::from_be_bytes(*id)),
            number,
            expires_unix_secs: end,
        };
        let signature = blake3::Hash::from_slice(signature).ok()?;
        // Hashes are compared in constant time.
        (self.sign(cluster_id, token) == signature).then_some(token)
    }

    fn sign(&self, cluster_id: &str, token: ShownToken) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let node = token.node.0.to_be_bytes();
        match (token.expires_unix_secs, token.number) {
            (None, _) => {
                hasher.update(b"dhow 1 internal token of a worker\n");
                hasher.update(&node);
            }
            (Some(end), 0) => {
                hasher.update(b"dhow 2 internal token of a worker\n");
                hasher.update(&node);
                hasher.update(&end.to_be_bytes());
            }
            (Some(end), number) => {
                hasher.update(b"dhow 3 internal token of a worker\n");
                hasher.update(&node);
                hasher.update(&end.to_be_bytes());
                hasher.update(&number.to_be_bytes());
            }
        }
        hasher.update(cluster_id.as_bytes());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn only_what_was_made_here_for_this_cluster_counts() {
        let tokens = InternalTokens::new([7; 32]);
        let token = tokens.issue("one", NodeId(9), 1, NOW);
        assert_eq!(
            tokens.read("one", &token).map(|shown| shown.node),
            Some(NodeId(9))
        );
        assert_eq!(tokens.read("two", &token), None);
        assert_eq!(InternalTokens::new([8; 32]).read("one", &token), None);
        let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            let changed = URL_SAFE_NO_PAD.encode(&bytes);
            assert_eq!(tokens.read("one", &changed), None, "byte {at}");
            bytes[at] ^= 1;
        }
        for text in ["", "x", "====", &"A".repeat(10_000), &token[..20]] {
            assert_eq!(tokens.read("one", text), None);
        }
    }

    #[test]
    fn a_token_ends_and_is_replaced_long_before() {
        let tokens = InternalTokens::new([7; 32]);
        let shown = tokens
            .read("one", &tokens.issue("one", NodeId(9), 1, NOW))
            .unwrap();
        assert!(!shown.is_due(NOW) && !shown.is_due(NOW + DAY_SECS - 1));
        assert!(shown.is_due(NOW + DAY_SECS) && !shown.is_expired(NOW + LIFE_SECS - 1));
        assert!(shown.is_expired(NOW + LIFE_SECS));
    }

    #[test]
    fn those_of_the_forms_before_are_still_read_and_due() {
        let tokens = InternalTokens::new([7; 32]);
        let first = tokens.issue("one", NodeId(9), 0, NOW);
        let shown = tokens.read("one", &first).unwrap();
        assert_eq!((shown.node, shown.expires_unix_secs), (NodeId(9), None));
        assert!(shown.is_due(0) && !shown.is_expired(i64::MAX));
        let second = ShownToken {
            node: NodeId(9),
            number: 0,
            expires_unix_secs: Some(NOW),
        };
        let mut bytes = NodeId(9).0.to_be_bytes().to_vec();
        bytes.extend_from_slice(&NOW.to_be_bytes());
        bytes.extend_from_slice(tokens.sign("one", second).as_bytes());
        let text = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(tokens.read("one", &text), Some(second));
        assert!(second.is_due(NOW - LIFE_SECS) && second.is_expired(NOW));
    }
}
