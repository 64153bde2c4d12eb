//! Datagrams through a tunnel.

use tokio::net::UdpSocket;

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::table::{Backend, Protocol};

#[tokio::test]
async fn datagrams_keep_their_lengths_and_each_source_its_session() {
    let echo = UdpSocket::bind(LOCAL).await.unwrap();
    let (near, _far, addr) = pair(Protocol::Udp, echo.local_addr().unwrap()).await;
    let mut sources = Vec::new();
    for client in 0..3u8 {
        let socket = UdpSocket::bind(LOCAL).await.unwrap();
        socket.connect(addr).await.unwrap();
        let mut from = Vec::new();
        for length in [1, 0, 1200, 9000, 40_000] {
            let question = vec![client; length];
            socket.send(&question).await.unwrap();
            let mut received = vec![0; 65_536];
            let (count, peer) = echo.recv_from(&mut received).await.unwrap();
            assert_eq!(received[..count], question);
            from.push(peer);
            echo.send_to(&received[..count], peer).await.unwrap();
            let count = socket.recv(&mut received).await.unwrap();
            assert_eq!(received[..count], question);
        }
        from.dedup();
        assert_eq!(from.len(), 1);
        sources.extend(from);
    }
    sources.dedup();
    assert_eq!(sources.len(), 3);
    let status = near.balancer.status().await;
    assert_eq!(status.backends[0].in_flight, 3);
}

#[tokio::test]
async fn a_refused_session_goes_to_another_replica_with_what_waits() {
    let cluster = Cluster::new();
    let server = UdpSocket::bind(LOCAL).await.unwrap();
    let (near, one, two) = (
        Node::start(&cluster, 1),
        Node::start(&cluster, 2),
        Node::start(&cluster, 3),
    );
    one.serve(&[], vec![]).await;
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    two.serve(
        &[],
        vec![endpoint(reserve(Protocol::Udp), Protocol::Udp, vec![here])],
    )
    .await;
    let addr = reserve(Protocol::Udp);
    let both = vec![there("shop/db-default-1@1", &one), there(REPLICA, &two)];
    near.serve(&[&one, &two], vec![endpoint(addr, Protocol::Udp, both)])
        .await;
    let client = UdpSocket::bind(LOCAL).await.unwrap();
    client.connect(addr).await.unwrap();
    client.send(b"once").await.unwrap();
    let mut received = [0; 16];
    let (count, peer) = server.recv_from(&mut received).await.unwrap();
    server.send_to(&received[..count], peer).await.unwrap();
    let count = client.recv(&mut received).await.unwrap();
    assert_eq!(&received[..count], b"once");
}
