//! Who of the guests computes. A handshake is the one thing that costs the server much more than the stranger who asks
//! for it: a few are computed at a time, each address in its turn, so that threads are always left for everybody else.
//! Nobody holds a pass while it waits for bytes.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

use super::Account;

/// Lets a few handshakes be computed at a time, one address after the other; clones are the same turnstile.
#[derive(Clone, Debug)]
pub(super) struct Turnstile(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    waiting: BTreeMap<Account, VecDeque<oneshot::Sender<Pass>>>,
    /// Whose turn it was.
    last: Option<Account>,
}

/// Whoever has it computes.
#[derive(Debug)]
struct Pass(Option<Turnstile>);

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(turnstile) = self.0.take() {
            turnstile.give_on();
        }
    }
}

impl Turnstile {
    pub fn new(passes: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue {
            free: passes.max(1),
            waiting: BTreeMap::new(),
            last: None,
        })))
    }

    /// As many as half of the threads that this host has.
    pub fn of_host() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from) / 2)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of a guest, each step of it when its turn has come. Of a crowd that proves nothing the newest comes
    /// first: more come than can be served, and those that have waited for long have gone, or will.
    pub async fn run<T>(
        &self,
        account: Account,
        is_crowd: impl Fn() -> bool,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            let pass = self.pass(account, is_crowd()).await;
            let step = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            drop(pass);
            if let Poll::Ready(done) = step {
                return done;
            }
            // The work wakes this task when it can go on.
            let mut is_woken = false;
            poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }

    async fn pass(&self, account: Account, is_crowd: bool) -> Pass {
        let comes = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Pass(Some(self.clone()));
            }
            let (sender, comes) = oneshot::channel();
            let own = queue.waiting.entry(account).or_default();
            // Those that were sent away meanwhile are nobody's turn.
            if own.len() == own.capacity() {
                own.retain(|waiting| !waiting.is_closed());
            }
            match is_crowd {
                true => own.push_front(sender),
                false => own.push_back(sender),
            }
            comes
        };
        // The turnstile lives as long as those who wait; without it nothing would have to be waited for.
        comes.await.unwrap_or(Pass(None))
    }

    /// The next address has its turn.
    fn give_on(&self) {
        let mut queue = self.queue();
        loop {
            let after = queue.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = queue.waiting.range((after, Bound::Unbounded)).next();
            let next = next
                .or_else(|| queue.waiting.iter().next())
                .map(|(account, _)| *account);
            let Some(account) = next else {
                queue.free += 1;
                return;
            };
            let own = queue.waiting.get_mut(&account);
            let chosen = own.and_then(VecDeque::pop_front);
            if queue.waiting.get(&account).is_some_and(VecDeque::is_empty) {
                queue.waiting.remove(&account);
            }
            let Some(chosen) = chosen else { continue };
            match chosen.send(Pass(Some(self.clone()))) {
                Ok(()) => {
                    queue.last = Some(account);
                    return;
                }
                // It has gone; its pass is nobody's.
                Err(mut pass) => drop(pass.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    fn account(last: u8) -> Account {
        Account::of([10, 0, 0, last].into())
    }

    #[tokio::test]
    async fn each_address_has_its_turn_and_of_a_crowd_the_newest_first() {
        let turnstile = Turnstile::new(1);
        let held = turnstile.pass(account(9), false).await;
        let said = Arc::new(Mutex::new(Vec::new()));
        let work = |number: u8, from: u8, is_crowd: bool| {
            let (turnstile, said) = (turnstile.clone(), Arc::clone(&said));
            Box::pin(async move {
                turnstile
                    .run(account(from), || is_crowd, async move {
                        said.lock().unwrap().push(number)
                    })
                    .await;
            })
        };
        let (mut one, mut two, mut three) = (work(1, 1, false), work(2, 1, false), work(3, 1, true));
        let (mut gone, mut other) = (work(4, 1, true), work(5, 2, false));
        for waiting in [&mut one, &mut two, &mut three, &mut gone, &mut other] {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
        drop(gone);
        drop(held);
        tokio::join!(one, two, three, other);
        assert_eq!(*said.lock().unwrap(), [3, 5, 1, 2]);
        let queue = turnstile.queue();
        assert!(queue.free == 1 && queue.waiting.is_empty());
    }

    #[tokio::test]
    async fn who_waits_for_bytes_holds_nothing() {
        let turnstile = Turnstile::new(1);
        let (send, bytes) = oneshot::channel::<u8>();
        let mut silent = pin!(turnstile.run(account(1), || false, bytes));
        assert!(poll!(silent.as_mut()).is_pending());
        assert_eq!(turnstile.queue().free, 1);
        assert_eq!(turnstile.run(account(1), || false, async { 7 }).await, 7);
        send.send(8).unwrap();
        assert_eq!(silent.await, Ok(8));
        assert_eq!(turnstile.queue().free, 1);
    }
}
