//! Clients that mean harm: what they send is refused or cut, and others are served all the while.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::*;
use crate::proxy::limits::Limits;
use crate::proxy::table::Protocol;

const HTTP: Protocol = Protocol::Http;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
/// `GET http://x/` in the static table of HPACK.
pub(super) const REQUEST: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];

async fn serve() -> (Server, Bench, SocketAddr) {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    (server, bench, addr)
}

async fn is_served(addr: SocketAddr) {
    assert_eq!(Client::connect(addr).await.get("/").await.server(), "a");
}

/// Everything that a client gets for these bytes, until it is cut off.
async fn said(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // It may be cut off in the middle.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_request_within_a_request_is_never_seen_as_one() {
    let (_server, bench, addr) = serve().await;
    let inner = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for (head, status) in [
        // Chunks count, as the RFC has it, and the connection ends with the answer.
        ("content-length: 4\r\ntransfer-encoding: chunked", "200"),
        ("transfer-encoding: chunked\r\ncontent-length: 4", "200"),
        ("content-length: 4\r\ncontent-length: 40", "400"),
        ("content-length: 4, 40", "400"),
        ("content-length: +4", "400"),
        ("content-length: 4\r\n x", "400"),
        ("transfer-encoding: chunked\r\n , identity", "400"),
        ("transfer-encoding : chunked", "400"),
        ("transfer-encoding: identity", "400"),
        ("transfer-encoding: chunked, identity", "400"),
        ("transfer-encoding: gzip, chunked", "501"),
        ("content-length: 4\r\nx: a\0b", "400"),
        ("content-length: 4\r\nx: a\rb", "400"),
        ("content-length: 4\r\nx\ry: a", "400"),
        // A lone line feed ends a line, for whoever is behind too: lines are written anew.
        ("content-length: 4\ntransfer-encoding: chunked", "200"),
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n0\r\n\r\n{inner}");
        let answer = said(addr, request.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head}: {answer}"
        );
        assert!(!answer.contains("smuggled"), "{head}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head}: {answer}");
        assert!(!answer.contains("content-length=4"), "{head}: {answer}");
    }
    assert_eq!(bench.backend("a").await.total, 3);
    is_served(addr).await;
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let (_server, bench, addr) = serve().await;
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: y\r\n".repeat(200));
    let target = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "z".repeat(70_000));
    for request in [long, many, target] {
        let answer = said(addr, request.as_bytes()).await;
        // What it had still to send when it was cut off may cost it the answer.
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(is_refused, "{answer}");
    }
    assert_eq!(bench.backend("a").await.total, 0);
    is_served(addr).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_headers_is_let_go() {
    let (_server, _bench, addr) = serve().await;
    for begin in ["", "G", "GET / HTTP/1.1\r\nhost: x\r\n", "PRI * HT"] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        // The beginning of HTTP/2 is greeted, and that is all.
        let answer = String::from_utf8_lossy(&answer);
        let is_let_go = !answer.contains("HTTP/1.1") || answer.starts_with("HTTP/1.1 408");
        assert!(is_let_go, "{begin:?}: {answer}");
    }
}

/// Whether the kernel is to look whether the other end of a connection of this host still lives, when nothing is said.
fn is_looked_after(own: SocketAddr, other: SocketAddr) -> bool {
    const KEEP_ALIVE: &str = "02:";
    let name = |addr: SocketAddr| match addr {
        SocketAddr::V4(addr) => {
            let ip = u32::from_ne_bytes(addr.ip().octets());
            format!("{ip:08X}:{:04X}", addr.port())
        }
        SocketAddr::V6(addr) => panic!("{addr} is not in this table"),
    };
    let (own, other) = (name(own), name(other));
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1..3] == [&own, &other] && fields[5].starts_with(KEEP_ALIVE)
    })
}

/// Else whoever goes without a word would keep its place for ever, and a WebSocket its replica's as well.
#[tokio::test]
async fn a_client_that_says_nothing_is_looked_after() {
    let (_server, _bench, addr) = serve().await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(client.read(&mut [0; 4096]).await.unwrap() > 0);
    let own = client.local_addr().unwrap();
    // Until the kernel has no acknowledgement to wait for any more.
    let looked_after = async {
        while !is_looked_after(addr, own) {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), looked_after).await;
    assert!(waited.is_ok(), "nobody looks whether it lives");
}

/// A connection of HTTP/2 whose frames are made by hand.
pub(super) struct Two {
    stream: TcpStream,
}

impl Two {
    pub async fn connect(addr: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // Else small frames wait in the kernel, by its own clock.
        stream.set_nodelay(true).unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        let mut two = Self { stream };
        assert!(two.send(&frame(SETTINGS, 0, 0, &[])).await);
        two
    }

    /// Whether the other side still takes it.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame: its kind, its stream and what is in it; `None` once it is cut off.
    pub async fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut rest = vec![0; length as usize];
        self.stream.read_exact(&mut rest).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        // A client that is there says so when it is asked.
        if head[3] == PING && head[4] & ACK == 0 {
            self.send(&frame(PING, ACK, 0, &rest)).await;
        }
        Some((head[3], stream, rest))
    }

    /// Reads until it is cut off; whether it was told why.
    async fn is_told_off(&mut self) -> bool {
        let mut told = false;
        while let Some((kind, _, _)) = self.next().await {
            told |= kind == GOAWAY;
        }
        told
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn streams_that_are_opened_to_be_reset_end_the_connection() {
    let (_server, bench, addr) = serve().await;
    let mut two = Two::connect(addr).await;
    let mut flood = Vec::new();
    for number in 0..2_000 {
        let stream = 1 + 2 * number;
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &REQUEST));
        flood.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
    }
    two.send(&flood).await;
    assert!(two.is_told_off().await);
    let asked = bench.backend("a").await.total;
    assert!(asked < 1_000, "{asked} requests reached the replica");
    is_served(addr).await;
}

#[tokio::test]
async fn headers_that_go_on_for_ever_end_the_connection() {
    let (_server, bench, addr) = serve().await;
    let mut two = Two::connect(addr).await;
    two.send(&frame(HEADERS, END_STREAM, 1, &REQUEST)).await;
    // A literal that is never indexed, of 1,000 bytes, again and again.
    let mut field = vec![0x00, 0x01, b'x', 0x7f, 0xe9, 0x06];
    field.extend([b'y'; 1000]);
    let more = frame(CONTINUATION, 0, 1, &field.repeat(16));
    let mut sent = 0;
    while sent < 10_000 && two.send(&more).await {
        sent += 1;
    }
    assert!(sent < 10_000, "160 MB of headers were taken");
    two.is_told_off().await;
    assert_eq!(bench.backend("a").await.total, 0);
    is_served(addr).await;
}

#[tokio::test]
async fn who_floods_without_reading_waits_and_others_do_not() {
    let (_server, _bench, addr) = serve().await;
    for flood in [
        frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
        frame(PING, 0, 0, &[7; 8]),
    ] {
        let mut two = Two::connect(addr).await;
        let flood = flood.repeat(4_096);
        let flooding = tokio::spawn(async move {
            // It is cut off, or its answers, which nobody reads, hold it back.
            while two.send(&flood).await {}
        });
        for _ in 0..20 {
            is_served(addr).await;
        }
        flooding.abort();
    }
}

#[tokio::test]
async fn answers_that_nobody_takes_hold_nobody_else_up() {
    let (_server, _bench, addr) = serve().await;
    let mut two = Two::connect(addr).await;
    // No window at all, for any stream.
    assert!(two.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await);
    for number in 0..100 {
        assert!(
            two.send(&frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                1 + 2 * number,
                &REQUEST
            ))
            .await
        );
    }
    for _ in 0..20 {
        is_served(addr).await;
    }
}

/// Each request has a connection to its replica, however many of them a client sends on one.
#[tokio::test]
async fn requests_of_one_connection_take_no_more_than_there_is() {
    const ASKED: usize = 80;
    let server = Server::start("a").await;
    let limits = Limits::new(0);
    let bench = Bench::with(limits.clone());
    let backends = vec![backend("a", server.addr)];
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    let sender = connect_two(addr).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..ASKED {
        let mut sender = sender.clone();
        asking.spawn(async move {
            let request = hyper::Request::get("http://x/gate");
            let request = request.body(http_body_util::Empty::new()).unwrap();
            read(sender.send_request(request).await.unwrap()).await
        });
    }
    // Nobody else is answered while the gate is closed.
    let first = asking.join_next().await.unwrap().unwrap();
    assert_eq!(first.status, hyper::StatusCode::SERVICE_UNAVAILABLE);
    assert!(first.text.contains("no room"), "{}", first.text);
    let mut refused = 1;
    server.gate.add_permits(ASKED);
    while let Some(answer) = asking.join_next().await {
        let status = answer.unwrap().status;
        refused += usize::from(status == hyper::StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(ASKED - refused < limits.connections_max, "{refused} were refused");
    is_served(addr).await;
}

/// Those who wait with their first request, or for their next one, make room for those who have one.
#[tokio::test]
async fn clients_that_ask_for_nothing_keep_nobody_out() {
    let server = Server::start("a").await;
    let bench = Bench::with(Limits::new(0));
    let backends = vec![backend("a", server.addr)];
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    let whole = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut crowd = Vec::new();
    for begin in ["", "GET / HT", whole, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        for _ in 0..100 {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(begin.as_bytes()).await.unwrap();
            crowd.push(stream);
        }
        let served = tokio::time::timeout(std::time::Duration::from_secs(30), is_served(addr));
        assert!(served.await.is_ok(), "{begin:?}");
    }
    // Nobody goes who is being answered.
    let mut busy = Client::connect(addr).await;
    let asked = tokio::spawn(async move { busy.get("/gate").await });
    server.arrived.notified().await;
    for _ in 0..100 {
        crowd.push(TcpStream::connect(addr).await.unwrap());
    }
    is_served(addr).await;
    server.gate.add_permits(1);
    assert_eq!(asked.await.unwrap().server(), "a");
}

/// Connections that come all at once are no full house: whoever waits for its next request stays.
#[tokio::test]
async fn a_burst_of_connections_sends_nobody_away() {
    let (_server, _bench, addr) = serve().await;
    let mut idle = Client::connect(addr).await;
    assert_eq!(idle.get("/").await.server(), "a");
    let _burst = burst(addr);
    is_served(addr).await;
    assert_eq!(idle.get("/").await.server(), "a");
}

/// Whoever has asked before a listener closes is answered, however many they are: the service may be gone, and
/// they are told so.
#[tokio::test]
async fn a_burst_before_the_end_is_answered() {
    let (_server, bench, addr) = serve().await;
    is_served(addr).await;
    let mut burst = burst(addr);
    let whole = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for stream in &mut burst {
        std::io::Write::write_all(stream, whole).unwrap();
    }
    bench.apply(Vec::new()).await;
    for stream in burst {
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 "), "{answer:?}");
    }
}

/// More connections than a task handles at one go, all of them waiting in the kernel before the listener sees the first.
fn burst(addr: SocketAddr) -> Vec<std::net::TcpStream> {
    let connect = |_| std::net::TcpStream::connect(addr).unwrap();
    (0..500).map(connect).collect()
}
