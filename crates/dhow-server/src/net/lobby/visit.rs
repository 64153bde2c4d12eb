//! One connection's place: a guest's at first, by its own name once it has proved who it is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Account, Guest, LOOK_EVERY, Lobby, STAY_MAX};

/// The place of one connection in the lobby; clones are the same place, which is free again with the last of them.
#[derive(Clone, Debug)]
pub struct Visit(Arc<VisitState>);

/// What the clones of a visit share.
#[derive(Debug)]
struct VisitState {
    lobby: Lobby,
    account: Account,
    number: u64,
    came: Instant,
    gone: CancellationToken,
    stands: Mutex<Stands>,
}

#[derive(Debug)]
enum Stands {
    Waits(tokio::sync::oneshot::Receiver<()>),
    Guest,
    /// Has a seat, where it has said a name.
    Known(Option<(Arc<str>, u64)>),
}

impl Visit {
    pub(super) fn new(lobby: Lobby, guest: Guest) -> Self {
        let stands = match guest.turn {
            Some(turn) => Stands::Waits(turn),
            None => Stands::Guest,
        };
        lobby.0.callers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(VisitState {
            lobby,
            account: guest.account,
            number: guest.number,
            came: Instant::now(),
            gone: guest.gone,
            stands: Mutex::new(stands),
        }))
    }

    fn stands(&self) -> MutexGuard<'_, Stands> {
        self.0.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this connection's turn has come.
    pub(crate) async fn turn(&self) {
        let before = std::mem::replace(&mut *self.stands(), Stands::Guest);
        let mut turn = match before {
            Stands::Waits(turn) => turn,
            other @ (Stands::Guest | Stands::Known(_)) => {
                *self.stands() = other;
                return;
            }
        };
        // The turn of a guest that was sent away meanwhile never comes: `gone` ends its connection.
        while tokio::time::timeout(LOOK_EVERY, &mut turn).await.is_err() {
            self.0.lobby.rooms().hurry(self.0.account, Instant::now());
        }
    }

    /// Does what costs the server something before it is known who this is, when others leave room for it.
    pub(crate) async fn compute<T>(&self, work: impl Future<Output = T>) -> T {
        let (lobby, account) = (&self.0.lobby, self.0.account);
        let is_crowd = || lobby.rooms().is_crowd(account);
        lobby.0.turnstile.run(account, is_crowd, work).await
    }

    /// It is known who this is, by name where that is to be counted: it is no guest any more.
    pub(crate) fn prove(&self, name: Option<&Arc<str>>) {
        let mut stands = self.stands();
        if matches!(*stands, Stands::Known(_)) {
            return;
        }
        let inner = &self.0;
        let mut rooms = inner.lobby.rooms();
        rooms.proved(inner.account, inner.number, Instant::now());
        drop(rooms);
        inner.lobby.0.left.notify_waiters();
        let seat = name.map(|name| {
            let number = inner.lobby.seats().take(name, inner.gone.clone());
            (Arc::clone(name), number)
        });
        *stands = Stands::Known(seat);
    }

    /// Resolves when the connection has to end: another caller has its place, or it has been a guest for too long.
    pub(crate) async fn over(&self) {
        let late = tokio::time::sleep_until(self.0.came + STAY_MAX);
        tokio::select! {
            () = self.0.gone.cancelled() => return,
            () = late => {}
        }
        if matches!(*self.stands(), Stands::Known(_)) {
            self.0.gone.cancelled().await;
        }
    }
}

impl Drop for VisitState {
    fn drop(&mut self) {
        let stands = self.stands.get_mut().unwrap_or_else(PoisonError::into_inner);
        match stands {
            Stands::Known(None) => {}
            Stands::Known(Some((name, number))) => self.lobby.seats().leave(name, *number),
            Stands::Guest | Stands::Waits(_) => {
                self.lobby
                    .rooms()
                    .remove(self.account, self.number, Instant::now());
            }
        }
        self.lobby.0.callers.fetch_sub(1, Ordering::Relaxed);
        self.lobby.0.left.notify_waiters();
    }
}
