//! How far a pull has come. Written by the pull, read by whoever shows it; slow readers see the newest value.

use tokio::sync::watch;

/// What a pull is doing at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPhase {
    /// Asking what the reference means and reading the manifest; the total is not known yet.
    #[default]
    Resolving,
    /// Fetching and unpacking layers.
    Transferring,
    /// The image is complete in the store.
    Complete,
}

/// A snapshot of one pull. Bytes are those of the layers as transferred, compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullProgress {
    pub phase: PullPhase,
    /// Layers that were already in the store count as done.
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub layers_done: u32,
    pub layers_total: u32,
}

/// The writing end, shared by the tasks of one pull.
#[derive(Clone, Debug)]
pub(crate) struct ProgressSender(watch::Sender<PullProgress>);

impl ProgressSender {
    pub fn new() -> Self {
        Self(watch::Sender::new(PullProgress::default()))
    }

    pub fn subscribe(&self) -> watch::Receiver<PullProgress> {
        self.0.subscribe()
    }

    pub fn start(&self, layers_total: usize, total_bytes: u64) {
        self.0.send_modify(|progress| {
            progress.phase = PullPhase::Transferring;
            progress.layers_total = u32::try_from(layers_total).unwrap_or(u32::MAX);
            progress.total_bytes = total_bytes;
        });
    }

    pub fn add_bytes(&self, count: u64) {
        self.0
            .send_modify(|progress| progress.done_bytes = progress.done_bytes.saturating_add(count));
    }

    /// Takes back bytes that have to be fetched again.
    pub fn take_back_bytes(&self, count: u64) {
        self.0
            .send_modify(|progress| progress.done_bytes = progress.done_bytes.saturating_sub(count));
    }

    pub fn layer_done(&self) {
        self.0
            .send_modify(|progress| progress.layers_done = progress.layers_done.saturating_add(1));
    }

    pub fn complete(&self) {
        self.0
            .send_modify(|progress| progress.phase = PullPhase::Complete);
    }
}
