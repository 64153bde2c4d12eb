//! What the persistent maps lack.

use std::fmt;
use std::marker::PhantomData;

use imbl::OrdMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Keeps the entries for which `keep` holds.
pub(crate) fn retain<K: Ord + Clone, V: Clone>(map: &mut OrdMap<K, V>, keep: impl Fn(&K, &V) -> bool) {
    let gone: Vec<K> = map
        .iter()
        .filter(|(key, value)| !keep(key, value))
        .map(|(key, _)| key.clone())
        .collect();
    for key in gone {
        map.remove(&key);
    }
}

/// Reads a map without believing the length that stands before it: the map's own reader makes room for as many
/// entries as a damaged snapshot claims to have, and ends the process when there is no such room.
pub(crate) fn read<'de, K, V, D>(from: D) -> Result<OrdMap<K, V>, D::Error>
where
    K: Ord + Clone + Deserialize<'de>,
    V: Clone + Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Entries<K, V>(PhantomData<(K, V)>);

    impl<'de, K, V> Visitor<'de> for Entries<K, V>
    where
        K: Ord + Clone + Deserialize<'de>,
        V: Clone + Deserialize<'de>,
    {
        type Value = OrdMap<K, V>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = OrdMap::new();
            while let Some((key, value)) = entries.next_entry()? {
                map.insert(key, value);
            }
            Ok(map)
        }
    }

    from.deserialize_map(Entries(PhantomData))
}
