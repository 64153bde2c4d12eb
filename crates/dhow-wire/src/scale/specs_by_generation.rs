//! `{generation: spec}` in JSON, whose keys are text. Inside a tagged enum serde hands keys over as they were
//! written, so that numbers have to be read from the text here.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::spec::ServiceSpec;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

type Specs = BTreeMap<u32, Arc<ServiceSpec>>;

pub fn serialize<S: Serializer>(specs: &Specs, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(
        specs
            .iter()
            .map(|(generation, spec)| (generation.to_string(), spec)),
    )
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Specs, D::Error> {
    let by_text = BTreeMap::<String, Arc<ServiceSpec>>::deserialize(from)?;
    let mut specs = Specs::new();
    for (text, spec) in by_text {
        let generation: u32 = text.parse().map_err(|_| {
            D::Error::custom(format_args!(
                "a key of `specs` is a generation, a number, not {text:?}"
            ))
        })?;
        if specs.insert(generation, spec).is_some() {
            return Err(D::Error::custom(format_args!(
                "`specs` has generation {generation} twice"
            )));
        }
    }
    Ok(specs)
}
