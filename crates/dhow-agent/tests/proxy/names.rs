//! Services by name: the proxy in a network namespace of its own, and callers in another, as containers are.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::proxy::{
    Backend, Caller, Dns, Expose, NamedEndpoint, NamedService, Names, Protocol, ProxyClient, ProxyConfig,
    Table,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::backend::BackendProcess;
use crate::test_host::TestHost;

crate::tests! {
    services_are_reached_by_address_and_name,
    callers_are_known_by_their_addresses,
    a_killed_and_a_replaced_proxy_keep_service_addresses,
    a_network_that_was_made_anew_is_entered,
    real_tools_resolve_names,
}

const DNS: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 1);
const SHOP_DB: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 16);
const BLOG_DB: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 17);
const ECHO: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 18);
/// Callers' addresses on the link between both namespaces.
const SHOP_WEB: Ipv4Addr = Ipv4Addr::new(10, 86, 255, 2);
const BLOG_WEB: Ipv4Addr = Ipv4Addr::new(10, 86, 255, 3);
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 86, 255, 4);

/// Two namespaces: the proxy's, in which the range is local, and the containers', with a route to it.
struct Networks {
    proxy: String,
    containers: String,
}

impl Networks {
    fn new() -> Option<Self> {
        let is_there = Command::new("ip").arg("-V").output().is_ok();
        if !nix::unistd::geteuid().is_root() || !is_there {
            println!("SKIPPED: it needs root and ip (package iproute2)");
            return None;
        }
        let id = std::process::id();
        let networks = Self {
            proxy: format!("dhp{id}"),
            containers: format!("dhc{id}"),
        };
        ip(&["netns", "add", &networks.containers]);
        networks.make_proxys();
        Some(networks)
    }

    fn make_proxys(&self) {
        let (proxy, containers) = (self.proxy.as_str(), self.containers.as_str());
        ip(&["netns", "add", proxy]);
        ip(&[
            "-n", proxy, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", containers,
        ]);
        ip(&["-n", proxy, "address", "add", "10.86.255.1/24", "dev", "eth0"]);
        ip(&["-n", proxy, "link", "set", "lo", "up"]);
        ip(&["-n", proxy, "link", "set", "eth0", "up"]);
        ip(&["-n", proxy, "route", "add", "local", "10.87.0.0/16", "dev", "lo"]);
        for address in [SHOP_WEB, BLOG_WEB, STRANGER] {
            ip(&[
                "-n",
                containers,
                "address",
                "add",
                &format!("{address}/24"),
                "dev",
                "eth0",
            ]);
        }
        ip(&["-n", containers, "link", "set", "eth0", "up"]);
        ip(&[
            "-n",
            containers,
            "route",
            "add",
            "10.87.0.0/16",
            "via",
            "10.86.255.1",
        ]);
    }

    fn pin(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.proxy)
    }

    /// Does something on a thread that is where containers are.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.containers)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// What a caller with this address hears: the body, or how it failed.
    fn call(&self, from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Result<String, std::io::ErrorKind> {
        let work = move || -> std::io::Result<String> {
            let mut stream = connect_from(from, SocketAddr::from((to, port)))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: db\r\nconnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer.lines().last().unwrap_or_default().to_owned())
        };
        self.inside(work).map_err(|error| error.kind())
    }

    fn resolve(&self, from: Ipv4Addr, arguments: &[&str]) -> String {
        let mut words = vec![format!("--net=/run/netns/{}", self.containers), "dig".into()];
        words.extend([format!("@{DNS}"), "-b".into(), from.to_string()]);
        words.extend(["+tries=1", "+time=8"].map(str::to_owned));
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        let output = Command::new("nsenter").args(&words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in [&self.proxy, &self.containers] {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).status().unwrap();
    assert!(done.success(), "ip {words:?}");
}

fn connect_from(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let made = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&made, &SocketAddr::from((from, 0)))?;
    connect(&made, &to)?;
    Ok(TcpStream::from(made))
}

fn service(deployment: &str, name: &str, address: Ipv4Addr, endpoints: Vec<NamedEndpoint>) -> NamedService {
    NamedService {
        deployment: deployment.into(),
        service: name.into(),
        address,
        endpoints,
        replicas: Vec::new(),
    }
}

fn endpoint(name: &str, protocol: Protocol, port: u16, expose: Expose, backend: SocketAddr) -> NamedEndpoint {
    NamedEndpoint {
        name: name.into(),
        protocol,
        port,
        expose,
        allow: None,
        path: None,
        backends: vec![Backend::here(format!("{name}@1"), backend)],
        options: Default::default(),
        cold_start_ms: None,
    }
}

/// A `db` in each of two deployments, and callers of both.
fn names(shop: SocketAddr, blog: SocketAddr) -> Names {
    let of = |deployment: &str, address, backend| {
        let endpoints = vec![
            endpoint("sql", Protocol::Tcp, 5432, Expose::Internal, backend),
            endpoint("web", Protocol::Http, 80, Expose::Cluster, backend),
        ];
        service(deployment, "db", address, endpoints)
    };
    let caller = |addr, deployment: &str| Caller {
        addr,
        deployment: deployment.into(),
        service: "web".into(),
    };
    Names {
        dns: Some(Dns {
            addr: DNS,
            upstream: Vec::new(),
            host: Ipv4Addr::new(10, 86, 255, 1),
        }),
        services: vec![of("shop", SHOP_DB, shop), of("blog", BLOG_DB, blog)],
        callers: vec![caller(SHOP_WEB, "shop"), caller(BLOG_WEB, "blog")],
        ..Names::default()
    }
}

fn table(revision: u64, names: Names) -> Table {
    Table {
        revision,
        names: Some(names),
        ..Table::empty()
    }
}

async fn open(host: &TestHost, networks: &Networks, build: &str) -> ProxyClient {
    let config = ProxyConfig {
        namespace: Some(networks.pin()),
        ..host.config(build)
    };
    ProxyClient::open(config).await.unwrap()
}

async fn apply(proxy: &ProxyClient, table: Table) {
    for (addr, bound) in proxy.apply(table).await.unwrap().listeners {
        assert_eq!(bound, Ok(()), "{addr}");
    }
}

/// Every port is the service's own there, whatever the host listens on.
async fn services_are_reached_by_address_and_name(host: Arc<TestHost>) {
    let Some(networks) = Networks::new() else { return };
    // Where somebody has them already, they are taken all the same.
    let _taken = [53, 80, 5432].map(|port| TcpListener::bind(("0.0.0.0", port)));
    let backend = BackendProcess::anywhere();
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let echo_addr = echo.local_addr().unwrap();
    let proxy = open(&host, &networks, "1").await;
    let mut names = names(backend.addr, backend.addr);
    let udp = vec![endpoint("echo", Protocol::Udp, 7, Expose::Internal, echo_addr)];
    names.services.push(service("shop", "echo", ECHO, udp));
    apply(&proxy, table(1, names)).await;
    for port in [5432, 80] {
        assert_eq!(
            networks.call(SHOP_WEB, SHOP_DB, port).unwrap(),
            backend.pid().to_string()
        );
    }
    // A port that the service does not have is closed, on the proxy's own address too.
    for (to, port) in [
        (SHOP_DB, 22),
        (SHOP_DB, 53),
        (Ipv4Addr::new(10, 86, 255, 1), 5432),
    ] {
        let refused = networks.call(SHOP_WEB, to, port).unwrap_err();
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "{to}:{port}");
    }
    let answer = std::thread::spawn(move || {
        let mut datagram = [0; 64];
        let (count, from) = echo.recv_from(&mut datagram).unwrap();
        echo.send_to(&datagram[..count], from).unwrap();
    });
    let heard = networks.inside(|| {
        let socket = UdpSocket::bind((SHOP_WEB, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect((ECHO, 7)).unwrap();
        socket.send(b"hello").unwrap();
        let mut datagram = [0; 64];
        let count = socket.recv(&mut datagram).unwrap();
        datagram[..count].to_vec()
    });
    assert_eq!(heard, b"hello");
    answer.join().unwrap();
}

async fn callers_are_known_by_their_addresses(host: Arc<TestHost>) {
    let Some(networks) = Networks::new() else { return };
    let (shop, blog) = (BackendProcess::anywhere(), BackendProcess::anywhere());
    let proxy = open(&host, &networks, "1").await;
    let mut names = names(shop.addr, blog.addr);
    apply(&proxy, table(1, names.clone())).await;
    let reset = Err(std::io::ErrorKind::ConnectionReset);
    let of = |backend: &BackendProcess| Ok(backend.pid().to_string());
    // Two deployments with a `db` each stay apart.
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 5432), of(&shop));
    assert_eq!(networks.call(BLOG_WEB, BLOG_DB, 5432), of(&blog));
    assert_eq!(networks.call(BLOG_WEB, SHOP_DB, 5432), reset);
    assert_eq!(networks.call(SHOP_WEB, BLOG_DB, 5432), reset);
    // The whole cluster may call this one, but not somebody whom nobody knows.
    assert_eq!(networks.call(BLOG_WEB, SHOP_DB, 80), of(&shop));
    assert_eq!(networks.call(STRANGER, SHOP_DB, 80), reset);
    assert_eq!(networks.call(STRANGER, SHOP_DB, 5432), reset);
    assert_eq!(proxy.status().await.unwrap().refused_calls, 4);
    // An address that is given to another is the other's.
    names.callers[1].addr = SHOP_WEB;
    names.callers.remove(0);
    apply(&proxy, table(2, names)).await;
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 5432), reset);
    assert_eq!(networks.call(SHOP_WEB, BLOG_DB, 5432), of(&blog));
}

async fn a_killed_and_a_replaced_proxy_keep_service_addresses(host: Arc<TestHost>) {
    let Some(networks) = Networks::new() else { return };
    let backend = BackendProcess::anywhere();
    let expected = Ok(backend.pid().to_string());
    let proxy = open(&host, &networks, "1").await;
    apply(&proxy, table(1, names(backend.addr, backend.addr))).await;
    // The low port is bound anew by a proxy that is not root, from the table on disk.
    let before = proxy.pid().await.unwrap();
    kill(Pid::from_raw(i32::try_from(before).unwrap()), Signal::SIGKILL).unwrap();
    let after = loop {
        match proxy.pid().await {
            Ok(pid) if pid != before => break pid,
            Ok(_) | Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 80), expected);
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 5432), expected);
    // A connection that waits in the listener's queue is served by whoever comes next.
    drop(proxy);
    let next = open(&host, &networks, "2").await;
    assert_ne!(next.pid().await.unwrap(), after);
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 80), expected);
    assert_eq!(networks.call(SHOP_WEB, SHOP_DB, 5432), expected);
    let told = next.status().await.unwrap();
    assert!(
        told.listeners.iter().all(|listener| listener.error.is_none()),
        "{told:?}"
    );
}

async fn a_network_that_was_made_anew_is_entered(host: Arc<TestHost>) {
    let Some(networks) = Networks::new() else { return };
    let backend = BackendProcess::anywhere();
    let proxy = open(&host, &networks, "1").await;
    apply(&proxy, table(1, names(backend.addr, backend.addr))).await;
    let before = proxy.pid().await.unwrap();
    drop(proxy);
    // With the namespace goes its end of the link, and the other.
    ip(&["netns", "delete", &networks.proxy]);
    ip(&["-n", &networks.containers, "link", "delete", "eth0"]);
    networks.make_proxys();
    let next = open(&host, &networks, "1").await;
    assert_ne!(next.pid().await.unwrap(), before);
    assert_eq!(
        networks.call(SHOP_WEB, SHOP_DB, 5432),
        Ok(backend.pid().to_string())
    );
}

async fn real_tools_resolve_names(host: Arc<TestHost>) {
    if Command::new("dig").arg("-v").output().is_err() {
        println!("SKIPPED: there is no dig (package bind9-dnsutils)");
        return;
    }
    let Some(networks) = Networks::new() else { return };
    let backend = BackendProcess::anywhere();
    let proxy = open(&host, &networks, "1").await;
    apply(&proxy, table(1, names(backend.addr, backend.addr))).await;
    for way in ["+notcp", "+tcp", "+noedns"] {
        let ask = |from, name, kind| networks.resolve(from, &["+short", way, name, kind]);
        assert_eq!(ask(SHOP_WEB, "db.shop.dhow", "A"), SHOP_DB.to_string(), "{way}");
        assert_eq!(ask(SHOP_WEB, "db", "A"), SHOP_DB.to_string(), "{way}");
        assert_eq!(ask(BLOG_WEB, "db", "A"), BLOG_DB.to_string(), "{way}");
        assert_eq!(ask(SHOP_WEB, "db.shop.dhow", "AAAA"), "", "{way}");
        assert_eq!(ask(SHOP_WEB, "host.dhow", "A"), "10.86.255.1", "{way}");
        let srv = ask(SHOP_WEB, "_sql._tcp.db.shop.dhow", "SRV");
        assert_eq!(srv, "0 0 5432 db.shop.dhow.", "{way}");
    }
    let status = |name: &str| networks.resolve(SHOP_WEB, &[name, "A"]);
    assert!(status("nothing.shop.dhow").contains("status: NXDOMAIN"));
    // No server of the host's is known.
    assert!(status("www.example").contains("status: SERVFAIL"));
    // The search path of a container's resolv.conf.
    let search = ["+short", "+search", "+domain=shop.dhow", "db"];
    assert_eq!(networks.resolve(STRANGER, &search), SHOP_DB.to_string());
}
