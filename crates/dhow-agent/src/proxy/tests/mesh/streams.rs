//! Bytes, ends and resets through a tunnel.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::table::{Backend, Protocol};

async fn connected() -> (Node, Node, TcpStream, TcpStream) {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, far, addr) = pair(Protocol::Tcp, server.local_addr().unwrap()).await;
    let client = TcpStream::connect(addr).await.unwrap();
    let (accepted, _) = server.accept().await.unwrap();
    (near, far, client, accepted)
}

#[tokio::test]
async fn each_direction_ends_by_itself_and_the_connection_is_used_again() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, far, addr) = pair(Protocol::Tcp, server.local_addr().unwrap()).await;
    for round in 0..3 {
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut question = String::new();
        accepted.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question", "round {round}");
        // The client has closed its side and hears the answer all the same.
        accepted.write_all(b"answer").await.unwrap();
        drop(accepted);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer", "round {round}");
    }
    // Streams and the control connection: had each stream its own, there would be four.
    assert!(near.peer(&far).open_connections() <= 2);
}

#[tokio::test]
async fn many_bytes_come_as_they_were_sent() {
    const BYTES: usize = 8 << 20;
    // Made before there are connections: whoever is busy with that is silent, and is believed to be gone.
    let all: Vec<u8> = (0..BYTES).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
    let all = all.as_slice();
    let (_near, _far, client, accepted) = connected().await;
    let send = |mut stream: tokio::net::tcp::OwnedWriteHalf| async move {
        // Odd pieces, so that frames and records begin anywhere.
        for piece in all.chunks(70_001) {
            stream.write_all(piece).await.unwrap();
        }
        stream.shutdown().await.unwrap();
    };
    let receive = |mut stream: tokio::net::tcp::OwnedReadHalf| async move {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), BYTES);
        assert!(received == all);
    };
    let (from_client, to_server) = client.into_split();
    let (from_server, to_client) = accepted.into_split();
    tokio::join!(
        send(to_server),
        receive(from_client),
        send(to_client),
        receive(from_server)
    );
}

#[tokio::test]
async fn a_reset_of_the_client_is_one_for_the_replica() {
    let (_near, _far, mut client, mut accepted) = connected().await;
    client.write_all(b"begun").await.unwrap();
    let mut begun = [0; 5];
    accepted.read_exact(&mut begun).await.unwrap();
    reset(client);
    let ended = accepted.read(&mut begun).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reset_of_the_replica_is_one_for_the_client() {
    let (_near, _far, mut client, mut accepted) = connected().await;
    accepted.write_all(b"begun").await.unwrap();
    let mut begun = [0; 5];
    client.read_exact(&mut begun).await.unwrap();
    reset(accepted);
    let ended = client.read(&mut begun).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn five_stalled_readers_slow_nobody() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (_near, _far, addr) = pair(Protocol::Tcp, server.local_addr().unwrap()).await;
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let client = TcpStream::connect(addr).await.unwrap();
        let (accepted, _) = server.accept().await.unwrap();
        // Until nothing more fits anywhere on the way: the replica does not read.
        loop {
            let filled = tokio::time::timeout(std::time::Duration::from_millis(200), client.writable()).await;
            if filled.is_err() {
                break;
            }
            let _ = client.try_write(&[7; 65_536]);
        }
        stalled.push((client, accepted));
    }
    let mut client = TcpStream::connect(addr).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    for _ in 0..100 {
        client.write_all(b"ping").await.unwrap();
        let mut ping = [0; 4];
        accepted.read_exact(&mut ping).await.unwrap();
        accepted.write_all(b"pong").await.unwrap();
        client.read_exact(&mut ping).await.unwrap();
        assert_eq!(&ping, b"pong");
    }
}

#[tokio::test]
async fn a_replica_that_drains_keeps_its_streams_and_its_node_says_so() {
    let (one, other) = (
        TcpListener::bind(LOCAL).await.unwrap(),
        TcpListener::bind(LOCAL).await.unwrap(),
    );
    let cluster = Cluster::new();
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    let (near_addr, far_addr) = (reserve(Protocol::Tcp), reserve(Protocol::Tcp));
    let here = |id: &str, server: &TcpListener, draining| Backend {
        draining,
        ..Backend::here(id, server.local_addr().unwrap())
    };
    let far_has = |draining| {
        let backends = vec![
            here("shop/db-default-0@1", &one, draining),
            here("shop/db-default-1@1", &other, false),
        ];
        vec![endpoint(far_addr, Protocol::Tcp, backends)]
    };
    far.serve(&[&near], far_has(false)).await;
    let both = vec![
        there("shop/db-default-0@1", &far),
        there("shop/db-default-1@1", &far),
    ];
    near.serve(&[&far], vec![endpoint(near_addr, Protocol::Tcp, both)])
        .await;
    // The first choice is the first one, and then the other is less busy.
    let mut first = TcpStream::connect(near_addr).await.unwrap();
    let (mut on_one, _) = one.accept().await.unwrap();
    far.serve(&[&near], far_has(true)).await;
    // The near node's table says nothing of it yet.
    loop {
        let status = near.balancer.status().await;
        let known = status
            .backends
            .iter()
            .find(|backend| backend.id == "shop/db-default-0@1");
        if known.unwrap().draining {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    for _ in 0..4 {
        let _next = TcpStream::connect(near_addr).await.unwrap();
        other.accept().await.unwrap();
    }
    first.write_all(b"x").await.unwrap();
    assert_eq!(on_one.read_u8().await.unwrap(), b'x');
    let ids = ["shop/db-default-0@1".to_owned()];
    let now = tokio::time::Instant::now();
    assert!(far.balancer.wait_drained(&ids, now).await.is_empty());
    drop((first, on_one));
    let later = now + std::time::Duration::from_secs(60);
    assert_eq!(far.balancer.wait_drained(&ids, later).await, ids);
}

#[tokio::test]
async fn a_renewed_certificate_drops_no_stream() {
    let cluster = Cluster::new();
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    let (near_addr, far_addr) = (reserve(Protocol::Tcp), reserve(Protocol::Tcp));
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    far.serve(&[&near], vec![endpoint(far_addr, Protocol::Tcp, vec![here])])
        .await;
    near.serve(
        &[&far],
        vec![endpoint(near_addr, Protocol::Tcp, vec![there(REPLICA, &far)])],
    )
    .await;
    let mut client = TcpStream::connect(near_addr).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    for node in [&near, &far] {
        let renewed = cluster.identity(node.number);
        node.balancer.identify(&renewed).unwrap();
    }
    client.write_all(b"x").await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    let mut next = TcpStream::connect(near_addr).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    next.write_all(b"y").await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'y');
}
