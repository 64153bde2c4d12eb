//! Clients that stop in the middle and stay: they are let go, and whoever is slow, or has nothing to say, is not.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{pause, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::hostile::{END_HEADERS, END_STREAM, HEADERS, REQUEST, RST_STREAM, SETTINGS, Two, frame};
use super::support::*;
use crate::proxy::table::Protocol;

const HTTP: Protocol = Protocol::Http;
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;
/// Shorter than anybody is waited for who takes or sends nothing, and far longer.
const SHORT: Duration = Duration::from_secs(100);
const LONG: Duration = Duration::from_secs(3_600);
/// So much of an answer as no buffer on the way holds.
const MUCH: usize = 64 << 20;

/// Has time pass by itself from here on, as fast as nothing happens, and in small steps: whatever is on its way through a
/// socket arrives before anybody is late.
fn hurry() -> AbortOnDropHandle<()> {
    pause();
    AbortOnDropHandle::new(tokio::spawn(async {
        loop {
            sleep(Duration::from_millis(100)).await;
        }
    }))
}

/// A replica for one request, which it has read.
struct Replica {
    listener: TcpListener,
    bench: Bench,
    addr: std::net::SocketAddr,
}

impl Replica {
    async fn start() -> Self {
        let listener = TcpListener::bind(LOCAL).await.unwrap();
        let bench = Bench::new();
        let backends = vec![backend("a", listener.local_addr().unwrap())];
        let addr = bench.listen(HTTP, vec![route(backends)]).await;
        Self {
            listener,
            bench,
            addr,
        }
    }

    async fn asked(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream
    }

    /// Sends an answer that goes on for long; resolves when it is sent, or cut off.
    async fn answer_much(mut stream: TcpStream) -> std::io::Result<()> {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![7; MUCH]).await
    }
}

/// Opens a window: of a stream, or with 0 of all.
fn open(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A client that lets every stream begin with a window of so many bytes, and has asked for something.
async fn asking(replica: &Replica, window: u32) -> (Two, TcpStream) {
    let mut two = Two::connect(replica.addr).await;
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    assert!(two.send(&frame(SETTINGS, 0, 0, &settings)).await);
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &REQUEST);
    assert!(two.send(&request).await);
    (two, replica.asked().await)
}

/// The client answers for a while, and is there; how many bytes it has got, unless its stream was reset.
async fn stays(two: &mut Two, time: Duration) -> Option<usize> {
    let mut got = 0;
    let staying = async {
        while let Some((kind, stream, bytes)) = two.next().await {
            match (kind, stream) {
                (DATA, 1) => got += bytes.len(),
                (RST_STREAM, 1) => return,
                _ => {}
            }
        }
    };
    timeout(time, staying).await.is_err().then_some(got)
}

#[tokio::test]
async fn a_stream_whose_window_stays_closed_gives_its_replica_back() {
    for window in [0, 1, 5_000] {
        let replica = Replica::start().await;
        let (mut two, stream) = asking(&replica, window).await;
        let answered = tokio::spawn(Replica::answer_much(stream));
        let _hurry = hurry();
        // The client's connection is there all the while, and answers what it is asked.
        assert_eq!(stays(&mut two, LONG).await, None, "{window}");
        assert!(answered.await.unwrap().is_err(), "{window}");
        assert_eq!(replica.bench.backend("a").await.in_flight, 0, "{window}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_stream_whose_window_is_opened_slowly_goes_on() {
    const STEP: u32 = 16 << 10;
    let replica = Replica::start().await;
    let (mut two, stream) = asking(&replica, STEP).await;
    let answered = tokio::spawn(Replica::answer_much(stream));
    let _hurry = hurry();
    let mut got = 0;
    for _ in 0..10 {
        got += stays(&mut two, SHORT).await.expect("it takes something");
        assert!(two.send(&open(1, STEP)).await);
        assert!(two.send(&open(0, STEP)).await);
    }
    assert_eq!(got, 10 * STEP as usize);
    assert!(!answered.is_finished());
    answered.abort();
}

/// Nobody is late where the replica itself has nothing to say, as with events that come now and then.
#[tokio::test]
async fn a_stream_whose_replica_is_silent_goes_on() {
    let replica = Replica::start().await;
    let (mut two, mut stream) = asking(&replica, 65_535).await;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    stream.write_all(head).await.unwrap();
    let _hurry = hurry();
    assert_eq!(stays(&mut two, LONG).await, Some(5));
    stream.write_all(b"6\r\nsecond\r\n").await.unwrap();
    assert_eq!(stays(&mut two, SHORT).await, Some(6));
}

/// What was sent to its end before waits in the connection, and nobody else asks for it.
#[tokio::test]
async fn answers_that_are_never_taken_do_not_keep_a_connection() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut two = Two::connect(addr).await;
    // The last piece of an answer counts as sent once there is room for its first byte.
    assert!(two.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])).await);
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &REQUEST);
    assert!(two.send(&request).await);
    let _hurry = hurry();
    let cut = timeout(LONG, async { while two.next().await.is_some() {} }).await;
    assert!(cut.is_ok(), "the connection stays for ever");
}

async fn client(replica: &Replica, head: &str) -> TcpStream {
    let mut client = TcpStream::connect(replica.addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    let request = format!("POST / HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

#[tokio::test]
async fn a_body_that_stalls_gives_its_replica_back() {
    for (head, begin) in [
        ("content-length: 10", "half"),
        ("content-length: 10", ""),
        ("transfer-encoding: chunked", "4\r\nhalf\r\n"),
        ("transfer-encoding: chunked", "4\r\nha"),
    ] {
        let replica = Replica::start().await;
        let mut client = client(&replica, head).await;
        client.write_all(begin.as_bytes()).await.unwrap();
        let mut stream = replica.asked().await;
        let _hurry = hurry();
        let mut answer = String::new();
        let told = timeout(LONG, client.read_to_string(&mut answer)).await;
        assert!(told.is_ok_and(|told| told.is_ok()), "{head}: {begin}");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{head}: {answer}");
        // Its connection ends as well: what came of the request must not be taken for all of it.
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        assert_eq!(replica.bench.backend("a").await.in_flight, 0);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_body_of_http_2_that_stalls_gives_its_replica_back() {
    let replica = Replica::start().await;
    let mut two = Two::connect(replica.addr).await;
    assert!(two.send(&frame(HEADERS, END_HEADERS, 1, &REQUEST)).await);
    assert!(two.send(&frame(DATA, 0, 1, b"half")).await);
    let mut stream = replica.asked().await;
    let _hurry = hurry();
    let answered = timeout(LONG, async {
        while let Some((kind, _, _)) = two.next().await {
            if kind == HEADERS {
                return;
            }
        }
    });
    assert!(answered.await.is_ok(), "nobody is answered");
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got).await;
    assert_eq!(replica.bench.backend("a").await.in_flight, 0);
}

#[tokio::test]
async fn a_body_that_comes_slowly_arrives() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nconnection: close\r\n\r\n";
    client.write_all(head).await.unwrap();
    let _hurry = hurry();
    for byte in b"later" {
        sleep(SHORT).await;
        client.write_all(&[*byte]).await.unwrap();
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("a / later "), "{answer}");
}

/// Once a replica has begun to answer, both sides say something when they have something to say.
#[tokio::test]
async fn who_talks_both_ways_may_be_silent() {
    let replica = Replica::start().await;
    let mut client = client(&replica, "transfer-encoding: chunked").await;
    let mut stream = replica.asked().await;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let _hurry = hurry();
    sleep(LONG).await;
    client.write_all(b"4\r\nword\r\n").await.unwrap();
    let mut word = [0; 9];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"4\r\nword\r\n");
}

#[tokio::test]
async fn a_websocket_may_be_silent() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    let head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    client.write_all(head).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    let _hurry = hurry();
    sleep(LONG).await;
    client.write_all(b"word").await.unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"word");
}

/// Its stream is one of many on the client's connection, and has a window of its own.
#[tokio::test]
async fn a_websocket_of_http_2_whose_window_stays_closed_is_cut() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut two = Two::connect(addr).await;
    assert!(two.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await);
    let mut connect = vec![0x86, 0x84, 0x41, 0x01, b'x'];
    for (name, value) in [(":method", "CONNECT"), (":protocol", "websocket")] {
        for text in [name, value] {
            if text == name {
                connect.push(0);
            }
            connect.push(u8::try_from(text.len()).unwrap());
            connect.extend(text.as_bytes());
        }
    }
    assert!(two.send(&frame(HEADERS, END_HEADERS, 1, &connect)).await);
    let opened = async {
        while let Some((kind, _, _)) = two.next().await {
            if kind == HEADERS {
                return;
            }
        }
    };
    opened.await;
    assert_eq!(bench.backend("a").await.in_flight, 1);
    let _hurry = hurry();
    // All of it comes back, and nobody takes it.
    const SECOND: Duration = Duration::from_secs(1);
    for _ in 0..60 {
        assert!(two.send(&frame(DATA, 0, 1, &[7; 1_000])).await);
        assert_eq!(stays(&mut two, SECOND).await, Some(0));
    }
    let cut = timeout(LONG, async {
        while bench.backend("a").await.in_flight > 0 {
            stays(&mut two, SECOND).await;
        }
    });
    assert!(cut.await.is_ok(), "it keeps its replica");
}
