//! The JSON of specs, made once where many nodes are told the same: they share its bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dhow_core::spec::ServiceSpec;

use super::assignment::SpecReader;
use super::malformed::Malformed;

/// Specs that are kept, and the longest one that is: together at most 16 MiB.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The JSON of the specs that a server's assignments name, each made once. The gateway keeps one for all its sessions.
/// Specs are told apart by their address in memory, which stays theirs while they are kept here.
#[derive(Debug, Default)]
pub struct SpecTexts {
    kept: Mutex<BTreeMap<usize, (Arc<ServiceSpec>, Bytes)>>,
}

impl SpecTexts {
    pub(super) fn of(&self, spec: &Arc<ServiceSpec>, reader: SpecReader) -> Result<Bytes, Malformed> {
        if reader == SpecReader::BeforeCallers && spec.has_callers() {
            // While a cluster is upgraded; not worth keeping.
            return written(&spec.without_callers());
        }
        let place = Arc::as_ptr(spec).addr();
        // A text that was put in is whole, whoever panicked since.
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = kept().get(&place) {
            return Ok(text.clone());
        }
        let text = written(spec)?;
        if text.len() <= KEPT_BYTES_MAX {
            let mut kept = kept();
            if kept.len() >= KEPT_MAX {
                // What nobody else has is not told again.
                kept.retain(|_, (spec, _)| Arc::strong_count(spec) > 1);
            }
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(place, (Arc::clone(spec), text.clone()));
        }
        Ok(text)
    }
}

fn written(spec: &ServiceSpec) -> Result<Bytes, Malformed> {
    let told = spec.without_job_rules();
    let text = serde_json::to_vec(told.as_ref().unwrap_or(spec))
        .map_err(|_| Malformed::Unwritable { what: "spec_json" })?;
    Ok(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURRENT: SpecReader = SpecReader::Current;

    #[test]
    fn an_older_agent_reads_what_it_knows() {
        let json = r#"{"endpoints":[{"name":"pg","protocol":"tcp","port":5432,"expose":"cluster","allow":["web"]}]}"#;
        let spec: Arc<ServiceSpec> = Arc::new(serde_json::from_str(json).unwrap());
        let texts = SpecTexts::default();
        let told = texts.of(&spec, SpecReader::BeforeCallers).unwrap();
        let told = String::from_utf8(told.to_vec()).unwrap();
        assert!(told.contains(r#""expose":"internal""#), "{told}");
        assert!(!told.contains("allow"), "{told}");
        assert_eq!(
            texts.of(&spec, CURRENT).unwrap(),
            serde_json::to_vec(&spec).unwrap()
        );
    }

    fn spec(name: &str) -> Arc<ServiceSpec> {
        Arc::new(ServiceSpec {
            env: [("NAME".to_owned(), name.to_owned())].into_iter().collect(),
            ..ServiceSpec::default()
        })
    }

    #[test]
    fn one_spec_is_written_once_and_each_gets_its_own_text() {
        let texts = SpecTexts::default();
        let web = spec("web");
        let first = texts.of(&web, CURRENT).unwrap();
        assert_eq!(
            texts.of(&web, CURRENT).unwrap().as_ptr(),
            first.as_ptr(),
            "the same bytes"
        );
        for n in 0..3 * KEPT_MAX {
            // Dropped at once, so that its place in memory is taken by others.
            let other = spec(&n.to_string());
            let text = texts.of(&other, CURRENT).unwrap();
            assert_eq!(text, serde_json::to_vec(&other).unwrap());
            assert!(texts.kept.lock().unwrap().len() <= KEPT_MAX);
        }
        assert_eq!(texts.of(&web, CURRENT).unwrap(), first);
        let alive: Vec<_> = (0..=KEPT_MAX).map(|n| spec(&n.to_string())).collect();
        for spec in &alive {
            assert_eq!(
                texts.of(spec, CURRENT).unwrap(),
                serde_json::to_vec(spec).unwrap()
            );
        }
        assert!(texts.kept.lock().unwrap().len() <= KEPT_MAX);
    }

    #[test]
    fn a_long_one_is_not_kept() {
        let texts = SpecTexts::default();
        let long = spec(&"x".repeat(KEPT_BYTES_MAX));
        assert_eq!(
            texts.of(&long, CURRENT).unwrap(),
            serde_json::to_vec(&long).unwrap()
        );
        assert!(texts.kept.lock().unwrap().is_empty());
    }
}
