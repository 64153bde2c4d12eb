//! What endpoints ask of the balancer: prefixes, addresses, clients that stay, times, PROXY headers, and whose word counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dhow_core::spec::{EndpointOptions, ProxyProtocol, Sticky, TimeSpan};
use http_body_util::Full;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;
use crate::proxy::table::{Protocol, Route, Table, Trusted};

const HTTP: Protocol = Protocol::Http;

fn asking(options: EndpointOptions, path: Option<&str>, servers: &[(&str, &Server)]) -> Route {
    let backends = servers.iter().map(|(id, server)| backend(id, server.addr));
    Route {
        options,
        ..route_for("shop/web/http", None, path, backends.collect())
    }
}

/// The same listener, with proxies in front that are believed.
async fn trust(bench: &Bench, addr: SocketAddr, route: Route, trusted: Trusted) {
    let table = Table {
        trusted,
        ..table(vec![listener(addr, HTTP, vec![route])])
    };
    bench.balancer.apply(table, BTreeMap::new()).await.unwrap();
}

#[tokio::test]
async fn a_prefix_is_taken_away_and_told() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let options = EndpointOptions {
        strip_prefix: true,
        ..EndpointOptions::default()
    };
    let routes = vec![asking(options, Some("/api"), &[("a", &server)])];
    let addr = bench.listen(HTTP, routes).await;
    let mut client = Client::connect(addr).await;
    for (asked, seen) in [
        ("/api", "a / "),
        ("/api/", "a / "),
        ("/api?q=1", "a /?q=1 "),
        ("/api/v1/x?q=1", "a /v1/x?q=1 "),
    ] {
        let answer = client.get(asked).await;
        assert!(answer.text.starts_with(seen), "{asked}: {}", answer.text);
        assert!(answer.text.contains("x-forwarded-prefix=/api"), "{}", answer.text);
    }
    assert_eq!(client.get("/apix").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn who_calls_from_elsewhere_is_refused() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let from = |range: &str| EndpointOptions {
        allow_from: vec![range.parse().unwrap()],
        ..EndpointOptions::default()
    };
    let route = |range| asking(from(range), None, &[("a", &server)]);
    let addr = bench.listen(HTTP, vec![route("127.0.0.0/8")]).await;
    assert_eq!(Client::connect(addr).await.get("/").await.status, StatusCode::OK);
    bench
        .apply(vec![listener(addr, HTTP, vec![route("192.0.2.0/24")])])
        .await;
    let answer = Client::connect(addr).await.get("/").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let tcp = bench.listen(Protocol::Tcp, vec![route("192.0.2.0/24")]).await;
    let mut stream = TcpStream::connect(tcp).await.unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(stream.read_u8().await.is_err());
    assert_eq!(bench.backend("a").await.total, 1, "the first alone");
}

#[tokio::test]
async fn who_is_refused_a_path_is_refused_it_in_other_words() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let inside = EndpointOptions {
        allow_from: vec!["192.0.2.0/24".parse().unwrap()],
        ..EndpointOptions::default()
    };
    let routes = vec![
        asking(EndpointOptions::default(), None, &[("a", &server)]),
        Route {
            id: "shop/web/admin".into(),
            ..asking(inside, Some("/admin"), &[("a", &server)])
        },
    ];
    let addr = bench.listen(HTTP, routes).await;
    let mut client = Client::connect(addr).await;
    assert_eq!(client.get("/admin/x").await.status, StatusCode::FORBIDDEN);
    for path in [
        "//admin",
        "/shop/../admin",
        "/%61dmin",
        "/shop%2f..%2fadmin",
        "/admin;x/y",
    ] {
        assert_eq!(client.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    // Whatever stays what it is passes as it is written.
    for path in ["//shop/%2e/./x", "/administrator%2fx", "/shop;admin"] {
        let answer = client.get(path).await;
        assert!(answer.text.starts_with(&format!("a {path} ")), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_client_stays_with_its_replica() {
    let servers = [
        Server::start("a").await,
        Server::start("b").await,
        Server::start("c").await,
    ];
    let bench = Bench::new();
    let all: Vec<_> = ["a", "b", "c"].into_iter().zip(&servers).collect();
    let sticky = |sticky| EndpointOptions {
        sticky: Some(sticky),
        ..EndpointOptions::default()
    };
    let addr = bench
        .listen(HTTP, vec![asking(sticky(Sticky::Ip), None, &all)])
        .await;
    let mut seen = BTreeSet::new();
    for _ in 0..12 {
        seen.insert(Client::connect(addr).await.get("/").await.server().to_owned());
    }
    assert_eq!(seen.len(), 1, "one address, one replica");
    let first = seen.first().unwrap().as_str();
    let others: Vec<_> = all.iter().copied().filter(|(id, _)| *id != first).collect();
    let without = asking(sticky(Sticky::Ip), None, &others);
    bench.apply(vec![listener(addr, HTTP, vec![without])]).await;
    assert_ne!(Client::connect(addr).await.get("/").await.server(), first);

    let by_cookie = |servers: &[(&str, &Server)]| asking(sticky(Sticky::Cookie), None, servers);
    bench
        .apply(vec![listener(addr, HTTP, vec![by_cookie(&all)])])
        .await;
    let answer = Client::connect(addr).await.get("/").await;
    let cookie = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(!cookie.contains("Secure"), "{cookie}");
    let owner = answer.server().to_owned();
    let pair = cookie.split(';').next().unwrap();
    let ask = |value: String| async move {
        let request = Request::get("/").header("host", "x").header("cookie", value);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        Client::connect(addr).await.send(request).await
    };
    for _ in 0..6 {
        let answer = ask(format!("other=1; {pair}")).await;
        assert_eq!(answer.server(), owner);
        assert!(!answer.headers.contains_key("set-cookie"), "it has it");
    }
    let others: Vec<_> = all.iter().copied().filter(|(id, _)| *id != owner).collect();
    bench
        .apply(vec![listener(addr, HTTP, vec![by_cookie(&others)])])
        .await;
    let answer = ask(pair.to_owned()).await;
    assert_ne!(answer.server(), owner);
    assert!(answer.headers.contains_key("set-cookie"), "it moves for good");
}

#[tokio::test]
async fn a_replica_that_does_not_answer_in_time_is_late() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let options = EndpointOptions {
        request_timeout: Some(TimeSpan::from_millis(50)),
        ..EndpointOptions::default()
    };
    let addr = bench
        .listen(HTTP, vec![asking(options, None, &[("a", &server)])])
        .await;
    let mut client = Client::connect(addr).await;
    assert_eq!(client.get("/gate").await.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(client.get("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_quiet_for_too_long_is_cut() {
    // Takes whatever comes, and says nothing after the beginning of an answer.
    let silent = TcpListener::bind(LOCAL).await.unwrap();
    let behind = silent.local_addr().unwrap();
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (mut stream, _) = silent.accept().await.unwrap();
            let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome";
            stream.write_all(begin).await.unwrap();
            held.push(stream);
        }
    });
    let bench = Bench::new();
    let route = Route {
        options: EndpointOptions {
            idle_timeout: Some(TimeSpan::from_millis(50)),
            ..EndpointOptions::default()
        },
        ..route(vec![backend("a", behind)])
    };
    for protocol in [Protocol::Tcp, HTTP] {
        let addr = bench.listen(protocol, vec![route.clone()]).await;
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.ends_with(b"some"), "{}", answer.escape_ascii());
    }
    held.abort();
}

#[tokio::test]
async fn the_word_of_strangers_on_whom_they_speak_for_is_thrown_away() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let route = asking(EndpointOptions::default(), None, &[("a", &server)]);
    let addr = bench.listen(HTTP, vec![route.clone()]).await;
    let ask = || async {
        let request = Request::get("/")
            .header("host", "shop.test")
            .header("x-forwarded-for", "192.0.2.1")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-host", "other.test")
            .header("x-real-ip", "192.0.2.1")
            .header("forwarded", "for=192.0.2.1");
        let request = request.body(Full::<Bytes>::default()).unwrap();
        Client::connect(addr).await.send(request).await.text
    };
    let own = "host=shop.test x-forwarded-for=127.0.0.1 x-forwarded-host=shop.test x-forwarded-proto=http";
    let seen = ask().await;
    assert!(seen.ends_with(own), "{seen}");
    let trusted = Trusted {
        forwarded: vec!["127.0.0.1".parse().unwrap()],
        ..Trusted::default()
    };
    trust(&bench, addr, route, trusted).await;
    let seen = ask().await;
    let believed = "x-forwarded-for=192.0.2.1, 127.0.0.1 x-forwarded-host=other.test x-forwarded-proto=https";
    assert!(seen.contains(believed), "{seen}");
}

#[tokio::test]
async fn a_proxy_in_front_says_who_calls_and_must() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let options = EndpointOptions {
        allow_from: vec!["192.0.2.0/24".parse().unwrap()],
        ..EndpointOptions::default()
    };
    let route = asking(options, None, &[("a", &server)]);
    let addr = bench.listen(HTTP, vec![route.clone()]).await;
    let trusted = Trusted {
        header: vec!["127.0.0.0/8".parse().unwrap()],
        ..Trusted::default()
    };
    trust(&bench, addr, route, trusted).await;
    let said = |begin: &'static str| async move {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("{begin}GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = said("PROXY TCP4 192.0.2.9 10.0.0.1 4711 80\r\n").await;
    assert!(answer.contains("x-forwarded-for=192.0.2.9 "), "{answer}");
    let other = said("PROXY TCP4 198.51.100.9 10.0.0.1 4711 80\r\n").await;
    assert!(other.starts_with("HTTP/1.1 403 "), "{other}");
    assert_eq!(said("").await, "", "without the header it is cut off");
}

#[tokio::test]
async fn a_replica_is_told_who_calls_before_the_first_byte() {
    let listener = TcpListener::bind(LOCAL).await.unwrap();
    let bench = Bench::new();
    let route = Route {
        options: EndpointOptions {
            proxy_protocol: Some(ProxyProtocol::V1),
            ..EndpointOptions::default()
        },
        ..route(vec![backend("a", listener.local_addr().unwrap())])
    };
    let addr = bench.listen(Protocol::Tcp, vec![route]).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    let own = client.local_addr().unwrap();
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut replica, _) = listener.accept().await.unwrap();
    let mut seen = String::new();
    tokio::time::timeout(Duration::from_secs(30), replica.read_to_string(&mut seen))
        .await
        .unwrap()
        .unwrap();
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello",
        own.port(),
        addr.port()
    );
    assert_eq!(seen, expected);
}
