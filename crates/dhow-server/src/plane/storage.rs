//! Whether the data directory is still the one that the daemon opened. Set by the daemon's watch over it; asked before
//! every proposal and by `/ready`. Whatever is written after the directory was removed or moved is nowhere after the
//! next start, so that it must not be acknowledged.

use std::sync::Arc;

use tokio::sync::watch;

/// Cheap to clone; all clones say the same. The default is a directory that never goes away.
#[derive(Clone, Debug)]
pub struct Storage {
    is_gone: Arc<watch::Sender<bool>>,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            is_gone: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Storage {
    /// Says whether it is gone; gives whether that is news.
    pub fn set_gone(&self, is_gone: bool) -> bool {
        self.is_gone
            .send_if_modified(|known| std::mem::replace(known, is_gone) != is_gone)
    }

    pub fn is_gone(&self) -> bool {
        *self.is_gone.borrow()
    }

    /// Follows whether it is gone.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.is_gone.subscribe()
    }
}
