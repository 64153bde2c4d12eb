//! The proxy's sockets as the socket store holds them: what is listened on is held there too, so that a proxy that is
//! killed leaves its queues behind, and the next one goes on with them. What is closed here is let go there.

mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::sync::Mutex;

pub use store::{StoreConnection, connect, listen, remove};

use super::balancer::ListenerKey;
use super::bind::Socket;
use super::judge::Side;
use super::note;
use super::service_sockets::NamespaceId;
use super::table::Transport;

/// What a proxy has in the store. The balancer tells it what it listens on.
pub struct KeptSockets {
    /// The network of service addresses: sockets of another one are of no use.
    namespace: Option<NamespaceId>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    connection: Option<StoreConnection>,
    /// What the store holds, as far as this proxy knows.
    names: BTreeSet<String>,
}

impl KeptSockets {
    /// Without a store until one is given.
    pub fn new(namespace: Option<NamespaceId>) -> Self {
        Self {
            namespace,
            held: Mutex::default(),
        }
    }

    /// Uses this store from now on. These are the sockets that it holds already.
    pub async fn give(&self, connection: StoreConnection, names: BTreeSet<String>) {
        let connection = Some(connection);
        *self.held.lock().await = Held { connection, names };
    }

    /// Whether there is a store.
    pub async fn is_held(&self) -> bool {
        let held = self.held.lock().await;
        held.connection.as_ref().is_some_and(StoreConnection::is_open)
    }

    /// Has exactly these held.
    pub async fn hold(&self, sockets: &[(ListenerKey, Socket)]) {
        let mut held = self.held.lock().await;
        let wanted: BTreeMap<String, BorrowedFd<'_>> = sockets
            .iter()
            .map(|(key, socket)| (self.name(key), socket.as_fd()))
            .collect();
        let gone: Vec<String> = held
            .names
            .iter()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        held.let_go(gone).await;
        let new: Vec<(String, BorrowedFd<'_>)> = wanted
            .into_iter()
            .filter(|(name, _)| !held.names.contains(name))
            .collect();
        held.keep(&new).await;
    }

    /// Has all of these held, whether or not the store has them: whoever says so last is their owner.
    pub async fn own(&self, sockets: &[(ListenerKey, Socket)]) {
        let mut held = self.held.lock().await;
        let all: Vec<(String, BorrowedFd<'_>)> = sockets
            .iter()
            .map(|(key, socket)| (self.name(key), socket.as_fd()))
            .collect();
        held.keep(&all).await;
    }

    /// Lets go of these, so that their addresses are free.
    pub async fn let_go(&self, keys: &[ListenerKey]) {
        let mut held = self.held.lock().await;
        let names = keys.iter().map(|key| self.name(key));
        let names = names.filter(|name| held.names.contains(name)).collect();
        held.let_go(names).await;
    }

    /// Lets go of everything that is not another proxy's by now, and of the store.
    pub async fn end(&self) {
        let mut held = self.held.lock().await;
        let names = held.names.iter().cloned().collect();
        held.let_go(names).await;
        held.connection = None;
    }

    fn name(&self, key: &ListenerKey) -> String {
        name_of(key, self.namespace)
    }
}

impl Held {
    async fn keep(&mut self, sockets: &[(String, BorrowedFd<'_>)]) {
        let Some(connection) = self.connection.as_ref().filter(|_| !sockets.is_empty()) else {
            return;
        };
        match connection.keep(sockets).await {
            Ok(()) => self.names.extend(sockets.iter().map(|(name, _)| name.clone())),
            Err(error) => self.lost(&error),
        }
    }

    async fn let_go(&mut self, names: Vec<String>) {
        let Some(connection) = self.connection.as_ref().filter(|_| !names.is_empty()) else {
            return;
        };
        match connection.let_go(&names).await {
            Ok(()) => self.names.retain(|name| !names.contains(name)),
            Err(error) => self.lost(&error),
        }
    }

    /// The daemon gives another one; until then connections are refused while this proxy is being replaced.
    fn lost(&mut self, error: &std::io::Error) {
        note(&format!("the socket store does not answer: {error}"));
        *self = Self::default();
    }
}

/// What the store knows a listener as: `host/stream/0.0.0.0:80`.
fn name_of(key: &ListenerKey, namespace: Option<NamespaceId>) -> String {
    let side = match (key.side, namespace) {
        (Side::Host, _) => "host".to_owned(),
        (Side::Services, Some(namespace)) => format!("services-{namespace}"),
        (Side::Services, None) => "services".to_owned(),
    };
    let transport = match key.transport {
        Transport::Stream => "stream",
        Transport::Datagram => "datagram",
    };
    format!("{side}/{transport}/{}", key.addr)
}

/// The sockets of a store that a proxy in this network can use, by the listeners that they are.
pub fn usable(
    sockets: Vec<(String, OwnedFd)>,
    namespace: Option<NamespaceId>,
) -> BTreeMap<ListenerKey, OwnedFd> {
    let named = sockets.into_iter();
    named
        .filter_map(|(name, socket)| {
            let addr: SocketAddr = name.rsplit('/').next()?.parse().ok()?;
            let sides = [Side::Host, Side::Services].into_iter();
            let mut keys = sides.flat_map(|side| {
                [Transport::Stream, Transport::Datagram].map(|transport| ListenerKey {
                    side,
                    transport,
                    addr,
                })
            });
            let key = keys.find(|key| name_of(key, namespace) == name)?;
            Some((key, socket))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn sockets_of_another_network_are_not_used() {
        let key = |side| ListenerKey {
            side,
            transport: Transport::Stream,
            addr: "[::1]:80".parse().unwrap(),
        };
        let here = NamespaceId::of(Path::new("/proc/self/ns/net")).unwrap();
        let elsewhere = NamespaceId::of(Path::new("/proc/self/ns/uts")).unwrap();
        let socket = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let held = || {
            let keys = [key(Side::Host), key(Side::Services)].into_iter();
            let named = keys.map(|key| (name_of(&key, Some(here)), socket()));
            let mut held: Vec<_> = named.collect();
            held.push(("what a newer one says/quic/[::1]:80".into(), socket()));
            held
        };
        let keys = |sockets: BTreeMap<ListenerKey, OwnedFd>| sockets.into_keys().collect::<Vec<_>>();
        assert_eq!(
            keys(usable(held(), Some(here))),
            [key(Side::Host), key(Side::Services)]
        );
        assert_eq!(keys(usable(held(), Some(elsewhere))), [key(Side::Host)]);
        assert_eq!(keys(usable(held(), None)), [key(Side::Host)]);
    }
}
