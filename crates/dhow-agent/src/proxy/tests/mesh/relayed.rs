//! A node that nobody can dial: it is called through others, which pass bytes on and see nothing of them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::mesh::Refused;
use crate::proxy::table::{Backend, Protocol, RelayDuty, RelayedPeer, Table};

/// More than a test sends in the blink of an eye.
const FREE: u64 = 1 << 40;

/// A caller, two that pass on, and a node whose address nobody has.
struct Stage {
    near: Node,
    relays: [Node; 2],
    far: Node,
    /// Where the caller has the endpoint.
    addr: SocketAddr,
}

fn duty(mut table: Table, bytes_per_second: u64) -> Table {
    table.mesh.as_mut().unwrap().relay = Some(RelayDuty { bytes_per_second });
    table
}

impl Stage {
    async fn new(protocol: Protocol, backend: SocketAddr, bytes_per_second: u64) -> Self {
        let cluster = Cluster::new();
        let node = |number| Node::start(&cluster, number);
        let (near, relays, far) = (node(1), [node(2), node(3)], node(4));
        for relay in &relays {
            relay
                .apply(duty(relay.table(&[], vec![]), bytes_per_second))
                .await;
        }
        let addr = reserve(protocol);
        let stage = Self {
            near,
            relays,
            far,
            addr,
        };
        let here = endpoint(reserve(protocol), protocol, vec![Backend::here(REPLICA, backend)]);
        let mut table = stage.far.table(&[&stage.relays[0], &stage.relays[1]], vec![here]);
        table.mesh.as_mut().unwrap().relays = vec![2, 3];
        stage.far.apply(table).await;
        let there = endpoint(addr, protocol, vec![there(REPLICA, &stage.far)]);
        let table = stage.called(
            stage
                .near
                .table(&[&stage.relays[0], &stage.relays[1]], vec![there]),
        );
        stage.near.apply(table).await;
        for relay in &stage.relays {
            stage.until_offered(relay).await;
        }
        stage
    }

    /// The table with the way to the node that nobody can dial.
    fn called(&self, mut table: Table) -> Table {
        let relayed = RelayedPeer {
            node: self.far.number,
            relays: vec![2, 3],
        };
        table.mesh.as_mut().unwrap().relayed = vec![relayed];
        table
    }

    async fn until_offered(&self, relay: &Node) {
        while relay.balancer.relayed().nodes != 1 {
            tokio::time::sleep(TIMING.beat).await;
        }
    }
}

#[tokio::test]
async fn bytes_and_ends_pass_and_are_counted() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    const BYTES: usize = 1 << 20;
    for round in 0..3 {
        let mut client = TcpStream::connect(stage.addr).await.unwrap();
        let sent = tokio::spawn(async move {
            client.write_all(&vec![7; BYTES]).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut question = Vec::new();
        accepted.read_to_end(&mut question).await.unwrap();
        assert_eq!(question.len(), BYTES, "round {round}");
        accepted.write_all(b"answer").await.unwrap();
        drop(accepted);
        assert_eq!(sent.await.unwrap(), "answer", "round {round}");
    }
    let figures = stage.relays[0].balancer.relayed();
    assert!(figures.bytes > 3 * BYTES as u64, "{figures:?}");
    // One stream after the other on one connection, and the control connection.
    assert!(
        (1..=3).contains(&figures.calls) && figures.refused == 0,
        "{figures:?}"
    );
    // The second one is there for the case that the first one goes.
    assert_eq!(stage.relays[1].balancer.relayed().calls, 0);
}

#[tokio::test]
async fn where_one_that_passes_on_goes_the_other_takes_over() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    let peer = stage.near.peer(&stage.far);
    let first = peer.connect(opening(REPLICA)).await.unwrap();
    assert_eq!(stage.relays[1].balancer.relayed().calls, 0);
    // It passes nothing on any more; what it has goes on.
    let relay = &stage.relays[0];
    relay.serve(&[], vec![]).await;
    let second = peer.connect(opening(REPLICA)).await.unwrap();
    assert!(stage.relays[1].balancer.relayed().calls >= 1);
    drop((first, second));
}

#[tokio::test]
async fn one_that_passes_on_calls_the_node_itself() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    let relay = &stage.relays[0];
    let addr = reserve(Protocol::Tcp);
    let there = endpoint(addr, Protocol::Tcp, vec![there(REPLICA, &stage.far)]);
    let table = stage.called(relay.table(&[&stage.relays[1]], vec![there]));
    relay.apply(duty(table, FREE)).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    // Nothing has passed through anybody.
    assert_eq!(relay.balancer.relayed().bytes, 0);
}

#[tokio::test]
async fn a_reset_stays_one() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    let mut client = TcpStream::connect(stage.addr).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    reset(client);
    let ended = accepted.read_u8().await.unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn datagrams_pass_too() {
    let server = UdpSocket::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Udp, server.local_addr().unwrap(), FREE).await;
    let client = UdpSocket::bind(LOCAL).await.unwrap();
    client.connect(stage.addr).await.unwrap();
    client.send(b"question").await.unwrap();
    let mut buffer = [0; 64];
    let (length, from) = server.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"question");
    server.send_to(b"answer", from).await.unwrap();
    let length = client.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"answer");
}

#[tokio::test]
async fn a_removed_node_is_cut_and_stays_out() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    let mut client = TcpStream::connect(stage.addr).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    for relay in &stage.relays {
        let mut table = duty(relay.table(&[], vec![]), FREE);
        table.mesh.as_mut().unwrap().removed = vec![stage.far.number];
        relay.apply(table).await;
    }
    assert!(client.read_u8().await.is_err());
    let refused = stage.near.peer(&stage.far).connect(opening(REPLICA)).await;
    assert!(refused.is_err());
    while stage.relays[0].balancer.relayed().nodes != 0 {
        tokio::time::sleep(TIMING.beat).await;
    }
}

#[tokio::test]
async fn who_has_no_tunnel_is_not_called_and_who_has_no_duty_passes_nothing_on() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), FREE).await;
    // The caller's own node is named as a relay of one that has no tunnel.
    let mut table = stage.near.table(&[&stage.relays[0], &stage.far], vec![]);
    let mesh = table.mesh.as_mut().unwrap();
    mesh.peers[1].node = 5;
    mesh.relayed = [(6, vec![2]), (7, vec![5])]
        .map(|(node, relays)| RelayedPeer { node, relays })
        .into();
    stage.near.apply(table).await;
    let ask = async |node: u64| {
        stage
            .near
            .balancer
            .mesh
            .peer(node)
            .connect(opening(REPLICA))
            .await
    };
    let refused = ask(6).await.err().unwrap();
    assert!(matches!(refused, Refused::Relay { relay: 2, .. }), "{refused}");
    // Somebody who passes on and is not who it should be learns nothing: it is not spoken with.
    let refused = ask(7).await.err().unwrap();
    assert!(matches!(refused, Refused::OtherNode { node: 5 }), "{refused}");
    // A node that has no duty says so.
    let mut table = stage.near.table(&[&stage.far], vec![]);
    let mesh = table.mesh.as_mut().unwrap();
    mesh.relayed = vec![RelayedPeer {
        node: 8,
        relays: vec![stage.far.number],
    }];
    stage.near.apply(table).await;
    let refused = ask(8).await.err().unwrap();
    assert!(matches!(refused, Refused::Relay { relay: 4, .. }), "{refused}");
    assert!(
        refused.to_string().contains("no server that passes on"),
        "{refused}"
    );
}

#[tokio::test]
async fn no_more_passes_than_the_limit_lets() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    // A quarter of it passes at once: the handshakes, and then some.
    let stage = Stage::new(Protocol::Tcp, server.local_addr().unwrap(), 400_000).await;
    let client = TcpStream::connect(stage.addr).await.unwrap();
    let began = tokio::time::Instant::now();
    let (mut from, mut to) = client.into_split();
    let sending = tokio::spawn(async move {
        to.write_all(&vec![7; 300_000]).await.unwrap();
        to
    });
    let (mut accepted, _) = server.accept().await.unwrap();
    let mut read = vec![0; 300_000];
    accepted.read_exact(&mut read).await.unwrap();
    let passed = stage.relays[0].balancer.relayed().bytes;
    let most = 100_000 + 400_000 * u64::try_from(began.elapsed().as_millis()).unwrap() / 1000;
    // What was read ahead by both ends of the relay is counted before it is waited for.
    assert!(passed <= most + 2 * 65_536, "{passed} in {:?}", began.elapsed());
    drop(sending.await.unwrap());
    drop(accepted);
    assert_eq!(from.read(&mut [0]).await.unwrap(), 0);
}
