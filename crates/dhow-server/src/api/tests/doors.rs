//! The API's port with TLS: who is let through, and what stands in the way of strangers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dhow_core::ids::NodeId;
use dhow_wire::api::TokenCreated;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::support::World;
use crate::api::{ApiTls, BindError, Listeners, bind, serve};
use crate::net::keys::{ALPN_API, ClusterKey, NodeTls, client_config_pinned};

fn node(key: &ClusterKey, id: u64) -> NodeTls {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    NodeTls::new(key, NodeId(id), i64::try_from(now).unwrap()).unwrap()
}

struct Door {
    addr: SocketAddr,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

async fn open(world: &World, tls: &NodeTls, addr: &str) -> Door {
    let listeners = Listeners {
        socket: None,
        socket_group: None,
        tcp: vec![addr.parse().unwrap()],
        tls: Some(ApiTls::new(tls, &[]).unwrap()),
    };
    let bound = bind(&listeners).await.unwrap();
    let mut addr = bound.tcp_addrs()[0];
    if addr.ip().is_unspecified() {
        addr.set_ip([127, 0, 0, 1].into());
    }
    let cancel = CancellationToken::new();
    let task = tokio::spawn(serve(world.api.clone(), bound, cancel.clone()));
    Door { addr, cancel, task }
}

impl Door {
    async fn close(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    /// The status line of the answer over TLS, or none where the connection was refused.
    async fn status(&self, config: ClientConfig, head: &str) -> Option<String> {
        let connector = TlsConnector::from(Arc::new(config));
        let name = self.addr.ip().into();
        let stream = connector.connect(name, self.plain().await).await.ok()?;
        status(stream, head).await
    }
}

async fn status(mut io: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> Option<String> {
    let call = format!("{head}connection: close\r\n\r\n");
    io.write_all(call.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A refused certificate is an error here, an answer that was read whole is none.
    let _ = io.read_to_end(&mut answer).await;
    let line = String::from_utf8(answer).unwrap().lines().next()?.to_owned();
    Some(line)
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: dhow.example\r\n{more}")
}

const OK: Option<&str> = Some("HTTP/1.1 200 OK");

#[tokio::test]
async fn certificates_and_tokens_open_the_door() {
    let world = World::new().await;
    let key = ClusterKey::generate().unwrap();
    let (one, two) = (node(&key, 1), node(&key, 2));
    let door = open(&world, &one, "0.0.0.0:0").await;
    let nodes = get("/api/v1/nodes", "");
    let member = two.client_config_member(NodeId(1), &[b"http/1.1"]).unwrap();
    assert_eq!(door.status(member, &nodes).await.as_deref(), OK);
    let wrong_node = two.client_config_member(NodeId(3), &ALPN_API).unwrap();
    assert_eq!(door.status(wrong_node, &nodes).await, None);
    let pinned = || client_config_pinned(one.fingerprint()).unwrap();
    assert_eq!(door.status(pinned(), &get("/health", "")).await.as_deref(), OK);
    let refused = door.status(pinned(), &nodes).await;
    assert_eq!(refused.as_deref(), Some("HTTP/1.1 401 Unauthorized"));
    let created = world.post("/api/v1/tokens", r#"{"role":"read"}"#).await;
    let token = created.json::<TokenCreated>().token;
    let with_token = get("/api/v1/nodes", &format!("authorization: Bearer {token}\r\n"));
    assert_eq!(door.status(pinned(), &with_token).await.as_deref(), OK);
    let other = node(&ClusterKey::generate().unwrap(), 2);
    let mut other_cluster = pinned();
    other_cluster.client_auth_cert_resolver = Arc::clone(other.cert()) as _;
    assert_eq!(door.status(other_cluster, &nodes).await, None);
    let elsewhere = client_config_pinned(other.fingerprint()).unwrap();
    assert_eq!(door.status(elsewhere, &with_token).await, None);
    door.close().await;
}

/// What gRPC needs: HTTP/2 by its name in the handshake.
#[tokio::test]
async fn http_2_is_spoken_over_tls() {
    let world = World::new().await;
    let key = ClusterKey::generate().unwrap();
    let (one, two) = (node(&key, 1), node(&key, 2));
    let door = open(&world, &one, "127.0.0.1:0").await;
    let config = two.client_config_member(NodeId(1), &ALPN_API).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector
        .connect(door.addr.ip().into(), door.plain().await)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let asked = hyper::Request::get("https://node-1.dhow.internal/api/v1/nodes");
    let answer = sender
        .send_request(asked.body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    drop(sender);
    drop(answer);
    door.close().await;
    // It ends with the server, in whichever way.
    let _ = connection.await.unwrap();
}

#[tokio::test]
async fn an_open_address_speaks_tls_alone() {
    let world = World::new().await;
    let one = node(&ClusterKey::generate().unwrap(), 1);
    let door = open(&world, &one, "0.0.0.0:0").await;
    for head in [get("/health", ""), "\0".into(), "PRI * HTTP/2.0\r\n".into()] {
        assert_eq!(status(door.plain().await, &head).await, None);
    }
    let mut garbled = door.plain().await;
    garbled.write_all(&[0x16, 3, 1, 255, 255, 0, 0]).await.unwrap();
    drop(garbled);
    // One that says nothing does not hold up the others, nor the end.
    let silent = door.plain().await;
    let pinned = client_config_pinned(one.fingerprint()).unwrap();
    assert_eq!(door.status(pinned, &get("/health", "")).await.as_deref(), OK);
    door.close().await;
    drop(silent);
}

#[tokio::test]
async fn loopback_speaks_both() {
    let world = World::new().await;
    let one = node(&ClusterKey::generate().unwrap(), 1);
    let door = open(&world, &one, "127.0.0.1:0").await;
    let local = "GET /api/v1/nodes HTTP/1.1\r\nhost: localhost\r\n";
    let refused = Some("HTTP/1.1 401 Unauthorized");
    assert_eq!(status(door.plain().await, local).await.as_deref(), refused);
    let pinned = || client_config_pinned(one.fingerprint()).unwrap();
    assert_eq!(door.status(pinned(), local).await.as_deref(), refused);
    let created = world.post("/api/v1/tokens", r#"{"role":"admin"}"#).await;
    let token = created.json::<TokenCreated>().token;
    let local = format!("{local}authorization: Bearer {token}\r\n");
    assert_eq!(status(door.plain().await, &local).await.as_deref(), OK);
    assert_eq!(door.status(pinned(), &local).await.as_deref(), OK);
    let internal = format!(
        "POST /api/v1/internal/scale HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\
         authorization: Bearer {token}\r\n"
    );
    let refused = status(door.plain().await, &internal).await;
    assert_eq!(refused.as_deref(), Some("HTTP/1.1 403 Forbidden"));
    door.close().await;
}

#[tokio::test]
async fn an_open_address_without_a_key_is_not_bound() {
    let listeners = Listeners {
        tcp: vec!["0.0.0.0:0".parse().unwrap()],
        ..Listeners::default()
    };
    let refused = bind(&listeners).await.unwrap_err();
    assert!(matches!(refused, BindError::NotLoopback { .. }));
    assert!(refused.to_string().contains("dhow cluster keygen"), "{refused}");
}
