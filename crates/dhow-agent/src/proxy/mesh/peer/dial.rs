//! New connections to a node: dialled, or through another node that passes on for it. Who is at the other end is proved in
//! both cases by the same TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dhow_core::ids::NodeId;
use dhow_wire::certificate::{node_dns_name, proxy_node_of};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

use super::{Peer, Refused, Way, lock};
use crate::proxy::connect;
use crate::proxy::mesh::connection::{Connection, Frame, bad};
use crate::proxy::mesh::connections::Registered;
use crate::proxy::mesh::frame::{self, Answer, BadFrame, Kind};
use crate::proxy::mesh::relay::Tied;
use crate::proxy::mesh::wire::Wire;

/// A socket on which the node itself is to be found.
struct Dialled {
    socket: Arc<TcpStream>,
    registered: Registered,
    tied: Option<Tied>,
}

impl Peer {
    /// A new connection to it, and to nobody else.
    pub(super) async fn dial(&self) -> Result<Connection, Refused> {
        let node = self.node;
        let way = lock(&self.way).clone();
        match way {
            Way::Unknown => Err(Refused::Unknown { node }),
            Way::At(addr) => self.dial_at(node, addr).await,
            Way::Through(relays) => self.dial_through(&relays).await,
        }
    }

    /// The same without anybody between: of one that passes on for this node.
    pub(in crate::proxy::mesh) async fn dial_directly(&self) -> Result<Connection, Refused> {
        let node = self.node;
        let addr = self.own.addr_of(node).ok_or(Refused::Unknown { node })?;
        self.dial_at(node, addr).await
    }

    /// Tries those who pass on, first the one that did last time.
    async fn dial_through(&self, relays: &[u64]) -> Result<Connection, Refused> {
        let first = self.relay.load(Ordering::Relaxed);
        let mut failed = Refused::Unknown { node: self.node };
        for turn in 0..relays.len() {
            let place = (first + turn) % relays.len();
            let Some(relay) = relays.get(place).copied() else {
                continue;
            };
            let reached = match relay == self.own.node() {
                true => self.call_here(relay).await,
                false => self.call_through(relay).await,
            };
            let connected = match reached {
                Ok(dialled) => self.greet(self.node, dialled).await,
                Err(refused) => Err(refused),
            };
            match connected {
                Ok(connection) => {
                    self.relay.store(place, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(refused) => failed = refused,
            }
        }
        Err(failed)
    }

    /// This very node passes on for it.
    async fn call_here(&self, relay: u64) -> Result<Dialled, Refused> {
        let node = self.node;
        let tied = self.own.relay.call(node, relay).await;
        let tied = tied.map_err(|why| Refused::Relay { node, relay, why })?;
        let socket = tied.socket();
        let registered = self.connections.add(&socket).ok_or(Refused::Busy { node })?;
        Ok(Dialled {
            socket,
            registered,
            tied: Some(tied),
        })
    }

    /// Asks the relay for a connection. What is left of the one to the relay is its socket, on which the node speaks.
    async fn call_through(&self, relay: u64) -> Result<Dialled, Refused> {
        let node = self.node;
        let addr = self.own.addr_of(relay).ok_or(Refused::Unknown { node: relay })?;
        let mut connection = self.dial_at(relay, addr).await?;
        let failed = |source| Refused::Io { node: relay, source };
        let asked = timeout(self.own.timing.silence, async {
            connection.send(Kind::Through, &frame::write_number(node)).await?;
            match connection.frame().await? {
                Some(Frame {
                    kind: Kind::Answer,
                    body,
                }) => frame::read_body::<Answer>(Kind::Answer, &body).map_err(bad),
                Some(Frame { kind: found, .. }) => Err(bad(BadFrame::Place { found })),
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        });
        let answered = asked.await.map_err(|_| io::ErrorKind::TimedOut.into());
        match answered.flatten().map_err(failed)? {
            Answer::Accepted => {
                let (socket, registered) = connection.into_socket();
                Ok(Dialled {
                    socket,
                    registered,
                    tied: None,
                })
            }
            Answer::Refused(why) => Err(Refused::Relay { node, relay, why }),
        }
    }

    async fn dial_at(&self, node: u64, addr: SocketAddr) -> Result<Connection, Refused> {
        let failed = |source| Refused::Io { node, source };
        let dialling = timeout(self.own.timing.silence, async {
            let socket = Arc::new(TcpStream::connect(addr).await.map_err(failed)?);
            connect::set_up(&socket);
            let registered = self.connections.add(&socket).ok_or(Refused::Busy { node })?;
            let dialled = Dialled {
                socket,
                registered,
                tied: None,
            };
            self.greet(node, dialled).await
        });
        let late = |_| failed(io::ErrorKind::TimedOut.into());
        dialling.await.map_err(late).flatten()
    }

    /// Makes sure that this node is at the other end.
    async fn greet(&self, node: u64, dialled: Dialled) -> Result<Connection, Refused> {
        let Dialled {
            socket,
            registered,
            tied,
        } = dialled;
        let failed = |source| Refused::Io { node, source };
        let credentials = self.own.credentials().ok_or(Refused::NoIdentity)?;
        let name = ServerName::try_from(node_dns_name(NodeId(node)));
        let name = name.map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(Arc::clone(&credentials.client));
        let greeting = connector.connect(name, Wire::new(Arc::clone(&socket)));
        let greeted = timeout(self.own.timing.silence, greeting).await;
        let greeted = greeted.map_err(|_| io::ErrorKind::TimedOut.into());
        let tls = greeted.flatten().map_err(failed)?;
        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let found = shown.and_then(|leaf| proxy_node_of(leaf));
        if found.is_none_or(|found| found.0 != node) {
            return Err(Refused::OtherNode { node });
        }
        let mut connection = Connection::new(TlsStream::Client(tls), socket, registered);
        connection.tied = tied;
        Ok(connection)
    }
}
