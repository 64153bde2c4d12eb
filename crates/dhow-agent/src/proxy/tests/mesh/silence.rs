//! A node that is there and says nothing: its replicas are passed over, its streams are cut.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::table::{Backend, Protocol};

/// Passes bytes to a node until it is told to hang: as a host does whose power is cut, or whose proxy is stopped.
struct Hanging {
    addr: std::net::SocketAddr,
    hang: tokio::sync::watch::Sender<bool>,
}

impl Hanging {
    async fn before(node: &Node) -> Self {
        let listener = TcpListener::bind(LOCAL).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (hang, hangs) = tokio::sync::watch::channel(false);
        let to = node.mesh;
        tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let Ok((mut from, _)) = listener.accept().await else {
                    return;
                };
                let mut hangs = hangs.clone();
                if *hangs.borrow() {
                    held.push(from);
                    continue;
                }
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(to).await.unwrap();
                    let hung = tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => false,
                        hung = hangs.wait_for(|hangs| *hangs) => hung.is_ok(),
                    };
                    if hung {
                        // Nothing passes, nothing is closed.
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { addr, hang }
    }
}

#[tokio::test]
async fn a_node_that_hangs_is_passed_over_and_its_streams_are_cut() {
    let cluster = Cluster::new();
    let (on_one, on_two) = (
        TcpListener::bind(LOCAL).await.unwrap(),
        TcpListener::bind(LOCAL).await.unwrap(),
    );
    let (near, one, two) = (
        Node::start(&cluster, 1),
        Node::start(&cluster, 2),
        Node::start(&cluster, 3),
    );
    for (node, server, id) in [
        (&one, &on_one, "shop/db-default-0@1"),
        (&two, &on_two, "shop/db-default-1@1"),
    ] {
        let here = Backend::here(id, server.local_addr().unwrap());
        let addr = reserve(Protocol::Tcp);
        node.serve(&[], vec![endpoint(addr, Protocol::Tcp, vec![here])])
            .await;
    }
    let hanging = Hanging::before(&one).await;
    let addr = reserve(Protocol::Tcp);
    let both = vec![
        there("shop/db-default-0@1", &one),
        there("shop/db-default-1@1", &two),
    ];
    let mut table = near.table(&[&one, &two], vec![endpoint(addr, Protocol::Tcp, both)]);
    table.mesh.as_mut().unwrap().peers[0].addr = hanging.addr;
    near.apply(table).await;
    let mut first = TcpStream::connect(addr).await.unwrap();
    let (mut replica, _) = on_one.accept().await.unwrap();
    // The stream is there to its other end.
    first.write_all(b"x").await.unwrap();
    assert_eq!(replica.read_u8().await.unwrap(), b'x');
    replica.write_all(b"y").await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'y');
    hanging.hang.send(true).unwrap();
    // Both ends of the stream learn of it.
    assert!(first.read_u8().await.is_err());
    assert!(replica.read_u8().await.is_err());
    assert!(near.peer(&one).is_silent());
    for _ in 0..4 {
        let _next = TcpStream::connect(addr).await.unwrap();
        on_two.accept().await.unwrap();
    }
    // It comes back by itself.
    let mut table = near.table(&[&one, &two], vec![]);
    table.mesh.as_mut().unwrap().peers[0].addr = one.mesh;
    near.apply(table).await;
    while near.peer(&one).is_silent() {
        tokio::time::sleep(TIMING.beat).await;
    }
    near.peer(&one)
        .connect(opening("shop/db-default-0@1"))
        .await
        .unwrap();
}
