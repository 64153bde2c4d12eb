//! Specs inside the log and in snapshots are kept as their JSON text: the form that the contract fixes and
//! that older and newer versions read alike, inside records that are otherwise positional.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        return value.as_ref().serialize(to);
    }
    let text = serde_json::to_string(value.as_ref()).map_err(serde::ser::Error::custom)?;
    to.serialize_str(&text)
}

pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Arc<T>, D::Error> {
    if from.is_human_readable() {
        return T::deserialize(from).map(Arc::new);
    }
    let text = String::deserialize(from)?;
    serde_json::from_str(&text)
        .map(Arc::new)
        .map_err(serde::de::Error::custom)
}
