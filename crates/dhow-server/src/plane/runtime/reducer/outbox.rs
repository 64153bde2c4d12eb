//! What the reducer has for the applier. It never waits for it: what finds no room is merged with what follows and
//! handed over as soon as there is some.

use tokio::sync::mpsc;

use crate::plane::runtime::applier::Effects;

/// The reducer's end of the channel to the applier.
#[derive(Debug)]
pub(super) struct Outbox {
    effects: mpsc::Sender<Effects>,
    /// At most one place per node and service, whatever happens.
    pending: Effects,
}

impl Outbox {
    pub fn new(effects: mpsc::Sender<Effects>) -> Self {
        Self {
            effects,
            pending: Effects::default(),
        }
    }

    pub fn put(&mut self, effects: Effects) {
        self.pending.merge(effects);
        if self.pending.is_empty() {
            return;
        }
        if let Err(error) = self.effects.try_send(std::mem::take(&mut self.pending)) {
            match error {
                mpsc::error::TrySendError::Full(effects) => self.pending = effects,
                // The applier has ended before the reducer: there is nobody to wake.
                mpsc::error::TrySendError::Closed(_) => {}
            }
        }
    }

    /// Hands over what is pending once there is room; waits for ever where nothing is.
    pub async fn flush(&mut self) {
        if self.pending.is_empty() {
            return std::future::pending().await;
        }
        match self.effects.reserve().await {
            Ok(place) => place.send(std::mem::take(&mut self.pending)),
            Err(_) => self.pending = Effects::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::directory::Touched;
    use dhow_core::ids::{NodeId, Revision};

    fn wake(node: u64, revision: u64) -> Effects {
        Effects {
            wake: [(NodeId(node), Revision(revision))].into(),
            touched: Touched::default(),
        }
    }

    #[tokio::test]
    async fn what_finds_no_room_is_merged_and_not_lost() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        outbox.put(wake(1, 1));
        outbox.put(wake(1, 2));
        outbox.put(wake(2, 3));
        outbox.put(wake(1, 4));
        assert_eq!(receiver.recv().await, Some(wake(1, 1)));
        outbox.flush().await;
        let merged = Effects {
            wake: [(NodeId(1), Revision(4)), (NodeId(2), Revision(3))].into(),
            touched: Touched::default(),
        };
        assert_eq!(receiver.recv().await, Some(merged));
    }
}
