//! The token with which a person or a program calls the API: one word that also says which cluster to trust.
//!
//! The server makes it and keeps only the hash of its secret; the client carries it and pins the CA that it names.
//! It is a secret: nothing here prints it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hex;
use crate::token::CaFingerprint;

/// Tells what the word is, and how to read the rest.
const PREFIX: &str = "dhow1";
/// Ids are drawn by the server; half of this is already enough that none comes twice.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
/// The longest text that is looked at: the prefix, 16 digits, twice 43 characters and three dots.
pub const ACCESS_TOKEN_CHARS_MAX: usize = 128;

/// A token of the API: its id, its secret and, where there is one, the CA of the cluster that it is for. `dhow token
/// create` prints it once; clients send it with every request, and servers compare the hash of its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    id: String,
    secret: [u8; SECRET_BYTES],
    fingerprint: Option<CaFingerprint>,
}

/// Why a text is no token. It never holds any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is malformed: use the whole word that `dhow token create` printed")]
pub struct MalformedAccessToken;

impl AccessToken {
    /// Of random bytes. Without a CA, as on a single node without a cluster key, it names none.
    pub fn new(id: [u8; ID_BYTES], secret: [u8; SECRET_BYTES], fingerprint: Option<CaFingerprint>) -> Self {
        Self {
            id: hex::encode(&id),
            secret,
            fingerprint,
        }
    }

    /// Reads the word; blanks and a line end around it are those of where it was kept.
    pub fn parse(text: &str) -> Result<Self, MalformedAccessToken> {
        let text = text.trim_ascii();
        if text.len() > ACCESS_TOKEN_CHARS_MAX {
            return Err(MalformedAccessToken);
        }
        let mut parts = text.split('.');
        let parts = (
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
        );
        let (Some(PREFIX), Some(id), Some(secret), fingerprint, None) = parts else {
            return Err(MalformedAccessToken);
        };
        hex::decode::<ID_BYTES>(id).ok_or(MalformedAccessToken)?;
        let fingerprint = match fingerprint {
            Some(text) => Some(CaFingerprint(bytes(text)?)),
            None => None,
        };
        Ok(Self {
            id: id.to_owned(),
            secret: bytes(secret)?,
            fingerprint,
        })
    }

    /// What the cluster knows it by; no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The CA whose servers may be shown the token, and nobody else.
    pub fn fingerprint(&self) -> Option<CaFingerprint> {
        self.fingerprint
    }

    /// What the cluster keeps of it.
    pub fn secret_hash(&self) -> [u8; 32] {
        *blake3::hash(&self.secret).as_bytes()
    }

    /// Whether this is the token whose hash is kept. Takes as long for every answer.
    pub fn is_of(&self, secret_hash: &[u8; 32]) -> bool {
        blake3::hash(&self.secret) == blake3::Hash::from_bytes(*secret_hash)
    }

    /// The word. Whoever has it may do what its role may: it goes to its owner and nowhere else.
    pub fn reveal(&self) -> String {
        let secret = URL_SAFE_NO_PAD.encode(self.secret);
        match self.fingerprint {
            Some(fingerprint) => {
                let fingerprint = URL_SAFE_NO_PAD.encode(fingerprint.as_bytes());
                format!("{PREFIX}.{}.{secret}.{fingerprint}", self.id)
            }
            None => format!("{PREFIX}.{}.{secret}", self.id),
        }
    }
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], MalformedAccessToken> {
    let decoded = URL_SAFE_NO_PAD.decode(text).map_err(|_| MalformedAccessToken)?;
    decoded.try_into().map_err(|_| MalformedAccessToken)
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessToken({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(fingerprint: Option<CaFingerprint>) -> AccessToken {
        AccessToken::new([0xab; 8], [7; 32], fingerprint)
    }

    /// Tokens are in the field: a change of this needs another prefix.
    #[test]
    fn the_form_is_fixed() {
        let secret = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        let short = format!("dhow1.abababababababab.{secret}");
        assert_eq!(token(None).reveal(), short);
        let named = token(Some(CaFingerprint([9; 32])));
        assert_eq!(named.reveal(), format!("{short}.{}CQk", "CQkJ".repeat(10)));
        for token in [token(None), named] {
            let word = token.reveal();
            assert!(word.len() <= ACCESS_TOKEN_CHARS_MAX);
            assert_eq!(AccessToken::parse(&format!(" {word}\n")), Ok(token));
        }
    }

    #[test]
    fn what_is_none_is_refused_without_being_shown() {
        let word = token(Some(CaFingerprint([9; 32]))).reveal();
        let mut wrong = vec![
            String::new(),
            "dhow1".into(),
            "dhow1..".into(),
            word.replace("dhow1", "dhow2"),
            word.replace("ab", "AB"),
            format!("{word}."),
            format!("{word}.x"),
            word.replace('.', ""),
            "x".repeat(10_000),
        ];
        wrong.extend((0..word.len()).map(|end| word[..end].to_owned()));
        for text in wrong {
            // The word up to its fingerprint is a token of its own.
            if text == token(None).reveal() {
                continue;
            }
            let refused = AccessToken::parse(&text);
            assert_eq!(refused, Err(MalformedAccessToken), "{text}");
        }
        assert_eq!(format!("{:?}", token(None)), "AccessToken(abababababababab)");
    }

    #[test]
    fn only_its_own_secret_is_its_own() {
        let hash = token(None).secret_hash();
        assert!(token(Some(CaFingerprint([1; 32]))).is_of(&hash));
        for bit in 0..256 {
            let mut secret = [7; 32];
            secret[bit / 8] ^= 1 << (bit % 8);
            assert!(!AccessToken::new([0xab; 8], secret, None).is_of(&hash));
        }
        assert_ne!(hash, [7; 32]);
    }
}
