//! What the persistent maps lack.

use imbl::OrdMap;

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
