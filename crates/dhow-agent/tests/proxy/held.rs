//! Listeners outlive their proxy: the socket store holds them until the next one is there, and lets go of what nobody
//! listens on any more.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::proxy::{Protocol, ProxyClient, Table};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::backend::BackendProcess;
use crate::load::Client;
use crate::test_host::{TestHost, free_port, table};

crate::tests! {
    connections_wait_for_the_next_proxy,
    datagrams_wait_for_the_next_proxy,
    what_is_no_longer_served_is_not_held,
    a_killed_store_is_replaced,
    a_proxy_that_hands_over_lets_go_of_nothing,
    others_may_not_speak_with_the_store,
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills a proxy that nobody brings back.
async fn orphan_and_kill(proxy: ProxyClient) {
    let pid = proxy.pid().await.unwrap();
    drop(proxy);
    signal(pid, Signal::SIGKILL);
    until(|| !is_alive(pid)).await;
}

/// The process of the socket store.
fn store(host: &TestHost) -> Option<u32> {
    let named = host.processes().into_iter().map(|(pid, _)| pid);
    let is_store = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        is_alive(*pid) && name.is_ok_and(|name| name.trim() == "dhow-sockets")
    };
    let found: Vec<u32> = named.filter(is_store).collect();
    assert!(found.len() <= 1, "{found:?}");
    found.first().copied()
}

async fn connect(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    stream
}

async fn answered(mut stream: TcpStream, backend: &BackendProcess) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with(&backend.pid().to_string()), "{answer}");
}

async fn connections_wait_for_the_next_proxy(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let mut proxy = host.open("1").await;
    let wanted = table(1, addr, &[("a", backend.addr)]);
    proxy.apply(wanted).await.unwrap();
    for _ in 0..2 {
        orphan_and_kill(proxy).await;
        let mut waiting = Vec::new();
        for _ in 0..20 {
            waiting.push(connect(addr).await);
        }
        proxy = host.open("1").await;
        for stream in waiting {
            answered(stream, &backend).await;
        }
    }
}

async fn datagrams_wait_for_the_next_proxy(host: Arc<TestHost>) {
    let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = free_port();
    let mut wanted = table(1, addr, &[("a", echo.local_addr().unwrap())]);
    wanted.listeners[0].protocol = Protocol::Udp;
    let proxy = host.open("1").await;
    proxy.apply(wanted).await.unwrap();
    orphan_and_kill(proxy).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(addr).await.unwrap();
    client.send(b"kept").await.unwrap();
    let _next = host.open("1").await;
    let mut datagram = [0; 16];
    let (length, from) = echo.recv_from(&mut datagram).await.unwrap();
    assert_eq!(&datagram[..length], b"kept");
    echo.send_to(b"back", from).await.unwrap();
    let length = client.recv(&mut datagram).await.unwrap();
    assert_eq!(&datagram[..length], b"back");
}

async fn what_is_no_longer_served_is_not_held(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let (one, other) = (free_port(), free_port());
    let proxy = host.open("1").await;
    let mut both = table(1, one, &[("a", backend.addr)]);
    both.listeners
        .extend(table(1, other, &[("a", backend.addr)]).listeners);
    proxy.apply(both).await.unwrap();
    proxy.apply(table(2, one, &[("a", backend.addr)])).await.unwrap();
    assert!(TcpStream::connect(other).await.is_err());
    // An address that overlaps with one that goes is free at once.
    let wide = SocketAddr::from(([0, 0, 0, 0], one.port()));
    let applied = proxy.apply(table(3, wide, &[("a", backend.addr)])).await.unwrap();
    assert_eq!(applied.listeners, vec![(wide, Ok(()))]);
    proxy.apply(table(4, one, &[("a", backend.addr)])).await.unwrap();
    // Saved by another one meanwhile: what the store has of it is let go.
    let saved = host.proxy_dir().join("table/table.json");
    orphan_and_kill(proxy).await;
    let none = Table {
        revision: 5,
        ..Table::empty()
    };
    std::fs::write(saved, serde_json::to_vec(&none).unwrap()).unwrap();
    let _next = host.open("1").await;
    assert!(TcpStream::connect(one).await.is_err());
}

async fn a_killed_store_is_replaced(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let proxy = host.open("1").await;
    proxy.apply(table(1, addr, &[("a", backend.addr)])).await.unwrap();
    let first = store(&host).unwrap();
    signal(first, Signal::SIGKILL);
    assert_eq!(
        Client::new(addr).get("/").await.unwrap(),
        backend.pid().to_string()
    );
    until(|| store(&host).is_some_and(|pid| pid != first)).await;
    let second = store(&host).unwrap();
    // The proxy, the daemon and the one listener.
    until(|| std::fs::read_dir(format!("/proc/{second}/fd")).is_ok_and(|found| found.count() >= 7)).await;
    orphan_and_kill(proxy).await;
    let waiting = connect(addr).await;
    let _next = host.open("1").await;
    answered(waiting, &backend).await;
}

async fn a_proxy_that_hands_over_lets_go_of_nothing(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let first = host.open("1").await;
    first.apply(table(1, addr, &[("a", backend.addr)])).await.unwrap();
    let older = first.pid().await.unwrap();
    drop(first);
    let second = host.open("2").await;
    until(|| !is_alive(older)).await;
    orphan_and_kill(second).await;
    let waiting = connect(addr).await;
    let _next = host.open("2").await;
    answered(waiting, &backend).await;
}

async fn others_may_not_speak_with_the_store(host: Arc<TestHost>) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: it needs root");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let _proxy = host.open("1").await;
    let socket = host.proxy_dir().join("sockets.sock");
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    open(&socket);
    open(&host.proxy_dir());
    let folder = std::fs::File::open(host.proxy_dir()).unwrap();
    let ask = move |as_nobody: bool| {
        use nix::sys::socket::{
            AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
        };
        let made = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        let path = format!("/proc/self/fd/{}/sockets.sock", folder.as_raw_fd());
        let to = UnixAddr::new(path.as_str()).unwrap();
        let reach = || connect(made.as_raw_fd(), &to);
        match as_nobody {
            true => crate::rights::as_nobody(reach),
            false => reach(),
        }
        .unwrap();
        // It may be closed before or after this.
        let _ = send(
            made.as_raw_fd(),
            b"{\"take\":{\"after\":null}}",
            MsgFlags::MSG_NOSIGNAL,
        );
        recv(made.as_raw_fd(), &mut [0; 64], MsgFlags::empty()).unwrap_or(0)
    };
    // This thread alone is somebody else from here on.
    let (allowed, refused) = std::thread::spawn(move || (ask(false), ask(true)))
        .join()
        .unwrap();
    assert!(allowed > 0);
    assert_eq!(refused, 0, "nothing is said to it");
}
