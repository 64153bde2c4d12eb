//! Ed25519 with a domain: what was signed for one purpose is never valid for another.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

/// What a signature is for. The text is part of what is signed, ended by a zero byte that no domain holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Domain {
    WorkerBootstrapToken,
    ManifestIndex,
    NodeTicket,
}

pub(crate) const SIGNATURE_BYTES: usize = ed25519_dalek::SIGNATURE_LENGTH;

impl Domain {
    fn text(self) -> &'static str {
        match self {
            Self::WorkerBootstrapToken => "dhow worker bootstrap token v1",
            Self::ManifestIndex => "dhow manifest index v1",
            Self::NodeTicket => "dhow node ticket v1",
        }
    }

    fn message(self, parts: &[&[u8]]) -> Vec<u8> {
        let mut message = self.text().as_bytes().to_vec();
        message.push(0);
        for part in parts {
            message.extend_from_slice(part);
        }
        message
    }

    pub fn sign(self, key: &SigningKey, parts: &[&[u8]]) -> [u8; SIGNATURE_BYTES] {
        key.sign(&self.message(parts)).to_bytes()
    }

    /// Strict: weak keys and other encodings of a signature are refused.
    pub fn verifies(self, key: &VerifyingKey, parts: &[&[u8]], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let signature = Signature::from_bytes(signature);
        key.verify_strict(&self.message(parts), &signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_purpose_only() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let signature = Domain::ManifestIndex.sign(&key, &[b"x"]);
        let public = key.verifying_key();
        assert!(Domain::ManifestIndex.verifies(&public, &[b"x"], &signature));
        assert!(!Domain::WorkerBootstrapToken.verifies(&public, &[b"x"], &signature));
        assert!(!Domain::ManifestIndex.verifies(&public, &[b"y"], &signature));
        // The neutral point as key would verify a zero signature under the plain rules.
        let weak = VerifyingKey::from_bytes(&{
            let mut bytes = [0; 32];
            bytes[0] = 1;
            bytes
        })
        .unwrap();
        let mut zero = [0; SIGNATURE_BYTES];
        zero[0] = 1;
        assert!(!Domain::ManifestIndex.verifies(&weak, &[b"x"], &zero));
    }
}
