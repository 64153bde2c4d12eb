//! TCP and UDP, and listeners that cannot be bound.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use super::support::*;
use crate::proxy::balancer::UNREADY_MAX;
use crate::proxy::client::name_owners;
use crate::proxy::table::{Backend, Protocol, Transport};

#[tokio::test]
async fn each_direction_of_tcp_ends_by_itself() {
    let (_held, nobody) = refusing();
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let bench = Bench::new();
    let backends = vec![
        backend("gone", nobody),
        backend("a", server.local_addr().unwrap()),
    ];
    let addr = bench.listen(Protocol::Tcp, vec![route(backends)]).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    let mut question = String::new();
    accepted.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    // The client has closed its side and hears the answer all the same.
    assert_eq!(bench.backend("a").await.in_flight, 1);
    accepted.write_all(b"answer").await.unwrap();
    drop(accepted);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn a_draining_backend_keeps_its_connections() {
    let (a, b) = (
        TcpListener::bind(LOCAL).await.unwrap(),
        TcpListener::bind(LOCAL).await.unwrap(),
    );
    let (a_addr, b_addr) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let bench = Bench::new();
    let addr = bench
        .listen(Protocol::Tcp, vec![route(vec![backend("a", a_addr)])])
        .await;
    let mut first = TcpStream::connect(addr).await.unwrap();
    let (mut on_a, _) = a.accept().await.unwrap();
    let draining = Backend {
        draining: true,
        ..backend("a", a_addr)
    };
    let routes = vec![route(vec![draining, backend("b", b_addr)])];
    bench.apply(vec![listener(addr, Protocol::Tcp, routes)]).await;
    let _second = TcpStream::connect(addr).await.unwrap();
    b.accept().await.unwrap();
    first.write_all(b"x").await.unwrap();
    assert_eq!(on_a.read_u8().await.unwrap(), b'x');
    let ids = ["a".to_owned()];
    let now = tokio::time::Instant::now();
    assert!(bench.balancer.wait_drained(&ids, now).await.is_empty());
    drop((first, on_a));
    let later = now + std::time::Duration::from_secs(60);
    assert_eq!(bench.balancer.wait_drained(&ids, later).await, ids);
}

/// A port to be bound by its number, and what keeps others from being given it: one of the kernel's choice is not kept by
/// a socket that stops listening.
fn named_port() -> (TcpSocket, std::net::SocketAddr) {
    let held = TcpSocket::new_v4().unwrap();
    held.set_reuseaddr(true).unwrap();
    held.bind(LOCAL.into()).unwrap();
    let addr = held.local_addr().unwrap();
    (held, addr)
}

/// Nobody has been ready for as long as that is waited for.
async fn long_unready(bench: &Bench) {
    tokio::time::pause();
    tokio::time::advance(UNREADY_MAX).await;
    tokio::time::resume();
    bench.balancer.quieten_unready().await;
}

#[tokio::test]
async fn without_a_ready_replica_tcp_is_refused_and_then_taken_again() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let at = server.local_addr().unwrap();
    let bench = Bench::new();
    let ready = || vec![route(vec![backend("a", at)])];
    let (_held, addr) = named_port();
    let applied = bench.apply(vec![listener(addr, Protocol::Tcp, ready())]).await;
    assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
    long_unready(&bench).await;
    let mut open = TcpStream::connect(addr).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    let draining = Backend {
        draining: true,
        ..backend("a", at)
    };
    let wanted = listener(addr, Protocol::Tcp, vec![route(vec![draining])]);
    bench.apply(vec![wanted.clone()]).await;
    bench.balancer.quieten_unready().await;
    let _waits = TcpStream::connect(addr).await.unwrap();
    long_unready(&bench).await;
    assert!(TcpStream::connect(addr).await.is_err());
    // What is open stays, and so does the listener's place in the status.
    open.write_all(b"x").await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    let applied = bench.apply(vec![wanted]).await;
    assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
    assert!(TcpStream::connect(addr).await.is_err());
    for _ in 0..2 {
        bench.apply(vec![listener(addr, Protocol::Tcp, ready())]).await;
        let mut again = TcpStream::connect(addr).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        again.write_all(b"y").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'y');
        bench
            .apply(vec![listener(addr, Protocol::Tcp, vec![route(Vec::new())])])
            .await;
        long_unready(&bench).await;
        assert!(TcpStream::connect(addr).await.is_err());
    }
    // One that is not wanted any more leaves its address to others.
    bench.apply(Vec::new()).await;
    TcpListener::bind(addr).await.unwrap();
}

#[tokio::test]
async fn udp_keeps_a_client_with_its_backend() {
    let echo = UdpSocket::bind(LOCAL).await.unwrap();
    let (gone, gone_addr) = {
        let socket = UdpSocket::bind(LOCAL).await.unwrap();
        let addr = socket.local_addr().unwrap();
        (socket, addr)
    };
    let bench = Bench::new();
    let echo_addr = echo.local_addr().unwrap();
    let addr = bench
        .listen(Protocol::Udp, vec![route(vec![backend("echo", echo_addr)])])
        .await;
    let client = UdpSocket::bind(LOCAL).await.unwrap();
    client.connect(addr).await.unwrap();
    let mut from = Vec::new();
    for word in ["one", "two", "three"] {
        client.send(word.as_bytes()).await.unwrap();
        let mut datagram = [0; 64];
        let (count, peer) = echo.recv_from(&mut datagram).await.unwrap();
        echo.send_to(&datagram[..count], peer).await.unwrap();
        from.push(peer);
        let mut answer = [0; 64];
        let count = client.recv(&mut answer).await.unwrap();
        assert_eq!(&answer[..count], word.as_bytes());
    }
    from.dedup();
    assert_eq!(from.len(), 1);
    assert_eq!(bench.backend("echo").await.in_flight, 1);
    // A backend that the table no longer names loses its sessions to the next.
    let routes = vec![route(vec![backend("other", gone_addr)])];
    bench.apply(vec![listener(addr, Protocol::Udp, routes)]).await;
    let mut datagram = [0; 64];
    loop {
        // The listener learns of the new table a moment later.
        client.send(b"four").await.unwrap();
        if gone.try_recv(&mut datagram).is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_taken_port_names_its_holder_and_is_tried_again() {
    let holder = std::net::TcpListener::bind(LOCAL).unwrap();
    let addr = holder.local_addr().unwrap();
    let server = Server::start("a").await;
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", server.addr)])];
    let applied = bench.apply(vec![listener(addr, Protocol::Http, routes)]).await;
    assert_eq!(applied.taken, [(Transport::Stream, addr)]);
    // As the daemon does it: the proxy may not look.
    let applied = name_owners(applied).await;
    let [(found, Err(why))] = applied.listeners.as_slice() else {
        panic!("{applied:?}");
    };
    assert_eq!(*found, addr);
    assert!(
        why.contains(&format!(
            "port {} is taken by process {}",
            addr.port(),
            std::process::id()
        )),
        "{why}"
    );
    drop(holder);
    bench.balancer.retry_unbound().await;
    assert_eq!(Client::connect(addr).await.get("/").await.server(), "a");
}

#[tokio::test]
async fn a_port_changes_its_protocol_without_being_closed() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", server.addr)])];
    let addr = bench.listen(Protocol::Tcp, routes.clone()).await;
    let text = Client::connect(addr).await.get("/").await.text;
    assert!(!text.contains("x-forwarded-for"), "{text}");
    bench.apply(vec![listener(addr, Protocol::Http, routes)]).await;
    let text = Client::connect(addr).await.get("/").await.text;
    assert!(text.contains("x-forwarded-for"), "{text}");
}

#[tokio::test]
async fn a_refused_table_changes_nothing() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(Protocol::Http, vec![route(vec![backend("a", server.addr)])])
        .await;
    let broken = table(vec![listener(addr, Protocol::Tcp, vec![])]);
    assert!(bench.balancer.apply(broken, Default::default()).await.is_err());
    assert_eq!(Client::connect(addr).await.get("/").await.server(), "a");
}
