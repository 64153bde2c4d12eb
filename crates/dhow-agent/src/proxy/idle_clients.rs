//! Clients of HTTP that have nothing under way: they have connected and asked for nothing, or not to the end, or are kept for
//! their next request. However many there are, others get in: where a place is wanted, the one goes that has been idle
//! longest, of the address that has most of them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::mesh::account;

/// All of the process; clones are the same. Every client has a permit, so that there are no more than these.
#[derive(Clone, Default)]
pub struct IdleClients(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    /// By the number that each was given when it became idle: the lowest has been so longest.
    by_address: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    next: u64,
}

/// One client, for as long as it is connected.
pub struct HttpClient {
    clients: IdleClients,
    address: IpAddr,
    work: Mutex<Work>,
    /// Cancelled where another one needs the place more.
    pub gone: CancellationToken,
}

/// What a client has under way, and its number while that is nothing.
struct Work {
    requests: usize,
    number: u64,
}

/// A request or a tunnel of a client, until it is dropped.
pub struct UnderWay<C: AsRef<HttpClient>>(Arc<C>);

impl IdleClients {
    pub fn enter(&self, address: IpAddr) -> HttpClient {
        let (address, gone) = (account(address), CancellationToken::new());
        let number = self.lock().add(address, gone.clone());
        HttpClient {
            clients: self.clone(),
            address,
            work: Mutex::new(Work { requests: 0, number }),
            gone,
        }
    }

    /// Has one go, where there is one.
    pub fn make_room(&self) {
        let gone = self.lock().take_oldest();
        if let Some(gone) = gone {
            gone.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        // Nothing that runs under the lock leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn add(&mut self, address: IpAddr, gone: CancellationToken) -> u64 {
        self.next += 1;
        let number = self.next;
        self.by_address.entry(address).or_default().insert(number, gone);
        number
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<CancellationToken> {
        let crowd = self.by_address.get_mut(&address)?;
        let gone = crowd.remove(&number);
        if crowd.is_empty() {
            self.by_address.remove(&address);
        }
        gone
    }

    fn take_oldest(&mut self) -> Option<CancellationToken> {
        let crowds = self.by_address.iter();
        let (address, crowd) = crowds.max_by_key(|(_, crowd)| crowd.len())?;
        let (address, number) = (*address, *crowd.keys().next()?);
        self.remove(address, number)
    }
}

impl HttpClient {
    pub fn is_idle(&self) -> bool {
        self.work().requests == 0
    }

    fn begin(&self) {
        let mut work = self.work();
        if work.requests == 0 {
            self.clients.lock().remove(self.address, work.number);
        }
        work.requests += 1;
    }

    fn end(&self) {
        let mut work = self.work();
        work.requests = work.requests.saturating_sub(1);
        if work.requests == 0 {
            work.number = self.clients.lock().add(self.address, self.gone.clone());
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing that runs under the lock leaves the counts half changed.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HttpClient {
    fn drop(&mut self) {
        let number = self.work().number;
        self.clients.lock().remove(self.address, number);
    }
}

impl<C: AsRef<HttpClient>> UnderWay<C> {
    pub fn of(client: Arc<C>) -> Self {
        (*client).as_ref().begin();
        Self(client)
    }
}

impl<C: AsRef<HttpClient>> Drop for UnderWay<C> {
    fn drop(&mut self) {
        (*self.0).as_ref().end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AsRef<Self> for HttpClient {
        fn as_ref(&self) -> &Self {
            self
        }
    }

    #[test]
    fn who_is_idle_longest_in_the_largest_crowd_makes_room() {
        let clients = IdleClients::default();
        let enter = |last: u8| Arc::new(clients.enter([10, 0, 0, last].into()));
        let crowd: Vec<_> = (0..4).map(|_| enter(1)).collect();
        let other = enter(2);
        // The first has something to do, and has been idle for the shortest time after that.
        let busy = UnderWay::of(Arc::clone(&crowd[0]));
        clients.make_room();
        assert!(crowd[1].gone.is_cancelled() && !crowd[0].gone.is_cancelled());
        drop(busy);
        for gone in [&crowd[2], &crowd[3]] {
            assert!(!gone.gone.is_cancelled());
            clients.make_room();
            assert!(gone.gone.is_cancelled());
        }
        assert!(!crowd[0].gone.is_cancelled() && !other.gone.is_cancelled());
        let work = UnderWay::of(Arc::clone(&other));
        clients.make_room();
        clients.make_room();
        assert!(crowd[0].gone.is_cancelled() && !other.gone.is_cancelled());
        assert!(crowd[0].is_idle() && !other.is_idle());
        drop((crowd, work, other));
        assert!(clients.lock().by_address.is_empty());
    }
}
