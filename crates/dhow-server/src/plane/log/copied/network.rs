//! How peers reach each other. Over HTTP in a daemon; inside the process in tests, where it can be cut.

use futures_util::future::BoxFuture;

use super::message::{Claim, ClaimAnswer, Copies, CopyAnswer, PeerBeat, Whole};

/// A peer did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Silent(pub String);

type Answer<'a, T> = BoxFuture<'a, Result<T, Silent>>;

/// How one peer of a static cluster asks the others. A daemon asks over HTTP, tests inside the process. A call may be
/// dropped at any time; each caller sets its own deadline.
pub trait CopyNetwork: Send + Sync + 'static {
    fn beat(&self, peer: u64) -> Answer<'_, PeerBeat>;
    fn claim(&self, peer: u64, claim: Claim) -> Answer<'_, ClaimAnswer>;
    fn copy(&self, peer: u64, copies: Copies) -> Answer<'_, CopyAnswer>;
    fn put_whole(&self, peer: u64, whole: Whole) -> Answer<'_, CopyAnswer>;
    /// Everything that the peer has.
    fn whole(&self, peer: u64) -> Answer<'_, Whole>;
    /// Tells the peer that this one is about to end.
    fn leave(&self, peer: u64, node: u64) -> Answer<'_, ()>;
}
