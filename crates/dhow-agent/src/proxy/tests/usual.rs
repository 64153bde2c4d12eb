//! Requests that are read without hyper, beside the same ones that hyper reads: a client sees no difference, however its bytes
//! come.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;
use crate::proxy::table::Protocol;

const HTTP: Protocol = Protocol::Http;

/// A request that hyper answers, and with it all that follow on the connection.
const OPENER: &str = "GET /opener HTTP/1.1\r\nhost: h\r\nupgrade: never\r\n\r\n";

async fn serve() -> (Server, Bench, SocketAddr) {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let routes = vec![
        route_for("all", None, None, vec![backend("a", server.addr)]),
        route_for("gone", None, Some("/gone"), Vec::new()),
    ];
    let addr = bench.listen(HTTP, routes).await;
    (server, bench, addr)
}

/// One answer: its status, its headers but for the date, and its body.
async fn answer(stream: &mut TcpStream, is_head: bool) -> Option<(String, Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().to_owned();
    let mut headers: Vec<String> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            format!("{}: {value}", name.to_ascii_lowercase())
        })
        .collect();
    headers.sort();
    let dates = headers.extract_if(.., |line| line.starts_with("date: ")).count();
    // What is said before an answer has none.
    assert_eq!(dates, usize::from(!status.ends_with(" 100 Continue")), "{head}");
    let length = headers
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; if is_head { 0 } else { length }];
    stream.read_exact(&mut body).await.ok()?;
    Some((status, headers, body))
}

/// All answers to these bytes, which are sent in pieces.
async fn answers(
    addr: SocketAddr,
    opener: &str,
    text: &str,
    stride: usize,
) -> Vec<(String, Vec<String>, Vec<u8>)> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    if !opener.is_empty() {
        stream.write_all(opener.as_bytes()).await.unwrap();
        answer(&mut stream, false).await.unwrap();
    }
    let is_head = text.starts_with("HEAD");
    let (mut reader, mut writer) = stream.into_split();
    let text = text.to_owned();
    let writing = tokio::spawn(async move {
        for piece in text.as_bytes().chunks(stride) {
            // Whoever is refused is not read to its end.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = writer.shutdown().await;
        writer
    });
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes).await;
    drop(writing.await.unwrap());
    let listener = TcpListener::bind(LOCAL).await.unwrap();
    let mut again = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut sent, _) = listener.accept().await.unwrap();
    tokio::spawn(async move {
        let _ = again.write_all(&bytes).await;
    });
    let mut answers = Vec::new();
    while let Some(answer) = answer(&mut sent, is_head).await {
        answers.push(answer);
    }
    answers
}

#[tokio::test]
async fn a_client_sees_no_difference() {
    let (_server, _bench, addr) = serve().await;
    let get = "GET /x?y=1 HTTP/1.1\r\nHost: shop.test\r\nX-Forwarded-For: 192.0.2.7\r\nTE: trailers\r\n\r\n";
    let post = "POST /x HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 4\r\n\r\nbody";
    let closing = "GET /c HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n";
    let inner = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for text in [
        get.to_owned(),
        post.to_owned(),
        closing.to_owned(),
        [get, post, get, closing].concat(),
        // What follows the last one is heard by nobody.
        [post, closing, get].concat(),
        "HEAD / HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.0\r\n\r\n{inner}"),
        format!(
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{inner}",
            inner.len()
        ),
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n{get}"),
        format!("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{get}"),
        format!(
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nbody{inner}"),
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4, 4\r\n\r\nbody{inner}"),
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length : 4\r\n\r\nbody{inner}"),
        format!("GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n{inner}"),
        format!("GET / HTTP/1.1\nhost: h\n\n{get}"),
        format!("\r\n\r\n{get}\r\n{get}"),
        format!("{get}GET / HTTP/1.1\r\n\r\n{inner}"),
        format!("{get}GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n{inner}"),
        format!("{get}GET / HTTP/1.1\r\nhost: a/b\r\n\r\n{inner}"),
        format!("{get}nonsense\r\n\r\n{inner}"),
        format!("{get}\0\0\0\0"),
        format!("{get}GET / HT"),
        "GET http://h/x HTTP/1.1\r\nhost: other\r\n\r\n".to_owned(),
        "GET //a/../b HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
        "GET /a b HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
        "GET /%67one HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
        "CONNECT h:80 HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nhost: h\r\nx_forwarded_for: a\r\nx-real-ip: b\r\nx_api_key: c\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: x-mine, content-length\r\nx-mine: 1\r\n\r\n".to_owned(),
    ] {
        let expected = answers(addr, OPENER, &text, text.len()).await;
        let nothing = answers(addr, "", &text, text.len()).await;
        assert_eq!(nothing, expected, "{text}");
        for (status, _, body) in &expected {
            let body = String::from_utf8_lossy(body);
            assert!(
                !body.contains("/smuggled") || body.contains(inner),
                "{status} {body}"
            );
        }
        for stride in [1, 2, 7, 33] {
            assert_eq!(
                answers(addr, "", &text, stride).await,
                expected,
                "{stride}: {text}"
            );
        }
    }
}

/// Lines that are odd, or mean more than others, each in requests that are usual without it.
const LINES: [&str; 44] = [
    "Host: h",
    "Host: other",
    "Content-Length: 0",
    "Content-Length: 5",
    "content-length: +4",
    "content-length: 4, 4",
    "Content-Length:4 ",
    "Content-Length:\t4",
    "Content-Length: 04",
    "content-length: ",
    "content-length: 4\r\ncontent-length: 4",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "transfer-encoding: identity",
    "Transfer-Encoding : chunked",
    "transfer-encoding: chunked\r\ncontent-length: 4",
    "TE: trailers",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: x, close",
    "Connection: upgrade",
    "Connection: host, content-length",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Expect: else",
    "Keep-Alive: 5",
    "Trailer: x",
    "HTTP2-Settings: AA",
    "Proxy-Authorization: x",
    "X-Forwarded-For: 192.0.2.1",
    "x_forwarded_for: 192.0.2.1",
    "Forwarded: for=192.0.2.1",
    "Cookie: a=b\r\nCookie: c=d",
    "x: ",
    "x : y",
    " folded",
    "\tfolded",
    "x: a\rb",
    "x: a\nb",
    "x: \0",
    "no colon",
    ": empty",
    "x\u{e9}: y",
];

#[tokio::test]
async fn odd_lines_mean_the_same_either_way() {
    let (_server, _bench, addr) = serve().await;
    let inner = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for line in LINES {
        for (method, length) in [("GET", ""), ("POST", "content-length: 4\r\n"), ("POST", "")] {
            let head = format!("{method} /x HTTP/1.1\r\nhost: h\r\n{length}{line}\r\n\r\n");
            let text = format!("{head}body{inner}");
            let expected = answers(addr, OPENER, &text, text.len()).await;
            assert_eq!(answers(addr, "", &text, text.len()).await, expected, "{text:?}");
            assert_eq!(answers(addr, "", &text, 9).await, expected, "{text:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_backend_it_is_the_same() {
    let (_server, _bench, addr) = serve().await;
    for text in [
        "GET /gone HTTP/1.1\r\nhost: h\r\n\r\n",
        "HEAD /gone HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    ] {
        let expected = answers(addr, OPENER, text, text.len()).await;
        assert!(expected[0].0.starts_with("HTTP/1.1 503 "), "{expected:?}");
        assert_eq!(answers(addr, "", text, text.len()).await, expected);
    }
}

/// A body that comes in its own time is passed on as it comes, and one that is here goes with its head.
#[tokio::test]
async fn a_body_that_comes_later_arrives() {
    let (_server, _bench, addr) = serve().await;
    for length in [10, 20_000, 100_000] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        // Longer than anybody waits for it with the head.
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(&vec![b'x'; length - 1]).await.unwrap();
        for _ in 0..2 {
            let (status, _, body) = answer(&mut stream, false).await.unwrap();
            assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
            let seen = String::from_utf8(body).unwrap();
            assert_eq!(seen.split(' ').nth(2).unwrap().len(), length);
            let request = format!("{head}{}", "y".repeat(length));
            stream.write_all(request.as_bytes()).await.unwrap();
        }
    }
}

/// A replica for one connection after the other, which says what it is told to each request and then goes or stays.
async fn replica(said: Vec<u8>, goes: bool) -> (Bench, SocketAddr) {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let bench = Bench::new();
    let addr = bench
        .listen(
            HTTP,
            vec![route(vec![backend("a", server.local_addr().unwrap())])],
        )
        .await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            let said = said.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        if stream.write_all(&said).await.is_err() || goes {
                            return;
                        }
                    }
                }
            });
        }
    });
    (bench, addr)
}

/// Every connection of such a replica is closed when it is taken again, whether that is known by then or not.
#[tokio::test]
async fn a_replica_that_goes_after_each_answer_costs_nobody_a_request() {
    let said = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec();
    let (_bench, addr) = replica(said, true).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..16 {
        asking.spawn(async move {
            let mut client = Client::connect(addr).await;
            for _ in 0..50 {
                let answer = client.get("/").await;
                assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "hello"));
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

/// A replica that ends with a request instead of answering it is asked twice more at most, by who may ask again at all, and
/// whether its connection was looked at before or not.
#[tokio::test]
async fn what_kills_a_replica_is_sent_no_oftener_than_it_may() {
    for (method, times) in [("GET", 3), ("POST", 1)] {
        let server = TcpListener::bind(LOCAL).await.unwrap();
        let bench = Bench::new();
        let behind = backend("a", server.local_addr().unwrap());
        let addr = bench.listen(HTTP, vec![route(vec![behind])]).await;
        let (asked, mut seen) = tokio::sync::mpsc::channel(16);
        tokio::spawn(async move {
            let mut answers = vec!["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"];
            loop {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    head.clear();
                    asked.send(()).await.unwrap();
                    let Some(answer) = answers.pop() else { break };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let get = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        let next = format!("{method} / HTTP/1.1\r\nhost: h\r\n\r\n");
        // Both at once: the connection is taken again as soon as it is free.
        stream.write_all(format!("{get}{next}").as_bytes()).await.unwrap();
        let (status, _, _) = answer(&mut stream, false).await.unwrap();
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
        let (status, _, _) = answer(&mut stream, false).await.unwrap();
        assert!(status.starts_with("HTTP/1.1 502 "), "{status}");
        let mut count = 0;
        while seen.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, 1 + times, "{method}");
    }
}

/// What is much is passed on as it comes, in chunks where its length is not known.
#[tokio::test]
async fn long_answers_arrive_whole() {
    const BYTES: usize = 3 << 20;
    let body: Vec<u8> = (0..BYTES).map(|number| b'a' + (number % 23) as u8).collect();
    let exact = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
    let mut chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n".to_vec();
    for piece in body.chunks(70_001) {
        chunked.extend(format!("{:x};a=b\r\n", piece.len()).as_bytes());
        chunked.extend(piece);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\nx-sum: 1\r\n\r\n");
    let closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    for (said, goes) in [
        ([exact.as_bytes(), &body].concat(), false),
        (chunked, false),
        ([closing, body.clone()].concat(), true),
    ] {
        let (_bench, addr) = replica(said, goes).await;
        let mut client = Client::connect(addr).await;
        for _ in 0..3 {
            let answer = client.get("/").await;
            assert_eq!(answer.status, StatusCode::OK);
            assert!(answer.text.as_bytes() == body);
        }
    }
}

/// An answer that breaks off does not end for the client as if it were whole.
#[tokio::test]
async fn what_breaks_off_is_cut() {
    for (said, begins) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome",
            "content-length: 9",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n",
            "transfer-encoding: chunked",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\nno chunk",
            "transfer-encoding: chunked",
        ),
    ] {
        let (_bench, addr) = replica(said.as_bytes().to_vec(), true).await;
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            .await
            .unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        let got = String::from_utf8(got).unwrap();
        assert!(got.contains(begins) && got.contains("some"), "{got}");
        assert!(!got.contains("0\r\n\r\n"), "{got}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_asked_and_is_idle_is_let_go_in_time() {
    let (_server, _bench, addr) = serve().await;
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let get = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    for _ in 0..3 {
        stream.write_all(get).await.unwrap();
        assert!(answer(&mut stream, false).await.is_some());
    }
    // A part of a request keeps nobody longer.
    stream.write_all(&get[..9]).await.unwrap();
    let begin = tokio::time::Instant::now();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    assert!(begin.elapsed() <= Duration::from_secs(60));
}

/// Whoever sends bytes one by one for ever is read no further than a head may be long.
#[tokio::test]
async fn a_head_that_never_ends_is_refused() {
    let (_server, bench, addr) = serve().await;
    let (mut reader, mut writer) = TcpStream::connect(addr).await.unwrap().into_split();
    let writing = tokio::spawn(async move {
        let begin = b"GET / HTTP/1.1\r\nhost: h\r\nx: ";
        let mut sent = writer.write_all(begin).await;
        for _ in 0..200 {
            if sent.is_err() {
                return;
            }
            sent = writer.write_all(&[b'y'; 1_000]).await;
            tokio::task::yield_now().await;
        }
    });
    let mut answer = Vec::new();
    let _ = reader.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    // What it had still to send when it was cut off may cost it the answer.
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    writing.abort();
    assert_eq!(bench.backend("a").await.total, 0);
}
