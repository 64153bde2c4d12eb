//! Why a peer could not take, make or read a copy.

use std::sync::Arc;

use crate::plane::log::RecoverError;
use crate::plane::log::store::StoreError;

/// Why a call on a copied log failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error("the state cannot be made from the log: {0}")]
    Recover(Arc<RecoverError>),
    #[error("a copy of the state cannot be read or written: {0}")]
    State(String),
    #[error("what the losing half wrote cannot be kept: {0}")]
    Kept(String),
    #[error("the work was cut off")]
    CutOff,
    #[error("this peer's data directory is gone: it keeps nothing until it is started again")]
    Gone,
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl CopyError {
    /// The store's failure after which nothing more can be written. A full disk is none: it may have room again.
    pub(super) fn fatal(&self) -> Option<&Arc<StoreError>> {
        match self {
            Self::Store(error) if !error.is_harmless() => Some(error),
            Self::Store(_)
            | Self::Recover(_)
            | Self::State(_)
            | Self::Kept(_)
            | Self::CutOff
            | Self::Gone => None,
        }
    }
}
