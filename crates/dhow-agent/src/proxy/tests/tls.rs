//! Requests over TLS: which certificate is shown, what is spoken, and how certificates are replaced.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::*;
use crate::proxy::GivenCertificates;
use crate::proxy::balancer::ListenerKey;
use crate::proxy::judge::Side;
use crate::proxy::table::{Listener, Protocol, Route, Transport};

/// A certificate of its own making, for these hosts.
struct Made {
    der: CertificateDer<'static>,
    pem: String,
}

fn made(hosts: &[&str]) -> Made {
    let key = rcgen::KeyPair::generate().unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let certificate = rcgen::CertificateParams::new(hosts).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    Made {
        der: certificate.der().clone(),
        pem: format!("{}{}", certificate.pem(), key.serialize_pem()),
    }
}

fn given(all: &[(&str, &str)]) -> GivenCertificates {
    let all = all
        .iter()
        .map(|(name, pem)| ((*name).to_owned(), Some((*pem).to_owned())));
    GivenCertificates(all.collect())
}

fn secure(host: Option<&str>, certificate: &str, server: &Server) -> Route {
    let id = host.unwrap_or("any");
    Route {
        certificate: Some(certificate.to_owned()),
        ..route_for(id, host, None, vec![backend(id, server.addr)])
    }
}

/// A TLS listener on a port of the kernel's choice.
async fn listen(bench: &Bench, routes: Vec<Route>) -> SocketAddr {
    let socket = std::net::TcpListener::bind(LOCAL).unwrap();
    let addr = socket.local_addr().unwrap();
    let spec = Listener {
        tls: true,
        ..listener(addr, Protocol::Http, routes)
    };
    let key = ListenerKey {
        side: Side::Host,
        transport: Transport::Stream,
        addr,
    };
    let inherited = BTreeMap::from([(key, socket.into())]);
    let applied = bench.balancer.apply(table(vec![spec]), inherited).await.unwrap();
    assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
    addr
}

/// What a client believes and speaks.
fn client(trusted: &[&Made], alpn: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for made in trusted {
        roots.add(made.der.clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn connect(
    connector: &TlsConnector,
    addr: SocketAddr,
    host: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    connector.connect(name, stream).await
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let shown = stream.get_ref().1.peer_certificates().unwrap();
    shown[0].clone().into_owned()
}

/// One request of HTTP/1.1.
async fn get(stream: &mut TlsStream<TcpStream>, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).await.unwrap();
        assert_ne!(count, 0, "it was closed");
        seen.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&seen);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            return text.into_owned();
        }
    }
}

#[tokio::test]
async fn the_host_decides_what_is_shown_and_who_answers() {
    let (a, b) = (Server::start("a").await, Server::start("b").await);
    let (shop, wild) = (made(&["shop.test"]), made(&["*.wild.test"]));
    let bench = Bench::new();
    let refused = bench
        .balancer
        .certify(&given(&[("shop", &shop.pem), ("wild", &wild.pem)]));
    assert_eq!(refused, []);
    let routes = vec![
        secure(Some("Shop.test"), "shop", &a),
        secure(Some("*.wild.test"), "wild", &b),
    ];
    let addr = listen(&bench, routes).await;
    let connector = client(&[&shop, &wild], &["http/1.1"]);
    for (host, certificate, server) in [
        ("shop.test", &shop, "a"),
        ("one.wild.test", &wild, "b"),
        ("two.wild.test", &wild, "b"),
    ] {
        let mut stream = connect(&connector, addr, host).await.unwrap();
        assert_eq!(shown(&stream), certificate.der, "{host}");
        let answer = get(&mut stream, host).await;
        assert!(answer.contains(&format!("{server} / ")), "{answer}");
        assert!(answer.contains("x-forwarded-proto=https"), "{answer}");
    }
    for host in ["other.test", "wild.test", "a.b.wild.test"] {
        let error = connect(&connector, addr, host).await.unwrap_err();
        assert!(error.to_string().contains("alert"), "{host}: {error}");
    }
    // A client that was given an address names no host.
    let unnamed = connect(&connector, addr, "127.0.0.1").await.unwrap_err();
    assert!(unnamed.to_string().contains("certificate"), "{unnamed}");
}

#[tokio::test]
async fn http_two_is_spoken_where_both_know_it() {
    let server = Server::start("a").await;
    let shop = made(&["shop.test"]);
    let bench = Bench::new();
    bench.balancer.certify(&given(&[("shop", &shop.pem)]));
    let addr = listen(&bench, vec![secure(None, "shop", &server)]).await;
    let connector = client(&[&shop], &["h2", "http/1.1"]);
    let stream = connect(&connector, addr, "shop.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("https://shop.test/x");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let answer = read(sender.send_request(request).await.unwrap()).await;
    assert_eq!((answer.status, answer.server()), (StatusCode::OK, "a"));
    // Who offers nothing speaks HTTP/1.1.
    let mut plain = connect(&client(&[&shop], &[]), addr, "shop.test").await.unwrap();
    assert!(get(&mut plain, "shop.test").await.contains("a / "));
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_for_nobody() {
    let server = Server::start("a").await;
    let (old, new) = (made(&["shop.test"]), made(&["shop.test"]));
    let bench = Bench::new();
    let addr = listen(&bench, vec![secure(Some("shop.test"), "shop", &server)]).await;
    let connector = client(&[&old, &new], &["http/1.1"]);
    let early = connect(&connector, addr, "shop.test").await;
    assert!(early.is_err(), "there is nothing to show yet");
    bench.balancer.certify(&given(&[("shop", &old.pem)]));
    let mut before = connect(&connector, addr, "shop.test").await.unwrap();
    assert_eq!(shown(&before), old.der);
    assert!(get(&mut before, "shop.test").await.contains("a / "));
    assert_eq!(bench.balancer.certify(&given(&[("shop", &new.pem)])), []);
    let after = connect(&connector, addr, "shop.test").await.unwrap();
    assert_eq!(shown(&after), new.der);
    assert!(get(&mut before, "shop.test").await.contains("a / "), "it goes on");
    let (chain, _) = old.pem.split_once("-----BEGIN PRIVATE").unwrap();
    let key = new.pem.split_once("-----BEGIN PRIVATE").unwrap().1;
    let mixed = format!("{chain}-----BEGIN PRIVATE{key}");
    for bad in ["nothing", mixed.as_str()] {
        let refused = bench.balancer.certify(&given(&[("shop", bad)]));
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].0, "shop");
        let after = connect(&connector, addr, "shop.test").await.unwrap();
        assert_eq!(shown(&after), new.der);
    }
    // What is not given anew stays, what is not named goes.
    let same = GivenCertificates(BTreeMap::from([("shop".to_owned(), None)]));
    assert_eq!(bench.balancer.certify(&same), []);
    assert_eq!(
        shown(&connect(&connector, addr, "shop.test").await.unwrap()),
        new.der
    );
    bench.balancer.certify(&GivenCertificates::default());
    assert!(connect(&connector, addr, "shop.test").await.is_err());
}

#[tokio::test]
async fn an_upgrade_passes_through_tls() {
    let server = Server::start("a").await;
    let shop = made(&["shop.test"]);
    let bench = Bench::new();
    bench.balancer.certify(&given(&[("shop", &shop.pem)]));
    let addr = listen(&bench, vec![secure(None, "shop", &server)]).await;
    let mut stream = connect(&client(&[&shop], &["http/1.1"]), addr, "shop.test")
        .await
        .unwrap();
    let request =
        b"GET /chat HTTP/1.1\r\nhost: shop.test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    stream.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
}

#[tokio::test]
async fn plain_requests_are_sent_to_https() {
    let bench = Bench::new();
    let to = |port| Route {
        redirect: Some(port),
        ..route_for("shop", Some("shop.test"), None, Vec::new())
    };
    let addr = bench.listen(Protocol::Http, vec![to(443)]).await;
    let mut client = Client::connect(addr).await;
    for (host, path, location) in [
        ("shop.test", "/", "https://shop.test/"),
        ("shop.test:8080", "/a/b?c=d", "https://shop.test/a/b?c=d"),
    ] {
        let answer = client.get_host(path, host).await;
        assert_eq!(answer.status, StatusCode::PERMANENT_REDIRECT);
        assert_eq!(answer.headers["location"], location);
    }
    bench
        .apply(vec![listener(addr, Protocol::Http, vec![to(8443)])])
        .await;
    let request = Request::post("/x").header("host", "shop.test");
    let request = request.body(Full::new(Bytes::from("body"))).unwrap();
    let answer = client.send(request).await;
    assert_eq!(answer.headers["location"], "https://shop.test:8443/x");
    assert_eq!(
        client.get_host("/", "other.test").await.status,
        StatusCode::NOT_FOUND
    );
}

/// A plain route whose host has its certificate ordered.
fn ordered(host: &str, path: Option<&str>, server: &Server) -> Route {
    Route {
        redirect: Some(443),
        ordered: Some("acme/cert/shop.test".into()),
        ..route_for(host, Some(host), path, vec![backend(host, server.addr)])
    }
}

#[tokio::test]
async fn whoever_orders_for_a_host_is_answered_and_redirects_wait_for_the_certificate() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let plain = route_for(
        "own.test",
        Some("own.test"),
        None,
        vec![backend("own", server.addr)],
    );
    let routes = vec![ordered("shop.test", Some("/api"), &server), plain];
    let addr = bench.listen(Protocol::Http, routes).await;
    let mut client = Client::connect(addr).await;
    let (token, thumbprint) = ("t0K-n_".repeat(6), "x".repeat(43));
    let asked = format!("/.well-known/acme-challenge/{token}");
    assert_eq!(
        client.get_host(&asked, "shop.test").await.status,
        StatusCode::NOT_FOUND
    );
    let given_with = |pem: &[(&str, &str)]| {
        let mut all = given(pem);
        all.0.insert("acme/thumbprint".into(), Some(thumbprint.clone()));
        bench.balancer.certify(&all)
    };
    assert_eq!(given_with(&[]), []);
    // Whatever the path of the endpoint is, and whoever may call it.
    for host in ["shop.test", "SHOP.test:80"] {
        let answer = client.get_host(&asked, host).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.text, format!("{token}.{thumbprint}"));
    }
    for wrong in ["", "short", "a/../../b", &"a".repeat(300), &format!("{token}.x")] {
        let answer = client
            .get_host(&format!("/.well-known/acme-challenge/{wrong}"), "shop.test")
            .await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{wrong}");
    }
    // At other hosts the path is the replica's.
    assert_eq!(client.get_host(&asked, "own.test").await.server(), "a");
    assert_eq!(
        client.get_host(&asked, "other.test").await.status,
        StatusCode::NOT_FOUND
    );
    // Until there is a certificate the endpoint is served without.
    assert_eq!(client.get_host("/api", "shop.test").await.server(), "a");
    let shop = made(&["shop.test"]);
    given_with(&[("acme/cert/shop.test", &shop.pem)]);
    let sent = client.get_host("/api", "shop.test").await;
    assert_eq!(sent.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(client.get_host(&asked, "shop.test").await.status, StatusCode::OK);
    // It is kept with the certificates, and one that is none is refused.
    let kept = bench.balancer.certificates();
    assert_eq!(kept.0["acme/thumbprint"].as_deref(), Some(thumbprint.as_str()));
    let bad = bench.balancer.certify(&given(&[("acme/thumbprint", "none")]));
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(client.get_host(&asked, "shop.test").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_websocket_is_opened_over_http_two() {
    let server = Server::start("a").await;
    let shop = made(&["shop.test"]);
    let bench = Bench::new();
    bench.balancer.certify(&given(&[("shop", &shop.pem)]));
    let addr = listen(&bench, vec![secure(None, "shop", &server)]).await;
    let stream = connect(&client(&[&shop], &["h2"]), addr, "shop.test")
        .await
        .unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    // The server's settings have come when its first answer has.
    let first = Request::get("https://shop.test/")
        .body(Empty::<Bytes>::new())
        .unwrap();
    assert_eq!(sender.send_request(first).await.unwrap().status(), StatusCode::OK);
    let asking = |protocol: Option<&'static str>, path: &str| {
        let mut request = Request::connect(format!("https://shop.test{path}"));
        if let Some(protocol) = protocol {
            request = request.extension(hyper::ext::Protocol::from_static(protocol));
        }
        request
            .header("sec-websocket-version", "13")
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    let answer = sender
        .send_request(asking(Some("websocket"), "/chat"))
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    for gone in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!answer.headers().contains_key(gone), "{gone}");
    }
    let mut opened = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    for said in ["hello", "again"] {
        opened.write_all(said.as_bytes()).await.unwrap();
        let mut echoed = [0; 5];
        opened.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, said.as_bytes());
    }
    // Beside it the connection carries requests, and no other protocol.
    let beside = Request::get("https://shop.test/")
        .body(Empty::<Bytes>::new())
        .unwrap();
    assert_eq!(
        sender.send_request(beside).await.unwrap().status(),
        StatusCode::OK
    );
    let other = sender
        .send_request(asking(Some("connect-udp"), "/x"))
        .await
        .unwrap();
    assert_eq!(other.status(), StatusCode::NOT_IMPLEMENTED);
    let none = sender.send_request(asking(None, "")).await.unwrap();
    assert_eq!(none.status(), StatusCode::METHOD_NOT_ALLOWED);
    // A replica that answers without changing has opened nothing.
    let refused = sender
        .send_request(asking(Some("websocket"), "/plain"))
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_GATEWAY);
    drop(opened);
}
