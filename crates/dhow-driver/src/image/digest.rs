//! A SHA-256 digest, the name of everything in the store. Used by every other part of the image side; never
//! made from bytes that were not hashed or text that was not checked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const BYTES: usize = 32;

/// A digest as registries write it: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; BYTES]);

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("the digest `{text}` does not start with `sha256:`, the one algorithm that is supported")]
    Algorithm { text: String },
    #[error("the digest `{text}` needs exactly 64 hexadecimal digits in lower case after `sha256:`")]
    Digits { text: String },
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = DigestHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 64 digits without the algorithm, as file names use them.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in self.0 {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The first twelve digits, for messages and tables.
    pub fn short(&self) -> String {
        let mut hex = self.hex();
        hex.truncate(12);
        hex
    }

    /// Reads the 64 digits that [`Digest::hex`] wrote.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let Some(hex) = text.strip_prefix(PREFIX) else {
            return Err(DigestError::Algorithm {
                text: text.to_owned(),
            });
        };
        Self::from_hex(hex).ok_or_else(|| DigestError::Digits {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Computes a digest piece by piece and counts the bytes.
#[derive(Clone, Default)]
pub(crate) struct DigestHasher {
    hasher: Sha256,
    size_bytes: u64,
}

impl DigestHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size_bytes = self.size_bytes.saturating_add(bytes.len() as u64);
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn finish(self) -> Digest {
        Digest(self.hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_round_trips() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b""));
        assert_eq!(Digest::from_hex(&Digest::of(b"a").hex()), Some(Digest::of(b"a")));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            "sha256:",
            "sha256:00",
            "md5:00",
            &format!("sha256:{}", "G".repeat(64)),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        let upper = Digest::of(b"").to_string().to_uppercase();
        assert!(upper.parse::<Digest>().is_err());
    }
}
