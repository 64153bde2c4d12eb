//! Listeners, exec over an upgraded connection, and the end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use axum::http::Method;
use dhow_wire::api::{ExecClientFrame, ExecExit, ExecServerFrame, HistoryEntry, TokenCreated};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::{SHOP, World};
use crate::api::{BindError, Listeners, bind, serve};
use crate::net::node_door::ScriptedExec;

fn listeners(dir: &Path) -> Listeners {
    Listeners {
        socket: Some(dir.join("dhow.sock")),
        socket_group: None,
        tcp: vec!["127.0.0.1:0".parse().unwrap()],
        tls: None,
    }
}

struct Serving {
    socket: std::path::PathBuf,
    addr: std::net::SocketAddr,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

async fn start(world: &World, dir: &Path) -> Serving {
    let bound = bind(&listeners(dir)).await.unwrap();
    let addr = bound.tcp_addrs()[0];
    let cancel = CancellationToken::new();
    let task = tokio::spawn(serve(world.api.clone(), bound, cancel.clone()));
    let socket = dir.join("dhow.sock");
    Serving {
        socket,
        addr,
        cancel,
        task,
    }
}

/// Sends a request and reads until the end.
async fn exchange(mut io: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> String {
    io.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_socket_is_its_owners_and_says_who_called() {
    let world = World::new().await;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("dhow.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let serving = start(&world, dir.path()).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(matches!(
        bind(&listeners(dir.path())).await,
        Err(BindError::Served { .. })
    ));
    let call = format!(
        "POST /api/v1/deployments HTTP/1.1\r\nhost: anything\r\nconnection: close\r\n\
         content-type: application/yaml\r\ncontent-length: {}\r\n\r\n{SHOP}",
        SHOP.len()
    );
    let answer = exchange(UnixStream::connect(&path).await.unwrap(), &call).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    let own = nix::unistd::User::from_uid(nix::unistd::Uid::current()).unwrap();
    let own = own.map_or_else(
        || format!("uid {}", nix::unistd::Uid::current()),
        |user| format!("user {}", user.name),
    );
    assert_eq!(history[0].author, own);
    serving.cancel.cancel();
    serving.task.await.unwrap();
    assert!(!path.exists(), "the socket goes with the server");
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(
        bind(&listeners(dir.path())).await,
        Err(BindError::NoSocket { .. })
    ));
    let open = Listeners {
        socket: None,
        socket_group: None,
        tcp: vec!["0.0.0.0:0".parse().unwrap()],
        tls: None,
    };
    assert!(matches!(bind(&open).await, Err(BindError::NotLoopback { .. })));
}

#[tokio::test]
async fn loopback_keeps_web_pages_out_and_open_streams_end_with_the_server() {
    let world = World::new().await;
    let dir = TempDir::new().unwrap();
    let serving = start(&world, dir.path()).await;
    let connect = || async { TcpStream::connect(serving.addr).await.unwrap() };
    let call = |host: &str| format!("GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let answer = exchange(connect().await, &call("localhost")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = exchange(connect().await, &call("rebound.example")).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let nobody = "GET /api/v1/nodes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = exchange(connect().await, nobody).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let created = world.post("/api/v1/tokens", r#"{"role":"read"}"#).await;
    let token = created.json::<TokenCreated>().token;
    let mut stream = connect().await;
    let follow = format!(
        "GET /api/v1/events?follow=true HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(follow.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    serving.cancel.cancel();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    serving.task.await.unwrap();
    assert!(TcpStream::connect(serving.addr).await.is_err());
}

async fn upgraded(serving: &Serving, path: &str) -> (String, UnixStream) {
    let io = UnixStream::connect(&serving.socket).await.unwrap();
    upgraded_over(io, path, "").await
}

async fn upgraded_over<T: AsyncRead + AsyncWrite + Unpin>(mut io: T, path: &str, more: &str) -> (String, T) {
    let call = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: dhow-exec/1\r\n\
         {more}content-length: 0\r\n\r\n"
    );
    io.write_all(call.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), io)
}

async fn frame(io: &mut (impl AsyncRead + Unpin)) -> ExecServerFrame {
    let mut bytes = Vec::new();
    loop {
        if let Some((frame, _)) = ExecServerFrame::decode(&bytes).unwrap() {
            return frame;
        }
        bytes.push(io.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn a_command_runs_in_a_replica() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.door.set_exec(ScriptedExec {
        stdout: b"hello".to_vec(),
        exit: ExecExit::Code(3),
    });
    let dir = TempDir::new().unwrap();
    let serving = start(&world, dir.path()).await;
    let path = "/api/v1/deployments/shop/replicas/web-default-0/exec";
    let (head, mut io) = upgraded(&serving, &format!("{path}?command=sh&command=-c&stdin=true")).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(frame(&mut io).await, ExecServerFrame::Stdout(b"hello".to_vec()));
    io.write_all(&ExecClientFrame::Stdin(b"typed".to_vec()).encode())
        .await
        .unwrap();
    assert_eq!(frame(&mut io).await, ExecServerFrame::Stderr(b"typed".to_vec()));
    io.write_all(&ExecClientFrame::StdinEnd.encode()).await.unwrap();
    assert_eq!(frame(&mut io).await, ExecServerFrame::Exit(ExecExit::Code(3)));
    assert_eq!(
        io.read(&mut [0; 1]).await.unwrap(),
        0,
        "the exit is the last frame"
    );

    // One of a service is chosen and named.
    let of_service = path.replace("web-default-0", "web");
    let (head, mut io) = upgraded(&serving, &format!("{of_service}?command=sh")).await;
    assert!(head.contains("dhow-replica: web-default-0\r\n"), "{head}");
    assert_eq!(frame(&mut io).await, ExecServerFrame::Stdout(b"hello".to_vec()));
    // Nobody runs without the terminal that was asked for.
    let (head, _io) = upgraded(&serving, &format!("{path}?command=sh&terminal=xterm")).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");

    let (_, mut io) = upgraded(&serving, &format!("{path}?command=sh&stdin=true")).await;
    frame(&mut io).await;
    io.write_all(&[9, 0, 0, 0, 0]).await.unwrap();
    assert!(matches!(
        frame(&mut io).await,
        ExecServerFrame::Exit(ExecExit::Error(_))
    ));
    let (_, mut io) = upgraded(&serving, &format!("{path}?command=sh&stdin=true")).await;
    frame(&mut io).await;
    serving.cancel.cancel();
    assert!(matches!(
        frame(&mut io).await,
        ExecServerFrame::Exit(ExecExit::Error(_))
    ));
    serving.task.await.unwrap();
}

/// A command outlives no right to it: it ends with the token, revoked or expired.
#[tokio::test]
async fn a_command_ends_with_the_token_that_ran_it() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.door.set_exec(ScriptedExec {
        stdout: b"hello".to_vec(),
        exit: ExecExit::Code(0),
    });
    let dir = TempDir::new().unwrap();
    let serving = start(&world, dir.path()).await;
    let path = "/api/v1/deployments/shop/replicas/web-default-0/exec?command=sh&stdin=true";
    for expires in [false, true] {
        let body = match expires {
            false => r#"{"role":"admin","name":"ci"}"#,
            true => r#"{"role":"admin","name":"ci","ttl_secs":3600}"#,
        };
        let admin: TokenCreated = world.post("/api/v1/tokens", body).await.json();
        let io = TcpStream::connect(serving.addr).await.unwrap();
        let shown = format!("authorization: Bearer {}\r\n", admin.token);
        let (head, mut io) = upgraded_over(io, path, &shown).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let first = frame(&mut io).await;
        assert!(!matches!(first, ExecServerFrame::Exit(_)), "{first:?}");
        match expires {
            false => {
                let gone = world
                    .call(Method::DELETE, &format!("/api/v1/tokens/{}", admin.id), "")
                    .await;
                assert_eq!(gone.status, 200);
            }
            true => world.clock.advance(3_600_000),
        }
        let last = frame(&mut io).await;
        let ExecServerFrame::Exit(ExecExit::Error(why)) = &last else {
            panic!("{last:?}");
        };
        assert!(why.contains("revoked"), "{why}");
    }
    serving.cancel.cancel();
    serving.task.await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_run_is_told_before_the_upgrade() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", SHOP).await;
    world.wait_for_replicas(2).await;
    let path = |id: &str| format!("/api/v1/deployments/shop/replicas/{id}/exec");
    let run = |id: &str| format!("{}?command=sh", path(id));
    assert_eq!(
        world.post(&run("web-default-0"), "").await.problem(409).code,
        "refused"
    );
    world.happens(|_| true, &super::support::start_events()).await;
    world.post(&run("web-default-9"), "").await.problem(404);
    let wrong = format!("{}&terminal=x%20y", run("web-default-0"));
    assert!(world.post(&wrong, "").await.problem(400).detail.contains("xterm"));
    let wrong = format!("{}&terminal=xterm&rows=0", run("web-default-0"));
    assert!(
        world
            .post(&wrong, "")
            .await
            .problem(400)
            .detail
            .contains("`rows`")
    );
    world.post(&path("web-default-0"), "").await.problem(400);
    world
        .post(&format!("{}&stdin=perhaps", run("web-default-0")), "")
        .await
        .problem(400);
    let no_upgrade = world.post(&run("web-default-0"), "").await.problem(400);
    assert!(no_upgrade.detail.contains("dhow-exec/1"), "{}", no_upgrade.detail);
}

/// A refusal over HTTP/2 does not cut the body off, which would make clients forget its status.
#[tokio::test]
async fn a_body_that_nobody_wants_is_taken_to_its_end() {
    use axum::body::{Body, Bytes};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let world = World::new().await;
    let dir = TempDir::new().unwrap();
    let serving = start(&world, dir.path()).await;
    let stream = UnixStream::connect(dir.path().join("dhow.sock")).await.unwrap();
    let greeted = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = greeted.unwrap();
    let connection = tokio::spawn(connection);
    let (chunks, sent) = tokio::sync::mpsc::channel::<Bytes>(1);
    let sent = futures_util::stream::unfold(sent, |mut sent| async move {
        let chunk = sent.recv().await?;
        Some((Ok::<_, std::io::Error>(chunk), sent))
    });
    let request =
        hyper::Request::post("http://localhost/api/v1/nothing").header("content-type", "application/json");
    let request = request.body(Body::from_stream(sent));
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 404);
    // Far more than a stream may have on its way: it is read at the other end.
    for _ in 0..64 {
        chunks.send(Bytes::from(vec![0; 16 * 1024])).await.unwrap();
    }
    drop(chunks);
    drop((answer, sender));
    connection.await.unwrap().unwrap();
    serving.cancel.cancel();
    serving.task.await.unwrap();
}
