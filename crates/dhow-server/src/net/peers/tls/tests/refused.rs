//! Everybody who is not let in. Whatever they send, the server goes on for its members.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{Server, ask, expired, greet, hello, key, raw, tls, transport, why};
use crate::net::keys::{ClusterKey, client_config_pinned};
use crate::net::peers::tls::hello::{Refusal, Reply};
use crate::net::peers::tls::limits::PER_MEMBER_MAX;
use crate::net::peers::tls::{frame, hello as form};

/// The server has refused so many, its handler heard nothing, and it still answers a member.
async fn goes_on(server: &Server, key: &ClusterKey, refused: u64) {
    server.has_refused(refused).await;
    let before = server.heard();
    let member = transport(1, tls(key, 1));
    assert_eq!(
        ask(&member, 2, server.addr, "still there?").await.unwrap(),
        "1: still there?"
    );
    assert_eq!(server.heard(), before + 1);
    assert_eq!(before, 0, "a stranger was heard");
}

/// Reads until the other end has closed.
async fn closed(io: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // An abort is as good as an end.
    let _ = io.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn another_clusters_key() {
    let (own, other) = (key(), key());
    let server = Server::start(2, tls(&own, 2)).await;
    let stranger = transport(1, tls(&other, 1));
    assert!(why(ask(&stranger, 2, server.addr, "hello").await).contains("another cluster"));
    goes_on(&server, &own, 1).await;
}

#[tokio::test]
async fn another_clusters_certificate_of_a_caller_that_believes_anything() {
    let (own, other) = (key(), key());
    let server = Server::start(2, tls(&own, 2)).await;
    let (own_tls, other_tls) = (tls(&own, 1), tls(&other, 1));
    let mut config = client_config_pinned(own_tls.fingerprint()).unwrap();
    config.alpn_protocols = vec![b"dhow-peer/1".to_vec()];
    config.client_auth_cert_resolver = Arc::clone(other_tls.cert()) as _;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut io = connector
        .connect("node".try_into().unwrap(), stream)
        .await
        .unwrap();
    closed(&mut io).await;
    goes_on(&server, &own, 1).await;
    assert_eq!(server.transport.0.options.refused.told(), 1);
}

#[tokio::test]
async fn a_certificate_whose_time_is_over() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let late = transport(1, expired(&key, 1));
    let told = why(ask(&late, 2, server.addr, "hello").await);
    assert!(told.to_lowercase().contains("expired"), "{told}");
    goes_on(&server, &key, 1).await;
    let late = Server::start(2, expired(&key, 2)).await;
    let told = why(ask(&transport(1, tls(&key, 1)), 2, late.addr, "hello").await);
    assert!(told.contains("expired"), "{told}");
    assert_eq!(late.heard(), 0);
}

#[tokio::test]
async fn a_node_of_another_cluster_with_the_same_key() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    server.set_cluster("c-1");
    let stranger = Server::start(1, tls(&key, 1)).await;
    stranger.set_cluster("c-2");
    assert!(why(ask(&stranger.transport, 2, server.addr, "hello").await).contains("another cluster"));
    // Who has not joined yet may speak.
    goes_on(&server, &key, 1).await;
}

#[tokio::test]
async fn a_server_that_is_not_the_one_meant() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let one = transport(1, tls(&key, 1));
    assert!(why(ask(&one, 3, server.addr, "hello").await).contains("another node"));
    goes_on(&server, &key, 1).await;
}

#[tokio::test]
async fn a_member_that_says_to_be_another() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let mut io = raw(&tls(&key, 1), 2, server.addr).await;
    assert_eq!(
        greet(&mut io, &hello(9, 2)).await,
        Reply::Refused(Refusal::Identity)
    );
    closed(&mut io).await;
    let mut io = raw(&tls(&key, 1), 2, server.addr).await;
    assert_eq!(greet(&mut io, &hello(1, 7)).await, Reply::Refused(Refusal::Node));
    closed(&mut io).await;
    goes_on(&server, &key, 2).await;
}

/// A gibibyte is announced, first as a hello and then as a question: not a byte of it is waited for.
#[tokio::test]
async fn a_length_beyond_all_limits() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let huge = (1_u32 << 30).to_be_bytes();
    let mut io = raw(&tls(&key, 1), 2, server.addr).await;
    io.write_all(&huge).await.unwrap();
    io.flush().await.unwrap();
    closed(&mut io).await;
    let mut io = raw(&tls(&key, 1), 2, server.addr).await;
    assert!(matches!(
        greet(&mut io, &hello(1, 2)).await,
        Reply::Welcome { .. }
    ));
    io.write_all(&huge).await.unwrap();
    io.flush().await.unwrap();
    closed(&mut io).await;
    goes_on(&server, &key, 2).await;
}

#[tokio::test]
async fn frames_that_are_none() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let mut newer = form::encode(&hello(1, 2));
    newer[4] = 2;
    let mut longer = form::encode(&hello(1, 2));
    longer.push(0);
    for first in [b"".to_vec(), b"GET / HTTP/1.1".to_vec(), newer, longer] {
        let mut io = raw(&tls(&key, 1), 2, server.addr).await;
        frame::write(&mut io, &first).await.unwrap();
        closed(&mut io).await;
    }
    let mut io = raw(&tls(&key, 1), 2, server.addr).await;
    greet(&mut io, &hello(1, 2)).await;
    frame::write(&mut io, b"short").await.unwrap();
    closed(&mut io).await;
    goes_on(&server, &key, 5).await;
}

#[tokio::test]
async fn bytes_without_tls() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let mut io = TcpStream::connect(server.addr).await.unwrap();
    io.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    closed(&mut io).await;
    let mut io = TcpStream::connect(server.addr).await.unwrap();
    frame::write(&mut io, &form::encode(&hello(1, 2))).await.unwrap();
    closed(&mut io).await;
    goes_on(&server, &key, 2).await;
}

/// Copies what a member sends on its way, and says it again to the server.
#[tokio::test]
async fn replayed_bytes() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = relay.local_addr().unwrap();
    let to = server.addr;
    let recording = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(to).await.unwrap();
        let mut sent = Vec::new();
        let (mut up, mut down) = ([0; 4_096], [0; 4_096]);
        loop {
            tokio::select! {
                count = near.read(&mut up) => match count.unwrap_or(0) {
                    0 => return sent,
                    count => {
                        sent.extend_from_slice(&up[..count]);
                        far.write_all(&up[..count]).await.unwrap();
                    }
                },
                count = far.read(&mut down) => near.write_all(&down[..count.unwrap()]).await.unwrap(),
            }
        }
    });
    let member = transport(1, tls(&key, 1));
    assert_eq!(ask(&member, 2, addr, "once").await.unwrap(), "1: once");
    drop(member);
    let sent = recording.await.unwrap();
    assert_eq!(server.heard(), 1);
    let mut again = TcpStream::connect(server.addr).await.unwrap();
    // The server may have closed before the last of it.
    let _ = again.write_all(&sent).await;
    closed(&mut again).await;
    server.has_refused(1).await;
    assert_eq!(server.heard(), 1, "a question was heard twice");
}

/// From the member's own address, and none of them ever says a word.
#[tokio::test]
async fn many_that_do_not_say_who_they_are() {
    const SILENT: usize = 100;
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(server.addr).await.unwrap());
    }
    let member = transport(1, tls(&key, 1));
    let answer = ask(&member, 2, server.addr, "let me in").await;
    assert_eq!(answer.unwrap(), "1: let me in");
    drop(silent);
    server.has_refused(SILENT as u64).await;
}

/// A member has its place for as long as it likes, but not those of others.
#[tokio::test]
async fn a_member_that_connects_for_ever_loses_its_oldest_connections() {
    let key = key();
    let server = Server::start(2, tls(&key, 2)).await;
    let other = transport(3, tls(&key, 3));
    ask(&other, 2, server.addr, "hello").await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..=PER_MEMBER_MAX {
        let mut io = raw(&tls(&key, 1), 2, server.addr).await;
        let welcome = greet(&mut io, &hello(1, 2)).await;
        assert!(matches!(welcome, Reply::Welcome { .. }));
        connections.push(io);
    }
    closed(&mut connections[0]).await;
    assert_eq!(
        ask(&other, 2, server.addr, "still there?").await.unwrap(),
        "3: still there?"
    );
    assert_eq!(other.counts(NodeId(2)).connected, 1);
}
