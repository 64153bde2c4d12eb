//! Nodes with certificates of a cluster that a test makes, and what they serve.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dhow_core::ids::{DeploymentName, NodeId, ServiceKey, ServiceName};
use dhow_wire::certificate::{CLUSTER_CA_NAME, proxy_uri};
use dhow_wire::ticket::Ticket;
use ed25519_dalek::SigningKey;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, PKCS_ED25519, SanType,
};
use tokio::net::TcpStream;

use super::super::support::{LOCAL, listener, route_for};
use crate::proxy::balancer::{Balancer, ListenerKey};
use crate::proxy::judge::Side;
use crate::proxy::limits::Limits;
use crate::proxy::mesh::{MeshIdentity, Opening, Origin, Peer, ShownTicket, Timing};
use crate::proxy::table::{self, Backend, Listener, MeshPeer, Protocol, Table, TicketKey, Transport};

/// Quick, so that a test of silence takes a moment.
pub const TIMING: Timing = Timing {
    beat: Duration::from_millis(50),
    silence: Duration::from_millis(400),
};

/// The CA of a cluster.
pub struct Cluster {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Cluster {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(CLUSTER_CA_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    /// What the daemon of a node gives to its proxy.
    pub fn identity(&self, node: u64) -> MeshIdentity {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = name("proxy");
        params.subject_alt_names = vec![SanType::URI(proxy_uri(NodeId(node)).try_into().unwrap())];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        MeshIdentity {
            key_pem: key.serialize_pem(),
            chain_pem: leaf.pem(),
            anchors_pem: self.issuer.pem(),
        }
    }
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// What signs the tickets of a test's cluster.
fn signer() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

/// A node's ticket for `deployment/service,…`, as the cluster issued it then.
pub fn ticket_of(node: u64, services: &str, issued_unix_secs: i64) -> String {
    let services: Vec<ServiceKey> = services
        .split(',')
        .map(|service| {
            let (deployment, service) = service.split_once('/').unwrap();
            ServiceKey {
                deployment: DeploymentName::new(deployment).unwrap(),
                service: ServiceName::new(service).unwrap(),
            }
        })
        .collect();
    let issued = Ticket::issue(&signer(), "c", NodeId(node), &services, issued_unix_secs);
    issued.unwrap().text()
}

/// One that does not end in a test's time.
pub fn ticket(node: u64, services: &str) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    ticket_of(node, services, i64::try_from(now).unwrap())
}

/// A node's proxy.
pub struct Node {
    pub number: u64,
    pub balancer: Arc<Balancer>,
    pub mesh: SocketAddr,
    socket: std::net::TcpListener,
    revision: AtomicU64,
}

impl Node {
    pub fn start(cluster: &Cluster, number: u64) -> Self {
        let balancer =
            Balancer::with_timing(Limits::new(8192), nix::unistd::geteuid().as_raw(), None, TIMING);
        balancer.identify(&cluster.identity(number)).unwrap();
        let socket = std::net::TcpListener::bind(LOCAL).unwrap();
        Self {
            number,
            balancer: Arc::new(balancer),
            mesh: socket.local_addr().unwrap(),
            socket,
            revision: AtomicU64::new(0),
        }
    }

    /// Serves these listeners, beside what the others call here.
    pub async fn serve(&self, peers: &[&Node], listeners: Vec<Listener>) {
        self.apply(self.table(peers, listeners)).await;
    }

    pub fn table(&self, peers: &[&Node], listeners: Vec<Listener>) -> Table {
        let peers = peers.iter().map(|peer| MeshPeer {
            node: peer.number,
            addr: peer.mesh,
        });
        Table {
            revision: self.revision.fetch_add(1, Ordering::Relaxed),
            listeners,
            mesh: Some(table::Mesh {
                node: self.number,
                listen: self.mesh,
                peers: peers.collect(),
                relayed: Vec::new(),
                relays: Vec::new(),
                relay: None,
                ticket: Some(ticket(self.number, "shop/web")),
                ticket_key: Some(TicketKey {
                    cluster_id: "c".into(),
                    public_key: signer().verifying_key().to_bytes(),
                }),
                removed: Vec::new(),
                believed_cas: None,
            }),
            ..Table::empty()
        }
    }

    pub async fn apply(&self, table: Table) {
        let mut inherited: BTreeMap<_, OwnedFd> = BTreeMap::new();
        let socket = self.socket.try_clone().unwrap();
        inherited.insert(key_of(Transport::Stream, self.mesh), socket.into());
        for listener in &table.listeners {
            // A port that is bound by hand, so that none is guessed; one that is served already stays as it is.
            let key = key_of(listener.protocol.transport(), listener.addr);
            if let Some(descriptor) = RESERVED.lock().unwrap().remove(&listener.addr) {
                inherited.insert(key, descriptor);
            }
        }
        let applied = self.balancer.apply(table, inherited).await.unwrap();
        for (addr, bound) in applied.listeners {
            assert_eq!(bound, Ok(()), "{addr}");
        }
    }

    pub fn peer(&self, other: &Node) -> Arc<Peer> {
        self.balancer.mesh.peer(other.number)
    }
}

fn key_of(transport: Transport, addr: SocketAddr) -> ListenerKey {
    ListenerKey {
        side: Side::Host,
        transport,
        addr,
    }
}

/// Sockets that are bound and not yet served, by address.
static RESERVED: std::sync::Mutex<BTreeMap<SocketAddr, OwnedFd>> = std::sync::Mutex::new(BTreeMap::new());

/// An address of the kernel's choice for a listener.
pub fn reserve(protocol: Protocol) -> SocketAddr {
    let (addr, descriptor): (_, OwnedFd) = match protocol.transport() {
        Transport::Stream => {
            let socket = std::net::TcpListener::bind(LOCAL).unwrap();
            (socket.local_addr().unwrap(), socket.into())
        }
        Transport::Datagram => {
            let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
            (socket.local_addr().unwrap(), socket.into())
        }
    };
    RESERVED.lock().unwrap().insert(addr, descriptor);
    addr
}

/// The endpoint `shop/db/main` with these replicas.
pub fn endpoint(addr: SocketAddr, protocol: Protocol, backends: Vec<Backend>) -> Listener {
    listener(
        addr,
        protocol,
        vec![route_for("shop/db/main", None, None, backends)],
    )
}

/// A replica of another node.
pub fn there(id: &str, node: &Node) -> Backend {
    Backend {
        id: id.into(),
        addr: None,
        node: Some(node.number),
        draining: false,
        canary: None,
    }
}

/// What asks for a replica of `shop/db/main`.
pub fn opening(replica: &str) -> Opening {
    Opening {
        origin: Origin::Replica {
            deployment: "shop".into(),
            service: "web".into(),
        },
        replica: replica.into(),
        endpoint: "main".into(),
        transport: Transport::Stream,
        ticket: ShownTicket::None,
    }
}

/// Two nodes: `far` has the replica `shop/db-default-0@1` at `backend`, `near` listens at the address that is given.
pub async fn pair(protocol: Protocol, backend: SocketAddr) -> (Node, Node, SocketAddr) {
    let cluster = Cluster::new();
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    let there = there(REPLICA, &far);
    let (near_addr, far_addr) = (reserve(protocol), reserve(protocol));
    far.serve(
        &[&near],
        vec![endpoint(
            far_addr,
            protocol,
            vec![Backend::here(REPLICA, backend)],
        )],
    )
    .await;
    near.serve(&[&far], vec![endpoint(near_addr, protocol, vec![there])])
        .await;
    (near, far, near_addr)
}

pub const REPLICA: &str = "shop/db-default-0@1";

/// Closes with a reset.
pub fn reset(stream: TcpStream) {
    crate::proxy::relay::reset(stream);
}
