//! HTTP through a tunnel: connections are kept, bodies are streamed.

use http_body_util::BodyExt;
use hyper::Request;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::{Client, LOCAL, Server};
use super::nodes::*;
use crate::proxy::table::{Backend, Protocol};

#[tokio::test]
async fn requests_of_a_kept_connection_share_one_stream() {
    let server = Server::start("a").await;
    let (near, far, addr) = pair(Protocol::Http, server.addr).await;
    let mut client = Client::connect(addr).await;
    for _ in 0..20 {
        assert_eq!(client.get("/").await.server(), "a");
    }
    // One stream and the control connection.
    assert!(near.peer(&far).open_connections() <= 2);
    let status = far.balancer.status().await;
    assert_eq!(status.backends[0].total, 1);
}

#[tokio::test]
async fn a_proxy_that_is_replaced_is_left_by_those_who_call_it() {
    let server = Server::start("a").await;
    let (near, far, addr) = pair(Protocol::Http, server.addr).await;
    let mut idle = Client::connect(addr).await;
    idle.get("/").await;
    let mut busy = Client::connect(addr).await;
    let asked = tokio::spawn(async move {
        let first = busy.get("/gate").await;
        (first, busy)
    });
    server.arrived.notified().await;
    // The control connection is there: what is said on it is heard.
    while !near.peer(&far).is_heard() {
        tokio::task::yield_now().await;
    }
    far.balancer.end().await;
    server.gate.add_permits(1);
    let (answer, _busy) = asked.await.unwrap();
    assert_eq!(answer.server(), "a");
    // Kept connections would hold it for as long as they are used.
    far.balancer.finished().await;
}

#[tokio::test]
async fn idle_connections_to_a_draining_replica_are_closed_and_requests_go_elsewhere() {
    let cluster = Cluster::new();
    let (one, other) = (Server::start("one").await, Server::start("other").await);
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    let (near_addr, far_addr) = (reserve(Protocol::Http), reserve(Protocol::Http));
    let ids = ["shop/db-default-0@1", "shop/db-default-1@1"];
    let far_has = |draining| {
        let first = Backend {
            draining,
            ..Backend::here(ids[0], one.addr)
        };
        vec![endpoint(
            far_addr,
            Protocol::Http,
            vec![first, Backend::here(ids[1], other.addr)],
        )]
    };
    far.serve(&[&near], far_has(false)).await;
    let both = ids.map(|id| there(id, &far)).to_vec();
    near.serve(&[&far], vec![endpoint(near_addr, Protocol::Http, both)])
        .await;
    let mut client = Client::connect(near_addr).await;
    for _ in 0..8 {
        client.get("/").await;
    }
    far.serve(&[&near], far_has(true)).await;
    // The near node's kept connections would hold it for ever.
    let later = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let drained = far.balancer.wait_drained(&[ids[0].to_owned()], later).await;
    assert_eq!(drained, [ids[0]]);
    for _ in 0..8 {
        assert_eq!(client.get("/").await.server(), "other");
    }
}

#[tokio::test]
async fn a_large_body_passes_without_being_held() {
    const PIECE: usize = 1 << 16;
    const PIECES: usize = 1024;
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (_near, _far, addr) = pair(Protocol::Http, server.local_addr().unwrap()).await;
    let (sent, mut progress) = tokio::sync::watch::channel(0usize);
    tokio::spawn(async move {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", PIECE * PIECES);
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in 1..=PIECES {
            stream.write_all(&[7; PIECE]).await.unwrap();
            sent.send_replace(piece);
        }
        // Until the client has read all.
        let _ = stream.read(&mut request).await;
    });
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get("/").header("host", "x").body(String::new()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    // While the client does not read, the server gets rid of what sockets and one buffer hold, and of no more.
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    while tokio::time::timeout(std::time::Duration::from_millis(300), progress.changed())
        .await
        .is_ok()
    {}
    let held = *progress.borrow() * PIECE;
    assert!(held < 48 << 20, "{held}");
    let rest = body.collect().await.unwrap().to_bytes().len();
    assert_eq!(first + rest, PIECE * PIECES);
}
