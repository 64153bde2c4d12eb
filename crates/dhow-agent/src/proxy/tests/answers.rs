//! Answers of replicas as they really come: in pieces, early, without a length, or not HTTP at all.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;
use crate::proxy::table::Protocol;

const HTTP: Protocol = Protocol::Http;

/// Reads the head of a request; what follows it stays unread. An error where the other side goes first.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// Behind a proxy: a replica that answers every request with these pieces, each in a packet of its own, and closes or not.
async fn replica(pieces: Vec<&'static str>, closes: bool) -> (Bench, SocketAddr) {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let bench = Bench::new();
    let replica = backend("a", server.local_addr().unwrap());
    let addr = bench.listen(HTTP, vec![route(vec![replica])]).await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let pieces = pieces.clone();
            tokio::spawn(async move {
                while read_head(&mut stream).await.is_ok() {
                    for piece in &pieces {
                        stream.write_all(piece.as_bytes()).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    if closes {
                        return;
                    }
                }
            });
        }
    });
    (bench, addr)
}

#[tokio::test]
async fn answers_of_every_form_are_passed_on() {
    for (pieces, closes) in [
        (vec!["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"], false),
        (
            vec!["HTTP/1.1 200 OK\r\nconte", "nt-length: 5\r\n\r", "\nhel", "lo"],
            false,
        ),
        (
            vec![
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            ],
            false,
        ),
        (
            vec![
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n",
                "3;x=y\r\nllo\r\n",
                "0\r\nx-sum: 1\r\n\r\n",
            ],
            false,
        ),
        (vec!["HTTP/1.1 200 OK\r\n\r\nhel", "lo"], true),
        (vec!["HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello"], true),
        (
            vec!["HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"],
            true,
        ),
    ] {
        let (_bench, addr) = replica(pieces.clone(), closes).await;
        let mut client = Client::connect(addr).await;
        for _ in 0..3 {
            let answer = client.get("/").await;
            assert_eq!(
                (answer.status, answer.text.as_str()),
                (StatusCode::OK, "hello"),
                "{pieces:?}"
            );
            assert!(!answer.headers.contains_key("link"), "{pieces:?}");
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_usable() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    let (_bench, addr) = replica(vec![text], false).await;
    let mut client = Client::connect(addr).await;
    for _ in 0..3 {
        let request = Request::builder()
            .method(Method::HEAD)
            .uri("/")
            .header("host", "h");
        let answer = client.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(answer.headers.get("content-length").unwrap(), "5");
        assert_eq!(answer.text, "");
    }
    for text in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n",
    ] {
        let (_bench, addr) = replica(vec![text], false).await;
        let mut client = Client::connect(addr).await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await.text, "");
        }
    }
}

#[tokio::test]
async fn what_is_no_answer_is_told_and_never_passed_on() {
    const FORM: &str = "the replica's answer is not HTTP/1\n";
    const LENGTH: &str = "the replica's answer says in two ways where it ends\n";
    const CODING: &str = "the replica's answer has a transfer coding that nobody asked for\n";
    for (text, why) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", FORM),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
            LENGTH,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            LENGTH,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            CODING,
        ),
        ("HTTP/1.1 200 OK\r\na: b\r\n c: d\r\n\r\n", FORM),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n",
            "the replica has answered something that nobody asked for\n",
        ),
    ] {
        let (_bench, addr) = replica(vec![text], false).await;
        let answer = Client::connect(addr).await.get("/").await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{text}");
        assert_eq!(answer.text, why, "{text}");
    }
}

/// What comes after an answer is no answer to the next request.
#[tokio::test]
async fn what_a_replica_says_unasked_is_heard_by_nobody() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nb";
    let (_bench, addr) = replica(vec![text], false).await;
    let mut client = Client::connect(addr).await;
    for _ in 0..5 {
        assert_eq!(client.get("/").await.text, "a");
    }
}

/// A replica that echoes without waiting for the end, and a client that reads only once it has sent all: what is between
/// them must not hold one back for the other.
#[tokio::test]
async fn a_request_goes_on_while_its_answer_waits() {
    const BYTES: usize = 8 << 20;
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let bench = Bench::new();
    let replica = backend("a", server.local_addr().unwrap());
    let addr = bench.listen(HTTP, vec![route(vec![replica])]).await;
    let served = tokio::spawn(async move {
        let (mut stream, _) = server.accept().await.unwrap();
        let head = read_head(&mut stream).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
        writer.write_all(answer.as_bytes()).await.unwrap();
        let reading = async {
            let mut body = vec![0; BYTES];
            reader.read_exact(&mut body).await.unwrap();
            body.iter().all(|byte| *byte == 7)
        };
        let writing = async { writer.write_all(&vec![9; BYTES]).await.unwrap() };
        let (is_whole, ()) = tokio::join!(reading, writing);
        assert!(is_whole);
        head
    });
    let mut client = TcpStream::connect(addr).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {BYTES}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![7; BYTES]).await.unwrap();
    let answer = read_head(&mut client).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut body = vec![0; BYTES];
    client.read_exact(&mut body).await.unwrap();
    assert!(body.iter().all(|byte| *byte == 9));
    let head = served.await.unwrap();
    assert!(head.contains(&format!("content-length: {BYTES}\r\n")), "{head}");
}

/// A replica that closes idle connections, as servers do, costs nobody a request.
#[tokio::test]
async fn connections_that_the_replica_has_closed_are_not_used() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let (_bench, addr) = replica(vec![text], true).await;
    let mut client = Client::connect(addr).await;
    for _ in 0..20 {
        assert_eq!(client.get("/").await.text, "hello");
    }
}

/// Bodies reach the replica whole, whether their length was said or not.
#[tokio::test]
async fn bodies_are_sent_whole() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut client = Client::connect(addr).await;
    for length in [0, 1, 4096, 300_000] {
        let text = "x".repeat(length);
        let request = Request::post("/").header("host", "h");
        let answer = client
            .send(request.body(Full::new(Bytes::from(text.clone()))).unwrap())
            .await;
        let seen = answer.text.split(' ').nth(2).unwrap();
        assert_eq!(seen.len(), length);
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in text.as_bytes().chunks(70_000) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&chunk).await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(
            answer.matches('x').count() - answer.matches("x-").count(),
            length,
            "{length}"
        );
    }
}
