//! Getting ready what a start needs.

use std::sync::Arc;

use dhow_core::spec::ServiceSpec;

/// What will be started: the spec as a replica of one role runs it.
#[derive(Clone, Debug)]
pub struct Preparation {
    pub spec: Arc<ServiceSpec>,
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The image that the name meant, where there is one.
    pub image_digest: Option<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Resolving,
    Pulling {
        done_bytes: u64,
        total_bytes: Option<u64>,
    },
    Unpacking {
        done_layers: u32,
        total_layers: u32,
    },
    Ready,
}

/// Hears of progress. Called often and from any thread: it must not block.
pub trait ProgressSink: Send + Sync {
    fn report(&self, progress: Progress);
}

/// For who does not care.
impl ProgressSink for () {
    fn report(&self, _: Progress) {}
}

impl<F: Fn(Progress) + Send + Sync> ProgressSink for F {
    fn report(&self, progress: Progress) {
        self(progress);
    }
}
