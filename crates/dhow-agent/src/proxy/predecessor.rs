//! Taking over from the proxy that serves now: its table and its listeners, without a connection refused.
//!
//! In two halves. What the other has is asked for while this one may still enter its folder; that it is served is
//! said once it is, and only then the other stops. Until that moment whatever fails leaves the other serving.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::balancer::{Balancer, ListenerKey};
use super::judge::Side;
use super::protocol::{self, HandOver, Reply, Request};
use super::service_sockets::NamespaceId;
use super::table::Table;
use super::{descriptors, note, socket};

/// The old proxy answers at once, or it hangs.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the proxy before this one serves, and the connection on which it waits.
pub struct Inherited {
    stream: StdStream,
    table: Table,
    listeners: BTreeMap<ListenerKey, OwnedFd>,
    /// The network that those of service addresses are in.
    namespace: Option<NamespaceId>,
}

enum Asked {
    All(Box<Inherited>),
    /// It had handed over to another proxy.
    Nothing,
}

/// Asks the older proxies of a folder, the youngest first; `None` where none serves.
pub async fn ask(dir: &Path, generation: u32) -> io::Result<Option<Inherited>> {
    for (older, name) in predecessors(dir, generation)? {
        let Ok(stream) = socket::connect(dir, &name).await else {
            // Left by one that has ended.
            socket::remove(dir, &name)?;
            continue;
        };
        let asked = timeout(HAND_OVER_TIMEOUT, ask_one(stream)).await;
        let asked = asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut));
        match asked.flatten() {
            Ok(Asked::All(inherited)) => return Ok(Some(*inherited)),
            Ok(Asked::Nothing) => {}
            // It died over it: then there is nothing to take over, and its ports are free.
            Err(_) if socket::connect(dir, &name).await.is_err() => {}
            Err(error) => {
                let what = format!("taking over from proxy {older} failed: {error}");
                return Err(io::Error::other(what));
            }
        }
    }
    Ok(None)
}

async fn ask_one(mut stream: UnixStream) -> io::Result<Asked> {
    protocol::send(&mut stream, Request::HandOver).await?;
    let hand_over: Box<HandOver> = match protocol::receive(&mut stream).await? {
        Reply::HandOver(hand_over) => hand_over,
        Reply::Refused { .. } => return Ok(Asked::Nothing),
        other => {
            return Err(io::Error::other(format!(
                "an answer to another question: {other:?}"
            )));
        }
    };
    let host = hand_over.listeners.into_iter().map(|of| (Side::Host, of));
    let services = hand_over.services.into_iter().map(|of| (Side::Services, of));
    let keys = host.chain(services).map(|(side, (transport, addr))| ListenerKey {
        side,
        transport,
        addr,
    });
    let keys: Vec<ListenerKey> = keys.collect();
    let received = descriptors::receive(&stream, keys.len()).await?;
    Ok(Asked::All(Box::new(Inherited {
        stream: stream.into_std()?,
        table: hand_over.table,
        listeners: keys.into_iter().zip(received).collect(),
        namespace: hand_over.namespace,
    })))
}

/// The sockets of older proxies, the youngest first.
fn predecessors(dir: &Path, generation: u32) -> io::Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if let Some(older) = protocol::socket_generation(&name).filter(|other| *other < generation) {
            found.push((older, name));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

impl Inherited {
    /// Serves it, and tells the other.
    pub async fn serve(self, balancer: &Balancer) -> io::Result<()> {
        let mut listeners = self.listeners;
        if balancer.namespace() != self.namespace {
            // Nobody reaches a network that is not the bridge's any more.
            listeners.retain(|key, _| key.side == Side::Host);
        }
        let applied = balancer.apply(self.table, listeners).await;
        for (addr, bound) in applied.map_err(io::Error::other)?.listeners {
            if let Err(why) = bound {
                note(&format!("{addr}: {why}"));
            }
        }
        // From here on both accept; now the other stops.
        let mut stream = UnixStream::from_std(self.stream)?;
        let told = timeout(HAND_OVER_TIMEOUT, async {
            protocol::send(&mut stream, Request::TookOver).await?;
            protocol::receive::<Reply>(&mut stream).await
        });
        let told = told.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut));
        if let Err(error) = told.flatten() {
            // This one serves, whatever has become of the other.
            note(&format!("the proxy before this one said no more: {error}"));
        }
        Ok(())
    }
}
