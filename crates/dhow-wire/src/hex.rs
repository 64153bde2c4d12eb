//! Bytes as lower-case hexadecimal text, the only form that is read: one value has one text.

use std::fmt::Write;

pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes, where the text is exactly so many of them.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// A new type of so many bytes that prints, parses and serialises as hexadecimal text.
macro_rules! hex_bytes {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// From its hexadecimal text; none where it is anything else.
            pub fn from_text(text: &str) -> Option<Self> {
                crate::hex::decode(text).map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&crate::hex::encode(&self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                Self::from_text(&text).ok_or_else(|| {
                    let meant = concat!(stringify!($bytes), " bytes as lower-case hexadecimal digits");
                    serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &meant)
                })
            }
        }
    };
}

pub(crate) use hex_bytes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_text() {
        assert_eq!(encode(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(decode("001fff"), Some([0, 0x1f, 0xff]));
        for wrong in [
            "001ff", "001fffF", "001FFF", "001ff ", "001fg0", "", "001fff00", "é1fff",
        ] {
            assert_eq!(decode::<3>(wrong), None, "{wrong:?}");
        }
        assert_eq!(decode(""), Some([]));
    }
}
