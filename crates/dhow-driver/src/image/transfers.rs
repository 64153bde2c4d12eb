//! How many layers are in transfer at a time. Each registry has places of its own, so that one which answers by drips
//! keeps nobody from fetching elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::origin::Origin;

/// Layers in transfer at a time from one place, over all pulls of this handle: enough to fill a line, few enough that
/// each gets somewhere.
const MAX_TRANSFERS: usize = 8;

/// The places of all registries that are being fetched from.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    by_origin: Mutex<BTreeMap<Origin, Arc<Semaphore>>>,
}

impl Transfers {
    /// Waits for a place among those who fetch from the same origin.
    pub async fn place(&self, origin: &Origin) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        self.of(origin).acquire_owned().await.ok()
    }

    fn of(&self, origin: &Origin) -> Arc<Semaphore> {
        // Every change is one call on a map.
        let mut all = self.by_origin.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who hold or await a place have it too.
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let places = all.entry(origin.clone());
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(MAX_TRANSFERS))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_never_ends_keeps_nobody_from_another() {
        let transfers = Transfers::default();
        let origin = |host: &str| Origin::Registry(host.into());
        let soon = async |host: &str| timeout(Duration::from_secs(1), transfers.place(&origin(host))).await;
        let mut held = Vec::new();
        for _ in 0..MAX_TRANSFERS {
            held.push(soon("drips.example").await.unwrap().unwrap());
        }
        assert!(soon("drips.example").await.is_err());
        assert!(soon("good.example").await.is_ok());
        held.pop();
        assert!(soon("drips.example").await.is_ok());
        held.clear();
        assert!(soon("good.example").await.is_ok());
        let known = transfers.by_origin.lock().unwrap().len();
        assert!(known <= 1, "what nobody fetches from is forgotten: {known}");
    }
}
