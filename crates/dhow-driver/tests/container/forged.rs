//! What a container does to take another's place on the bridge, what other users of the host do to reach one past its
//! endpoints, and what becomes of the rules against both when somebody empties the host's packet filter.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dhow_driver::container::{BridgeConfig, ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Driver, ReplicaStatus};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, sendto, socket,
};

use crate::services::{ask, can_run, clear, config, serve, start, text};
use crate::test_host::{Groups, TestHost, is_installed, name};

crate::tests! {
    a_forged_hardware_address_draws_nothing: Groups::Any,
    what_an_earlier_version_made_goes_on: Groups::Any,
    other_users_of_the_host_are_refused: Groups::Any,
    rules_that_somebody_emptied_come_back: Groups::Any,
}

const SERVICE: &str = "http://10.85.0.16/";
type Mac = [u8; 6];
const EVERYBODY: Mac = [0xff; 6];
/// For bridges themselves: what is sent there passes a bridge's rules by.
const NEAREST_BRIDGE: Mac = [0x01, 0x80, 0xc2, 0, 0, 0x0e];

fn parsed(text: &str) -> Mac {
    let bytes = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<u8>>().try_into().unwrap()
}

/// Sends whole frames from a container, as who has the right to (by default it has) does.
struct Attacker {
    socket: OwnedFd,
    device: i32,
    address: Ipv4Addr,
}

impl Attacker {
    fn inside(pid: u32, address: Ipv4Addr) -> Self {
        let namespace = File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let opened = std::thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let (family, kind) = (AddressFamily::Packet, SockType::Raw);
            let socket = socket(family, kind, SockFlag::empty(), SockProtocol::EthAll).unwrap();
            (socket, nix::net::if_::if_nametoindex("eth0").unwrap())
        });
        let (socket, device) = opened.join().unwrap();
        Self {
            socket,
            device: i32::try_from(device).unwrap(),
            address,
        }
    }

    /// Says to `to` that this container's own address is at `forged`, in a frame that comes from there.
    fn announce(&self, forged: Mac, to: Mac) {
        let mut frame = [to, forged].concat();
        // ARP over Ethernet for IPv4, an answer.
        frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2]);
        frame.extend(forged);
        frame.extend(self.address.octets());
        frame.extend(to);
        frame.extend(self.address.octets());
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut target: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        target.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        target.sll_ifindex = self.device;
        target.sll_halen = 6;
        let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        // SAFETY: it points at an address of the family that it names, of this length.
        let target = unsafe { LinkAddr::from_raw((&raw const target).cast(), Some(length)) }.unwrap();
        sendto(self.socket.as_raw_fd(), &frame, &target, MsgFlags::empty()).unwrap();
    }
}

async fn pid_of(driver: &ContainerDriver, index: u32) -> u32 {
    let all = driver.list().await.unwrap();
    match all.into_iter().find(|(found, _)| *found == name(index)) {
        Some((_, ReplicaStatus::Running(running))) => running.pid,
        other => panic!("{other:?}"),
    }
}

async fn address_of(driver: &ContainerDriver, index: u32) -> Ipv4Addr {
    match driver.address(&name(index)).await.unwrap() {
        Some(std::net::IpAddr::V4(address)) => address,
        other => panic!("{other:?}"),
    }
}

async fn mac_of(host: &TestHost, index: u32) -> Mac {
    parsed(&text(host, index, &["cat", "/sys/class/net/eth0/address"]).await)
}

/// The hardware address that a container knows of a neighbour.
async fn known_mac(host: &TestHost, index: u32, address: Ipv4Addr) -> Mac {
    let known = text(host, index, &["cat", "/proc/net/arp"]).await;
    let wanted = format!("{address} ");
    let line = known.lines().find(|line| line.starts_with(&wanted));
    parsed(line.unwrap().split_whitespace().nth(3).unwrap())
}

async fn a_forged_hardware_address_draws_nothing(host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    let driver = ContainerDriver::open(config(&host)).unwrap();
    let network = driver.service_network().await.unwrap();
    let serving = serve(&network);
    start(&driver, &host, 0, "").await;
    start(&driver, &host, 1, "").await;
    let (own, other) = (address_of(&driver, 0).await, address_of(&driver, 1).await);
    assert_eq!(ask(&host, 1, SERVICE).await, other.to_string());
    let proxy = known_mac(&host, 1, network.address).await;
    let victim = mac_of(&host, 1).await;
    let attacker = Attacker::inside(pid_of(&driver, 0).await, own);
    for to in [EVERYBODY, NEAREST_BRIDGE, proxy] {
        // The proxy's place: nobody would reach services any more.
        attacker.announce(proxy, to);
        assert_eq!(ask(&host, 1, SERVICE).await, other.to_string(), "{to:x?}");
        // A neighbour's: what is for the neighbour would come here.
        attacker.announce(victim, to);
        driver.connect(&name(1), 8080).await.unwrap();
    }
    assert_eq!(ask(&host, 0, SERVICE).await, own.to_string());
    // Nothing is learned from any port, and what is for nobody goes to none.
    let prefix = host.device_prefix().unwrap();
    let devices = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let ports: Vec<_> = devices
        .filter(|device| device.file_name().to_str().unwrap().starts_with(&prefix))
        .collect();
    assert_eq!(ports.len(), 3, "{ports:?}");
    for port in ports {
        for setting in ["learning", "unicast_flood"] {
            let value = std::fs::read_to_string(port.path().join("brport").join(setting)).unwrap();
            assert_eq!(value.trim(), "0", "{setting} of {port:?}");
        }
    }
    assert_eq!(ask(&host, 1, "http://10.85.0.16/end").await, other.to_string());
    serving.join().unwrap();
    clear(&driver).await;
}

fn done(program: &str, words: &[&str]) {
    let ran = Command::new(program).args(words).status().unwrap();
    assert!(ran.success(), "{program} {words:?}");
}

/// Makes a container look as if an earlier version had made it, with an address that nobody planned.
async fn make_earlier(host: &TestHost, gateway: Ipv4Addr, index: u32, address: Ipv4Addr, mac: &str) {
    let number = u32::from(address) - u32::from(gateway) - 1;
    let port = format!("{}{number}", host.device_prefix().unwrap());
    let before = mac_of(host, index).await;
    let before = before.map(|byte| format!("{byte:02x}")).join(":");
    let change = format!("ip link set eth0 address {mac}");
    text(host, index, &["sh", "-c", &change]).await;
    done("bridge", &["fdb", "del", &before, "dev", &port, "master"]);
    done(
        "bridge",
        &["link", "set", "dev", &port, "learning", "on", "flood", "on"],
    );
}

async fn what_an_earlier_version_made_goes_on(host: Arc<TestHost>) {
    if !can_run() || !is_installed("bridge") {
        return;
    }
    let driver = ContainerDriver::open(config(&host)).unwrap();
    let network = driver.service_network().await.unwrap();
    let serving = serve(&network);
    start(&driver, &host, 0, "").await;
    start(&driver, &host, 1, "").await;
    let (first, second) = (address_of(&driver, 0).await, address_of(&driver, 1).await);
    assert_eq!(ask(&host, 1, SERVICE).await, second.to_string());
    let proxy = known_mac(&host, 1, network.address).await;
    let stolen = proxy.map(|byte| format!("{byte:02x}")).join(":");
    make_earlier(&host, network.host, 0, first, "9e:00:00:00:00:07").await;
    make_earlier(&host, network.host, 1, second, &stolen).await;
    // Twice: the second finds what the first has written down, whatever the container says by then.
    for _ in 0..2 {
        let later = ContainerDriver::open(config(&host)).unwrap();
        assert_eq!(later.service_network().await.unwrap(), network);
        assert_eq!(ask(&host, 0, SERVICE).await, first.to_string());
        later.connect(&name(0), 8080).await.unwrap();
        // Who had taken the proxy's has nothing of it.
        assert_eq!(ask(&host, 1, SERVICE).await, "");
    }
    assert_eq!(ask(&host, 0, "http://10.85.0.16/end").await, first.to_string());
    serving.join().unwrap();
    clear(&driver).await;
}

async fn other_users_of_the_host_are_refused(host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    const PROXY: u32 = 0x7000_0001;
    let with_proxy = ContainerConfig {
        network: BridgeConfig {
            proxy_user: Some(PROXY),
            ..config(&host).network
        },
        ..host.config()
    };
    let driver = ContainerDriver::open(with_proxy).unwrap();
    driver.service_network().await.unwrap();
    start(&driver, &host, 0, "").await;
    let url = format!("http://{}:8080/who", address_of(&driver, 0).await);
    let asked = |user: u32| {
        let output = Command::new("busybox")
            .args(["timeout", "5", "busybox", "wget", "-q", "-O", "-", &url])
            .uid(user)
            .gid(user)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(asked(0), "0");
    assert_eq!(asked(PROXY), "0");
    for user in [33, 1000, PROXY + 1] {
        assert_eq!(asked(user), "", "user {user}");
    }
    clear(&driver).await;
}

async fn rules_that_somebody_emptied_come_back(host: Arc<TestHost>) {
    if !can_run() {
        return;
    }
    let driver = ContainerDriver::open(config(&host)).unwrap();
    driver.service_network().await.unwrap();
    let bridge = host.bridge().unwrap();
    let listed = |family: &str| {
        let listed = Command::new("nft")
            .args(["list", "table", family, &bridge])
            .output()
            .unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    let families = ["ip", "bridge", "inet"];
    let before = families.map(listed);
    for (family, before) in families.iter().zip(&before) {
        assert!(before.contains("chain"), "{family}: {before}");
        done("nft", &["delete", "table", family, &bridge]);
        let deadline = Instant::now() + Duration::from_secs(30);
        while listed(family) != *before {
            assert!(Instant::now() < deadline, "{family}: {}", listed(family));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    clear(&driver).await;
    for family in families {
        assert_eq!(listed(family), "", "{family}");
    }
}
