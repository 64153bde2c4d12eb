//! Requests: where they go, what is tried again, what drains.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::support::*;
use crate::proxy::table::{Backend, Protocol};

const HTTP: Protocol = Protocol::Http;

#[tokio::test]
async fn equally_busy_backends_take_turns() {
    let servers = [
        Server::start("a").await,
        Server::start("b").await,
        Server::start("c").await,
    ];
    let bench = Bench::new();
    let backends = ["a", "b", "c"].iter().zip(&servers);
    let backends = backends.map(|(id, server)| backend(id, server.addr)).collect();
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    let mut client = Client::connect(addr).await;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..30 {
        *counts
            .entry(client.get("/").await.server().to_owned())
            .or_default() += 1;
    }
    let expected = ["a", "b", "c"].map(|id| (id.to_owned(), 10));
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(bench.backend("a").await.total, 10);
}

#[tokio::test]
async fn a_busy_backend_gets_less() {
    let (a, b) = (Server::start("a").await, Server::start("b").await);
    let bench = Bench::new();
    let backends = vec![backend("a", a.addr), backend("b", b.addr)];
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    let mut slow = Client::connect(addr).await;
    let waiting = tokio::spawn(async move { slow.get("/gate").await });
    tokio::select! {
        () = a.arrived.notified() => {}
        () = b.arrived.notified() => {}
    }
    let (busy, free) = if bench.backend("a").await.in_flight == 1 {
        (&a, "b")
    } else {
        (&b, "a")
    };
    let mut client = Client::connect(addr).await;
    for _ in 0..5 {
        assert_eq!(client.get("/").await.server(), free);
    }
    busy.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn hosts_and_the_longest_path_decide() {
    let (a, b, c) = (
        Server::start("a").await,
        Server::start("b").await,
        Server::start("c").await,
    );
    let bench = Bench::new();
    let routes = vec![
        route_for("1", None, Some("/api"), vec![backend("a", a.addr)]),
        route_for("2", None, Some("/api/v2"), vec![backend("b", b.addr)]),
        route_for("3", Some("Shop.example"), None, vec![backend("c", c.addr)]),
    ];
    let addr = bench.listen(HTTP, routes).await;
    let mut client = Client::connect(addr).await;
    for (host, path, expected) in [
        ("x", "/api", "a"),
        ("x", "/api/v1", "a"),
        ("x", "/api?q=1", "a"),
        ("x", "/api/v2", "b"),
        ("x", "/api/v2/y", "b"),
        ("x", "/api/v22", "a"),
        ("shop.EXAMPLE:8080", "/api/v2", "c"),
        ("shop.example.", "/", "c"),
    ] {
        assert_eq!(
            client.get_host(path, host).await.server(),
            expected,
            "{host} {path}"
        );
    }
    for (host, path) in [("x", "/"), ("x", "/apix"), ("other.example", "/x")] {
        let answer = client.get_host(path, host).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{host} {path}");
        assert!(answer.text.contains("no endpoint takes"), "{}", answer.text);
    }
}

#[tokio::test]
async fn headers_of_one_hop_stay_there() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let request = Request::post("/x?y=1")
        .header("host", "shop.example:80")
        .header("connection", "x-mine, close-not")
        .header("x-mine", "1")
        .header("te", "trailers")
        .header("x-forwarded-for", "10.0.0.1")
        .body(Full::new(Bytes::from("body")))
        .unwrap();
    let answer = Client::connect(addr).await.send(request).await;
    let expected = "a /x?y=1 body content-length=4 host=shop.example:80 \
                    x-forwarded-for=127.0.0.1 x-forwarded-host=shop.example:80 \
                    x-forwarded-proto=http";
    assert_eq!(answer.text, expected);
    assert!(!answer.headers.contains_key("keep-alive"));
}

#[tokio::test]
async fn http_two_in_clear_is_served() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let answer = get_two(addr, "/two").await;
    assert_eq!(answer.status, StatusCode::OK);
    let expected = "a /two  cookie=a=1; b=2 host=two.example x-forwarded-for=127.0.0.1 \
                    x-forwarded-host=two.example x-forwarded-proto=http";
    assert_eq!(answer.text, expected);
}

#[tokio::test]
async fn a_refused_connection_is_tried_elsewhere() {
    let server = Server::start("a").await;
    let (_held, nobody) = refusing();
    let bench = Bench::new();
    let backends = vec![backend("gone", nobody), backend("a", server.addr)];
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    let mut client = Client::connect(addr).await;
    for _ in 0..10 {
        // A body is no hindrance: nothing of it was sent.
        let request = Request::post("/")
            .header("host", "h")
            .body(Full::new(Bytes::from("b")))
            .unwrap();
        assert_eq!(client.send(request).await.server(), "a");
    }
    let gone = bench.backend("gone").await;
    // Passed over after the first refusal.
    assert_eq!((gone.refused, gone.in_flight), (1, 0));
}

#[tokio::test]
async fn a_killed_backend_costs_no_get_and_only_its_own_posts() {
    let (a, b) = (Server::start("a").await, Server::start("b").await);
    let bench = Bench::new();
    let backends = vec![backend("a", a.addr), backend("b", b.addr)];
    let addr = bench.listen(HTTP, vec![route(backends)]).await;
    // One idle connection to each is in the pool, and one request of each kind waits on `a`.
    let mut client = Client::connect(addr).await;
    for _ in 0..4 {
        client.get("/").await;
    }
    let mut waiting = Vec::new();
    let mut on_a = Vec::new();
    for method in ["GET", "GET", "POST", "POST"] {
        let mut client = Client::connect(addr).await;
        let request = Request::builder().method(method).uri("/gate").header("host", "h");
        let request = request.body(Full::default()).unwrap();
        let before = bench.backend("a").await.in_flight;
        waiting.push(tokio::spawn(async move { client.send(request).await }));
        tokio::select! {
            () = a.arrived.notified() => {}
            () = b.arrived.notified() => {}
        }
        on_a.push(bench.backend("a").await.in_flight > before);
    }
    assert_eq!(on_a.iter().filter(|on_a| **on_a).count(), 2);
    a.kill();
    b.gate.add_permits(4);
    for ((answer, on_a), is_get) in waiting.into_iter().zip(on_a).zip([true, true, false, false]) {
        let answer = answer.await.unwrap();
        let expected = if on_a && !is_get {
            StatusCode::BAD_GATEWAY
        } else {
            StatusCode::OK
        };
        assert_eq!(answer.status, expected);
    }
    for _ in 0..10 {
        let request = Request::post("/")
            .header("host", "h")
            .body(Full::new(Bytes::from("b")))
            .unwrap();
        assert_eq!(client.send(request).await.server(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_backend_a_request_waits_and_is_then_told_to_come_back() {
    let bench = Bench::new();
    let addr = bench.listen(HTTP, vec![route(vec![])]).await;
    let mut client = Client::connect(addr).await;
    let answer = client.get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers.get("retry-after").unwrap(), "1");
}

#[tokio::test]
async fn a_backend_that_appears_gets_what_waits() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench.listen(HTTP, vec![route(vec![])]).await;
    let mut client = Client::connect(addr).await;
    let waiting = client.get("/");
    let applied = bench.apply(vec![listener(
        addr,
        HTTP,
        vec![route(vec![backend("a", server.addr)])],
    )]);
    let (answer, _) = tokio::join!(waiting, applied);
    assert_eq!(answer.server(), "a");
}

#[tokio::test]
async fn a_draining_backend_finishes_and_gets_nothing_new() {
    let (a, b) = (Server::start("a").await, Server::start("b").await);
    let bench = Bench::new();
    let addr = bench.listen(HTTP, vec![route(vec![backend("a", a.addr)])]).await;
    let mut kept = Client::connect(addr).await;
    assert_eq!(kept.get("/").await.server(), "a");
    let mut slow = Client::connect(addr).await;
    let waiting = tokio::spawn(async move { slow.get("/gate").await });
    a.arrived.notified().await;
    let draining = Backend {
        draining: true,
        ..backend("a", a.addr)
    };
    let routes = vec![route(vec![draining, backend("b", b.addr)])];
    bench.apply(vec![listener(addr, HTTP, routes)]).await;
    // The connection that it had keeps on, with the other backend.
    for _ in 0..5 {
        assert_eq!(kept.get("/").await.server(), "b");
    }
    let ids = vec!["a".to_owned(), "b".to_owned(), "unknown".to_owned()];
    let idle = bench.balancer.wait_drained(&ids, Instant::now()).await;
    assert_eq!(idle, ["b", "unknown"]);
    let (balancer, asked) = (bench.balancer.clone(), ids.clone());
    let drained = tokio::spawn(async move {
        balancer
            .wait_drained(&asked, Instant::now() + Duration::from_secs(60))
            .await
    });
    a.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().server(), "a");
    assert_eq!(drained.await.unwrap(), ids);
}

#[tokio::test]
async fn an_upgrade_passes_through() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request =
        "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: websocket"), "{head}");
    for word in ["ping", "pong"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut echo = vec![0; word.len()];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, word.as_bytes());
    }
    assert_eq!(bench.backend("a").await.in_flight, 1);
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_same_table_again_touches_nothing() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", server.addr)])];
    let addr = bench.listen(HTTP, routes.clone()).await;
    let mut client = Client::connect(addr).await;
    let waiting = tokio::spawn(async move {
        let answer = client.get("/gate").await;
        (answer, client)
    });
    server.arrived.notified().await;
    for _ in 0..3 {
        let applied = bench.apply(vec![listener(addr, HTTP, routes.clone())]).await;
        assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
    }
    assert_eq!(bench.backend("a").await.in_flight, 1);
    server.gate.add_permits(1);
    let (answer, mut client) = waiting.await.unwrap();
    assert_eq!(answer.server(), "a");
    assert!(!answer.headers.contains_key("connection"));
    assert_eq!(client.get("/").await.server(), "a");
}

#[tokio::test]
async fn a_listener_that_goes_lets_its_clients_finish() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let mut client = Client::connect(addr).await;
    let waiting = tokio::spawn(async move { client.get("/gate").await });
    server.arrived.notified().await;
    bench.apply(vec![]).await;
    assert!(TcpStream::connect(addr).await.is_err());
    server.gate.add_permits(1);
    let answer = waiting.await.unwrap();
    assert_eq!(answer.server(), "a");
    assert_eq!(answer.headers.get("connection").unwrap(), "close");
    bench.balancer.end().await;
    bench.balancer.finished().await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_told_so() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let many = "x: y\r\n".repeat(200);
    let long = format!("x: {}\r\n", "y".repeat(70_000));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), "400"),
        ("CONNECT h:80 HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "405"),
        (format!("GET / HTTP/1.1\r\nhost: h\r\n{many}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nhost: h\r\n{long}\r\n"), "431"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), "200"),
        (
            "GET http://h/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".to_owned(),
            "200",
        ),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // The proxy may answer and close before all is written.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(
            &String::from_utf8_lossy(&status)[9..],
            expected,
            "{:.60}",
            request
        );
    }
}

/// What of a request means one thing here and might mean another behind: it is refused, not guessed.
#[tokio::test]
async fn bodies_of_a_doubtful_form_are_refused() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(HTTP, vec![route(vec![backend("a", server.addr)])])
        .await;
    let ask = async |headers: &str, body: &str| {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let end = "0\r\n\r\n";
    assert_eq!(ask("Transfer-Encoding: chunked", end).await, "200");
    for coding in ["gzip, chunked", "chunked, chunked", "identity, chunked"] {
        let coded = format!("Transfer-Encoding: {coding}");
        assert_eq!(ask(&coded, end).await, "501", "{coding}");
    }
    let twice = "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked";
    assert_eq!(ask(twice, end).await, "501");
    for (headers, body) in [
        ("Transfer-Encoding: chunked", "5;a\nb\r\nabcde\r\n0\r\n\r\n"),
        ("Transfer-Encoding: xchunked", end),
        ("Content-Length: 4\r\nContent-Length: 5", "abcde"),
        ("X: a\r\n Transfer-Encoding: chunked", end),
    ] {
        assert_eq!(ask(headers, body).await, "400", "{headers:?} {body:?}");
    }
}
