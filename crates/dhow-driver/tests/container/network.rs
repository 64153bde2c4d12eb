//! Addresses, ports, and many replicas at once.

use std::net::IpAddr;
use std::sync::Arc;

use dhow_driver::container::{BridgeConfig, ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Cause, Driver, ReplicaStart, StopRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    two_listen_on_the_same_port: Groups::Any,
    twenty_start_at_once: Groups::Any,
    all_addresses_are_taken: Groups::Any,
    others_are_not_let_in: Groups::Any,
}

async fn ask(driver: &ContainerDriver, index: u32) -> String {
    let mut stream = driver.connect(&name(index), 8080).await.unwrap();
    stream.write_all(b"GET /who HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().last().unwrap_or_default().to_owned()
}

async fn two_listen_on_the_same_port(host: Arc<TestHost>) {
    let driver = host.driver();
    let mut addresses = Vec::new();
    for index in 0..2 {
        let text = format!(
            "mkdir /www; echo replica {index} > /www/who; httpd -p 8080 -h /www; echo ready; exec sleep 100000"
        );
        driver
            .start(&ReplicaStart::new(name(index), Arc::new(host.shell(&text))))
            .await
            .unwrap();
        host.until_ready(index).await;
        addresses.push(driver.address(&name(index)).await.unwrap().unwrap());
    }
    assert_ne!(addresses[0], addresses[1]);
    assert!(addresses.iter().all(IpAddr::is_ipv4));
    for index in 0..2 {
        assert_eq!(ask(&driver, index).await, format!("replica {index}"));
    }
    // Each reaches the other.
    let url = format!("http://{}:8080/who", addresses[1]);
    let seen = host.exec(0, &["wget", "-q", "-O", "-", &url]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "replica 1\n", "{seen:?}");
    let error = driver.connect(&name(0), 9).await.unwrap_err();
    assert!(matches!(*error.cause, Cause::Port { port: 9, .. }), "{error}");
    driver.stop(&name(0), StopRequest::kill()).await.unwrap();
    let error = driver.address(&name(0)).await.unwrap_err();
    assert!(matches!(*error.cause, Cause::NotRunning), "{error}");
    assert_eq!(ask(&driver, 1).await, "replica 1");
}

async fn twenty_start_at_once(host: Arc<TestHost>) {
    let driver = host.driver();
    let spec = Arc::new(host.spec(&["sleep", "100000"]));
    let mut starts = tokio::task::JoinSet::new();
    for index in 0..20 {
        let (driver, spec) = (driver.clone(), spec.clone());
        starts.spawn(async move {
            driver.start(&ReplicaStart::new(name(index), spec)).await.unwrap();
            driver.address(&name(index)).await.unwrap().unwrap()
        });
    }
    let mut addresses = starts.join_all().await;
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 20);
    let mut removals = tokio::task::JoinSet::new();
    for index in 0..20 {
        let driver = driver.clone();
        removals.spawn(async move { driver.remove(&name(index)).await.unwrap() });
    }
    removals.join_all().await;
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// A subnet of its own, with five places.
async fn all_addresses_are_taken(host: Arc<TestHost>) {
    let config = || ContainerConfig {
        network: BridgeConfig {
            subnet: Some("10.233.77.0/29".parse().unwrap()),
            ..BridgeConfig::default()
        },
        ..host.config()
    };
    let driver = ContainerDriver::open(config()).unwrap();
    let start = |index| ReplicaStart::new(name(index), Arc::new(host.spec(&["sleep", "100000"])));
    for index in 0..5 {
        driver.start(&start(index)).await.unwrap();
    }
    let error = driver.start(&start(5)).await.unwrap_err();
    assert!(
        matches!(*error.cause, Cause::NoAddress { count: 5, .. }),
        "{error}"
    );
    driver.remove(&name(2)).await.unwrap();
    driver.start(&start(5)).await.unwrap();
    for (name, _) in driver.list().await.unwrap() {
        driver.remove(&name).await.unwrap();
    }
}

/// A neighbour of this host, with a route to the replicas by it.
struct Neighbour {
    name: String,
}

impl Neighbour {
    const HOST: &str = "10.233.78.1";
    const ADDRESS: &str = "10.233.78.2";

    fn new(replicas: IpAddr) -> Self {
        let name = format!("dhn{}", std::process::id());
        let neighbour = Self { name };
        let (name, peer) = (&neighbour.name, format!("{}p", neighbour.name));
        for words in [
            vec!["netns", "add", name],
            vec![
                "link", "add", name, "type", "veth", "peer", "name", &peer, "netns", name,
            ],
            vec!["address", "add", "10.233.78.1/30", "dev", name],
            vec!["link", "set", name, "up"],
            vec!["-n", name, "address", "add", "10.233.78.2/30", "dev", &peer],
            vec!["-n", name, "link", "set", &peer, "up"],
            vec![
                "-n",
                name,
                "route",
                "add",
                &replicas.to_string(),
                "via",
                Self::HOST,
            ],
        ] {
            let done = std::process::Command::new("ip").args(&words).status().unwrap();
            assert!(done.success(), "ip {words:?}");
        }
        neighbour
    }

    /// Does something on a thread that is there.
    fn there<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // The namespace takes its end of the pair along, and with it the other.
        let _ = std::process::Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}

/// Replicas reach others and are answered; others reach them by endpoints alone.
async fn others_are_not_let_in(host: Arc<TestHost>) {
    let driver = host.driver();
    let text = "mkdir /www; echo here > /www/who; httpd -p 8080 -h /www; echo ready; exec sleep 100000";
    let start = ReplicaStart::new(name(0), Arc::new(host.shell(text)));
    driver.start(&start).await.unwrap();
    host.until_ready(0).await;
    let address = driver.address(&name(0)).await.unwrap().unwrap();
    let neighbour = Neighbour::new(address);
    let answer = neighbour.there(|| {
        let listener = std::net::TcpListener::bind((Neighbour::ADDRESS, 8081)).unwrap();
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nanswered\n").unwrap();
        })
    });
    let url = format!("http://{}:8081/", Neighbour::ADDRESS);
    let seen = host.exec(0, &["wget", "-q", "-O", "-", &url]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "answered\n", "{seen:?}");
    answer.join().unwrap();
    let refused = neighbour.there(|| {
        let limit = std::time::Duration::from_secs(1);
        std::net::TcpStream::connect_timeout(&(address, 8080).into(), limit)
    });
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(ask(&driver, 0).await, "here");
    driver.remove(&name(0)).await.unwrap();
}
