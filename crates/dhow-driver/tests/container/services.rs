//! Services by name, as containers see them: a way to the range, a name server, and nothing to pretend with.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use dhow_driver::container::{BridgeConfig, ContainerConfig, ContainerDriver, ServiceNetwork};
use dhow_driver::driver::{Driver, ReplicaStart};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use crate::test_host::{Groups, TestHost, is_installed, name};

crate::tests! {
    containers_reach_services_and_not_each_other: Groups::Any,
    a_forged_address_is_dropped: Groups::Any,
    a_range_that_is_somebody_elses_is_refused: Groups::Any,
    a_host_that_drops_everything_is_no_obstacle: Groups::Any,
}

/// Of this test's own, so that it meets nobody's.
const RANGE: &str = "10.85.0.0/16";
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 85, 0, 16);
const PORT: u16 = 80;

pub fn config(host: &TestHost) -> ContainerConfig {
    ContainerConfig {
        network: BridgeConfig {
            services: Some(RANGE.parse().unwrap()),
            ..BridgeConfig::default()
        },
        ..host.config()
    }
}

pub fn can_run() -> bool {
    let can = is_installed("nft");
    if !can {
        println!("SKIPPED: there is no nft (package nftables)");
    }
    can
}

/// Answers every connection to the service's address with who called.
pub fn serve(network: &ServiceNetwork) -> std::thread::JoinHandle<()> {
    let namespace = std::fs::File::open(&network.namespace).unwrap();
    let (sender, ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let listener = TcpListener::bind((SERVICE, PORT)).unwrap();
        sender.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let who = stream.peer_addr().unwrap().ip();
            let mut request = [0; 512];
            let count = stream.read(&mut request).unwrap_or(0);
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{who}\n");
            if request[..count].starts_with(b"GET /end") {
                return;
            }
        }
    });
    ready.recv().unwrap();
    thread
}

/// Sees every packet that reaches the services' network.
struct Sniffer {
    socket: OwnedFd,
}

impl Sniffer {
    fn new(network: &ServiceNetwork) -> Self {
        let namespace = std::fs::File::open(&network.namespace).unwrap();
        let opened = std::thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            // Without the heads of the link.
            let (family, kind) = (AddressFamily::Packet, SockType::Datagram);
            socket(family, kind, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll).unwrap()
        });
        Self {
            socket: opened.join().unwrap(),
        }
    }

    /// How many packets with this source have come for the service since the last look.
    fn seen(&self, source: &str) -> usize {
        let source: Ipv4Addr = source.parse().unwrap();
        let mut packet = [0; 2048];
        let mut seen = 0;
        while let Ok(count) = recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            let addresses = packet[..count].get(12..20);
            let wanted = [source.octets(), SERVICE.octets()].concat();
            seen += usize::from(packet[0] == 0x45 && addresses == Some(wanted.as_slice()));
        }
        seen
    }
}

pub async fn start(driver: &ContainerDriver, host: &TestHost, index: u32, extra: &str) {
    let text = format!(
        "{extra} mkdir -p /www; echo {index} > /www/who; httpd -p 8080 -h /www; echo ready; exec sleep 100000"
    );
    let mut spec = host.shell(&text);
    // To forge addresses with, as an image may ask for by default elsewhere.
    spec.capabilities.add = vec!["NET_ADMIN".into(), "NET_RAW".into()];
    driver
        .start(&ReplicaStart::new(name(index), Arc::new(spec)))
        .await
        .unwrap();
    host.until_ready(index).await;
}

pub async fn text(host: &TestHost, index: u32, words: &[&str]) -> String {
    let seen = host.exec(index, words).await;
    String::from_utf8_lossy(&seen.stdout).into_owned()
}

/// What a container hears at an address, or nothing.
pub async fn ask(host: &TestHost, index: u32, url: &str) -> String {
    let command = format!("timeout 3 wget -q -O - {url} 2>/dev/null");
    text(host, index, &["sh", "-c", &command]).await.trim().to_owned()
}

pub async fn clear(driver: &ContainerDriver) {
    for (name, _) in driver.list().await.unwrap() {
        driver.remove(&name).await.unwrap();
    }
    driver.remove_host_state().await.unwrap();
}

async fn containers_reach_services_and_not_each_other(host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    // The service's port is taken on every address of the host; where it was taken before, so much the better.
    let _taken = TcpListener::bind(("0.0.0.0", PORT));
    let driver = ContainerDriver::open(config(&host)).unwrap();
    let network = driver.service_network().await.unwrap();
    assert_eq!(network.dns, Ipv4Addr::new(10, 85, 0, 1));
    let serving = serve(&network);
    start(&driver, &host, 0, "").await;
    start(&driver, &host, 1, "").await;
    let resolv = text(&host, 0, &["cat", "/etc/resolv.conf"]).await;
    assert!(resolv.starts_with("nameserver 10.85.0.1\nsearch "), "{resolv}");
    assert!(resolv.contains(".dhow dhow"), "{resolv}");
    let mut addresses = Vec::new();
    for index in 0..2 {
        let address = driver.address(&name(index)).await.unwrap().unwrap();
        // The service sees who calls, not a host that translates.
        assert_eq!(ask(&host, index, "http://10.85.0.16/").await, address.to_string());
        addresses.push(address);
    }
    let other = format!("http://{}:8080/who", addresses[1]);
    assert_eq!(
        ask(&host, 0, &other).await,
        "",
        "a container reached another past its endpoints"
    );
    // Not by way of the host either.
    let gateway = network.host.to_string();
    let route = ["ip", "route", "add", &addresses[1].to_string(), "via", &gateway];
    text(&host, 0, &route).await;
    assert_eq!(
        ask(&host, 0, &other).await,
        "",
        "a container reached another by the host"
    );
    // The host reaches them, for their endpoints and for their health.
    driver.connect(&name(1), 8080).await.unwrap();
    // Another daemon finds what this one has made.
    let again = ContainerDriver::open(config(&host)).unwrap();
    assert_eq!(again.service_network().await.unwrap(), network);
    assert_eq!(
        ask(&host, 0, "http://10.85.0.16/end").await,
        addresses[0].to_string()
    );
    serving.join().unwrap();
    let pin = network.namespace.clone();
    clear(&driver).await;
    assert!(!Path::new(&pin).exists());
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn a_forged_address_is_dropped(host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    let driver = ContainerDriver::open(config(&host)).unwrap();
    let network = driver.service_network().await.unwrap();
    let serving = serve(&network);
    start(&driver, &host, 0, "").await;
    start(&driver, &host, 1, "").await;
    let own = driver.address(&name(0)).await.unwrap().unwrap();
    let other = driver.address(&name(1)).await.unwrap().unwrap();
    let sniffer = Sniffer::new(&network);
    assert_eq!(ask(&host, 0, "http://10.85.0.16/").await, own.to_string());
    assert!(sniffer.seen(&own.to_string()) > 0);
    // The first takes the second's address, and one that nobody has: neither gets through, and its own still does.
    for forged in [
        other.to_string(),
        network.host.to_string(),
        "192.0.2.77".to_owned(),
    ] {
        let take = format!(
            "ip address add {forged}/32 dev eth0; \
             ip route replace 10.85.0.0/16 via {} src {forged}",
            network.address
        );
        text(&host, 0, &["sh", "-c", &take]).await;
        assert_eq!(ask(&host, 0, "http://10.85.0.16/").await, "");
        assert_eq!(sniffer.seen(&forged), 0, "{forged} got through");
        let give_back = format!(
            "ip address del {forged}/32 dev eth0; ip route replace 10.85.0.0/16 via {} src {own}",
            network.address
        );
        text(&host, 0, &["sh", "-c", &give_back]).await;
        assert_eq!(ask(&host, 0, "http://10.85.0.16/").await, own.to_string());
    }
    // The second is found where it is, whatever the first has said to its neighbours.
    assert_eq!(ask(&host, 1, "http://10.85.0.16/end").await, other.to_string());
    serving.join().unwrap();
    clear(&driver).await;
}

async fn a_range_that_is_somebody_elses_is_refused(host: Arc<TestHost>) {
    let config = ContainerConfig {
        network: BridgeConfig {
            // The bridge itself has a route there.
            subnet: Some("10.85.4.0/24".parse().unwrap()),
            services: Some(RANGE.parse().unwrap()),
            ..BridgeConfig::default()
        },
        ..host.config()
    };
    let driver = ContainerDriver::open(config).unwrap();
    let why = driver.service_network().await.unwrap_err();
    assert!(why.contains("10.85.4.0/24 dev dhow-"), "{why}");
    assert!(why.contains("network.range"), "{why}");
    // Containers run all the same, without names.
    let notices = driver.probe().await.notices;
    assert!(notices.contains(&why), "{notices:?}");
    start(&driver, &host, 0, "").await;
    assert!(
        !text(&host, 0, &["cat", "/etc/resolv.conf"])
            .await
            .contains("dhow")
    );
    clear(&driver).await;
}

/// The same once more in a network whose firewall lets nothing in and nothing through, as Docker's and many a host's own.
/// With the module br_netfilter the bridge's own traffic is subject to it as well.
async fn a_host_that_drops_everything_is_no_obstacle(_host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    if !is_installed("iptables") || !is_installed("unshare") {
        println!("SKIPPED: there is no iptables or no unshare (packages iptables, util-linux)");
        return;
    }
    let script = "ip link set lo up && iptables -P INPUT DROP && iptables -P FORWARD DROP && \
                  iptables -A INPUT -i lo -j ACCEPT && exec \"$0\" --exact \"$1\"";
    let exe = std::env::current_exe().unwrap();
    let ran = tokio::process::Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .arg(exe)
        .arg("containers_reach_services_and_not_each_other")
        .status();
    assert!(ran.await.unwrap().success());
}
