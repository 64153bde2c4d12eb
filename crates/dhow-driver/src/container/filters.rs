//! System call filters that a runtime has made before. Making one costs crun more than all the rest of a start, and
//! it is the same for all containers with the same capabilities: the first start's result is handed to the others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::oci::Seccomp;

/// By this name crun takes a finished filter in place of the configuration's rules.
const ANNOTATION: &str = "run.oci.seccomp_bpf_data";
/// Where crun leaves the filter that it made, in its own folder of the container.
const FILE: &str = "seccomp.bpf";
/// A kernel takes 4,096 instructions of 8 bytes.
const FILTER_MAX_BYTES: u64 = 32 * 1024;
/// Sets of capabilities on one node that differ: more are made anew each time.
const FILTERS_MAX: usize = 64;

/// The filters of one runtime by the rules that they were made from. Empty for one that takes none.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    made: Arc<Mutex<BTreeMap<String, Arc<str>>>>,
}

/// What is known about the filter of one container.
pub(super) enum Filter {
    /// As an annotation of its configuration.
    Known(&'static str, Arc<str>),
    /// These rules have not been seen: worth a look after the start.
    New(String),
}

impl Filters {
    /// Whether this runtime takes finished filters.
    pub fn suits(runtime: &Path) -> bool {
        runtime.file_name().is_some_and(|name| name == "crun")
    }

    pub fn of(&self, rules: &Seccomp) -> Option<Filter> {
        let rules = serde_json::to_string(rules).ok()?;
        Some(match self.made().get(&rules) {
            Some(made) => Filter::Known(ANNOTATION, Arc::clone(made)),
            None => Filter::New(rules),
        })
    }

    /// Takes what the runtime has made for a container that runs. Blocks. Where it cannot be had, the next start
    /// makes it again.
    pub fn learn(&self, rules: String, container_dir: &Path) {
        let path = container_dir.join(FILE);
        let fits = std::fs::metadata(&path).is_ok_and(|found| (1..=FILTER_MAX_BYTES).contains(&found.len()));
        let Some(bytes) = fits.then(|| std::fs::read(&path).ok()).flatten() else {
            return;
        };
        let mut made = self.made();
        if made.len() < FILTERS_MAX {
            made.insert(rules, STANDARD.encode(bytes).into());
        }
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<String, Arc<str>>> {
        // Changed by single inserts, so a holder that panicked left it whole.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
