//! What the tests of the wire types share: goldens, and the peers of other versions.

use std::fmt::Debug;
use std::sync::Arc;

use dhow_core::spec::{ImageSpec, ScaleSpec, ServiceSpec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The same cases each time; many more of them in a long round.
pub fn config() -> ProptestConfig {
    let long = std::env::var_os("DHOW_TEST_LONG").is_some_and(|value| value == "1");
    ProptestConfig {
        cases: if long { 20_000 } else { 200 },
        rng_seed: RngSeed::Fixed(3669),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Keys whose values are maps that people fill, or documents with rules of their own.
const NOT_MESSAGES: &[&str] = &["labels", "specs", "spec", "role_specs", "next"];

/// Adds a field that this version does not know to every object of a message.
fn with_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields.iter_mut() {
                if !NOT_MESSAGES.contains(&key.as_str()) {
                    with_unknown_fields(inner);
                }
            }
            fields.insert("a_later_version".into(), json!({ "says": ["more"] }));
        }
        Value::Array(items) => items.iter_mut().for_each(with_unknown_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The value reads back from what it writes, and from what a newer peer would write.
pub fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value, "{text}");
    let mut newer: Value = serde_json::from_str(&text).unwrap();
    with_unknown_fields(&mut newer);
    assert_eq!(
        serde_json::from_str::<T>(&newer.to_string()).unwrap(),
        *value,
        "{newer}"
    );
}

/// The value is written just so, byte for byte, and read back.
pub fn check_golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, golden: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), golden);
    check_round_trip(value);
}

/// An old peer's text means this value.
pub fn check_reads<T: DeserializeOwned + PartialEq + Debug>(text: &str, value: &T) {
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), *value);
}

/// The text lacks a field that is always there.
pub fn check_refused<T: DeserializeOwned + Debug>(text: &str) {
    serde_json::from_str::<T>(text).unwrap_err();
}

pub fn spec(image: &str) -> ServiceSpec {
    ServiceSpec {
        image: Some(ImageSpec::named(image)),
        scale: ScaleSpec::Fixed { replicas: 2 },
        ..ServiceSpec::default()
    }
}

/// Any text at all: names are checked where they are used.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", any::<String>()]
}

pub fn some_spec() -> impl Strategy<Value = ServiceSpec> {
    prop_oneof![
        Just(ServiceSpec::default()),
        "[a-z]{1,9}:[0-9]".prop_map(|image| spec(&image))
    ]
}

pub fn some_specs() -> impl Strategy<Value = std::collections::BTreeMap<u32, Arc<ServiceSpec>>> {
    proptest::collection::btree_map(any::<u32>(), some_spec().prop_map(Arc::new), 0..3)
}
