//! What the daemon and the next proxy say to a proxy, and what they hear: JSON behind a length, each message
//! with the version of its form. A connection carries any number of requests, each answered in turn.

use std::io;
use std::net::SocketAddr;

use dhow_core::usage::{EndpointFigures, RelayFigures};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::backend::BackendState;
use super::mesh::MeshIdentity;
use super::service_sockets::NamespaceId;
use super::table::{Table, Transport, WantedService};
use super::tls::{GivenCertificates, RefusedCertificate};

pub const CONTROL_VERSION: u32 = 1;
/// A table at its limit: 65,536 backends of up to 600 bytes; the usual one has a few kilobytes.
pub const MESSAGE_MAX_BYTES: usize = 48 << 20;

/// The control socket of one proxy.
pub fn socket_name(generation: u32) -> String {
    format!("proxy.{generation}.sock")
}

/// The generation that a socket's name means.
pub fn socket_generation(name: &str) -> Option<u32> {
    name.strip_prefix("proxy.")?.strip_suffix(".sock")?.parse().ok()
}

#[derive(Debug, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    body: T,
}

/// What a daemon, or the next proxy, asks of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Hello,
    Apply(Box<Table>),
    /// What the proxy shows to those of other nodes from now on. It keeps it in its folder, in no table and in no log.
    Identify(MeshIdentity),
    /// Have what you listen on held by the socket store to which a connection follows.
    KeepSockets,
    /// What the proxy shows to clients of TLS from now on; kept in the same way.
    Certify(GivenCertificates),
    Status,
    /// What has passed each endpoint. Proxies of earlier versions do not know it.
    Figures,
    /// What was passed on for nodes that nobody can dial. The same.
    Relayed,
    /// Which services of other deployments are wanted, once that is something else than at this count, or after this time.
    /// Proxies of earlier versions do not know it.
    Wants {
        seen: u64,
        wait_ms: u64,
        /// Nobody who decides hears this node, so that no request waits for a first replica.
        #[serde(default)]
        unheard: bool,
    },
    WaitDrained {
        ids: Vec<String>,
        timeout_ms: u64,
    },
    /// From the next proxy: give me your listeners. The answer is followed by their descriptors.
    HandOver,
    /// From the next proxy: they are served. Accept nothing more.
    TookOver,
}

/// What a proxy answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Hello(Hello),
    Applied(Applied),
    Status(Status),
    Figures(Vec<EndpointFigures>),
    Relayed(RelayFigures),
    Wants {
        number: u64,
        services: Vec<WantedService>,
        /// Requests wait for a first replica.
        #[serde(default)]
        waiting: bool,
    },
    Certified {
        refused: Vec<RefusedCertificate>,
    },
    Drained {
        ids: Vec<String>,
    },
    HandOver(Box<HandOver>),
    Done,
    Refused {
        why: String,
    },
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub build: String,
    pub pid: u32,
    /// It accepts nothing any more and only finishes what it has.
    pub ended: bool,
    /// The network of service addresses that it listens in.
    #[serde(default)]
    pub namespace: Option<NamespaceId>,
    /// What it listens on is held by a socket store.
    #[serde(default)]
    pub is_held: bool,
}

/// What the next proxy gets: the descriptors follow in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    pub table: Table,
    pub listeners: Vec<(Transport, SocketAddr)>,
    /// Those of service addresses, behind the others; earlier versions have none.
    #[serde(default)]
    pub services: Vec<(Transport, SocketAddr)>,
    /// The network that these are in.
    #[serde(default)]
    pub namespace: Option<NamespaceId>,
}

/// What became of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Each listener, with the reason where it is not bound. It is tried again every few seconds.
    pub listeners: Vec<(SocketAddr, Result<(), String>)>,
    /// Those of them that are not bound because somebody else has the address. Proxies of earlier versions say by
    /// themselves who.
    #[serde(default)]
    pub taken: Vec<(Transport, SocketAddr)>,
}

/// What a proxy is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub revision: u64,
    pub listeners: Vec<ListenerStatus>,
    /// How many client connections there may be at once, by the number of descriptors.
    pub connections_max: usize,
    /// Connections, requests and datagrams of those who may not call.
    #[serde(default)]
    pub refused_calls: u64,
    pub backends: Vec<BackendStatus>,
}

/// One listener of a proxy's status, and why it is not bound where it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    pub addr: SocketAddr,
    #[serde(default)]
    pub error: Option<String>,
}

/// One backend of a proxy's status, with its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStatus {
    pub id: String,
    /// Of a replica of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addr: Option<SocketAddr>,
    /// Of a replica of another node: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    pub draining: bool,
    /// Requests, connections or sessions that are open now.
    pub in_flight: u32,
    /// The same since the proxy knows it.
    pub total: u64,
    /// Connections that it did not accept.
    pub refused: u64,
}

impl Status {
    /// Joins what an older proxy still has in flight.
    pub(super) fn add(&mut self, older: Status) {
        self.refused_calls = self.refused_calls.saturating_add(older.refused_calls);
        for theirs in older.backends {
            let same = |ours: &&mut BackendStatus| {
                ours.id == theirs.id && (ours.addr, ours.node) == (theirs.addr, theirs.node)
            };
            match self.backends.iter_mut().find(same) {
                Some(ours) => {
                    ours.in_flight = ours.in_flight.saturating_add(theirs.in_flight);
                    ours.total = ours.total.saturating_add(theirs.total);
                    ours.refused = ours.refused.saturating_add(theirs.refused);
                }
                None => self.backends.push(theirs),
            }
        }
    }
}

impl BackendStatus {
    pub(super) fn of(state: &BackendState) -> Self {
        Self {
            id: state.id.clone(),
            addr: state.addr(),
            node: state.node(),
            draining: state.is_draining(),
            in_flight: state.in_flight(),
            total: state.total(),
            refused: state.refused_total(),
        }
    }
}

pub async fn send<T: Serialize>(stream: &mut UnixStream, body: T) -> io::Result<()> {
    let version = CONTROL_VERSION;
    let mut message = vec![0u8; 4];
    serde_json::to_writer(&mut message, &Envelope { version, body })?;
    let length = u32::try_from(message.len() - 4).map_err(io::Error::other)?;
    if let Some(head) = message.get_mut(..4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
    stream.write_all(&message).await
}

/// Reads one message; an error of the kind `UnexpectedEof` is the end of the connection.
pub async fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let length = usize::try_from(stream.read_u32_le().await?).unwrap_or(usize::MAX);
    if length > MESSAGE_MAX_BYTES {
        return Err(invalid(format!(
            "a message of {length} bytes is longer than {MESSAGE_MAX_BYTES}"
        )));
    }
    let mut message = vec![0u8; length];
    stream.read_exact(&mut message).await?;
    let envelope: Envelope<serde_json::Value> = serde_json::from_slice(&message).map_err(invalid)?;
    if envelope.version > CONTROL_VERSION {
        let version = envelope.version;
        return Err(invalid(format!(
            "a message of form {version}, this dhow knows {CONTROL_VERSION}: a newer dhow wrote it"
        )));
    }
    serde_json::from_value(envelope.body).map_err(invalid)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
