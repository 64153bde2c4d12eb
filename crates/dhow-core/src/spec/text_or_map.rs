//! Fields that take a short text or a full map (`image: nginx` or `image: { name: nginx }`).

/// Deserialises a type from its short text or, written out, through a twin that derives `Deserialize`.
macro_rules! text_or_map {
    ($name:ident, $twin:ident, $expecting:literal, $from_text:expr) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> serde::de::Visitor<'de> for Reader {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        let from: fn(&str) -> Option<$name> = $from_text;
                        from(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        $twin::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Into::into)
                    }
                }
                from.deserialize_any(Reader)
            }
        }
    };
}

pub(super) use text_or_map;
